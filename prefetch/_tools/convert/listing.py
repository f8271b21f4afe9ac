"""Which images there are: from a list file, or from folders whose names are the classes."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from prefetch._errors.printable import counted, printable_name
from prefetch._files.input import read_file_or_pipe
from prefetch._tools.convert.errors import InputError
from prefetch._tools.convert.labels import FLOATS_HINT, LabelError, LabelRule, parse_label

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


from typing import Final

_SUFFIXES = "bmp dib gif jp2 jpe jpeg jpg pbm pgm png pnm ppm tif tiff webp"
IMAGE_SUFFIXES = frozenset(_SUFFIXES.split())
"""Endings of names, in lower case, by which files in class folders are taken for images."""

_OTHER_SEPARATOR = re.compile(r".*[^\t,;](\t|,|;)[+-]?[0-9]+\s*", re.ASCII | re.DOTALL)
_SEVERAL = re.compile(r"[+-]?[0-9.]+(?:[,;][+-]?[0-9.]+)*", re.ASCII)  # or one
_SEPARATORS = {"\t": "a tab", ",": "a comma", ";": "a semicolon"}
_NAMED = 5
_ENDS_IN_NUMBER = re.compile(r".*\s[+-]?[0-9.]+(?:e[+-]?[0-9]+)?", re.ASCII | re.DOTALL)


class _SeparatorError(LabelError):
    """Raised for a line with something else than a space before the label."""

    def __init__(self, line: str, separator: str) -> None:
        spelled = "\\t" if separator == "\t" else separator
        super().__init__(
            f"{_SEPARATORS[separator]} stands before the label, where a space is expected: "
            f"{_shown(line)}",
            f"make it a list with spaces: sed 's/{spelled} *\\([^{spelled}]*\\)$/ \\1/' LIST > NEW",
        )


class Entry(NamedTuple):
    """One image.

    Attributes:
        name: As listed, relative to the root; bytes that are no UTF-8 as ``os.fsdecode`` has them.
        label: An int32.
    """

    name: str
    label: int


@dataclass(frozen=True, slots=True)
class Listing:
    """Images in the order in which they are stored.

    Attributes:
        root: Absolute path of the folder that the names are relative to; ends in a slash.
        entries: The images.
        classes: (name, label) of each class folder, by label; empty for a list file.
        notes: What is hardly meant, or easily taken for something else, one sentence each.
    """

    root: str
    entries: tuple[Entry, ...]
    classes: tuple[tuple[str, int], ...] = ()
    notes: tuple[str, ...] = ()


def read_list(root: Path, path: Path, *, rule: LabelRule = LabelRule.STRICT) -> Listing:
    """Read a list file: a name and a label a line, with a space between them, the last of the line.

    Names are taken byte by byte, with spaces and whatever encoding they have; see `lines_of` for
    what a line is.

    Args:
        root: Folder that names are relative to.
        path: The list, a file or a pipe.
        rule: Which labels are accepted.

    Raises:
        InputError: Lines are wrong, all of them named; or there are none.
        OSError: The file cannot be read.
    """
    folder = _folder(root)
    content = read_file_or_pipe(path)
    encoding = wide_encoding(content)
    if encoding is not None:
        raise InputError(
            os.fspath(path.absolute()),
            f"is {encoding}, and names are compared byte by byte; write it as UTF-8: "
            f"iconv -f {encoding} -t UTF-8 LIST > NEW",
        )
    lines = lines_of(content)
    entries, faults = [], []
    cures: set[str] = set()
    for number, line in enumerate(lines, 1):
        try:
            entries.append(_entry(os.fsdecode(line), folder, rule))
        except LabelError as error:
            # What is the same for all lines of a kind is said at the first.
            cure = f"; {error.cure}" if error.cure and error.cure not in cures else ""
            cures.add(error.cure)
            faults.append(f"line {number}: {error}{cure}")
    if lines == [b""]:
        faults = ["the list is empty"]
    if faults:
        raise InputError(os.fspath(path.absolute()), *faults)
    return Listing(folder, tuple(entries))


def find_classes(root: Path) -> Listing:
    """Find the images in a folder of class folders.

    Every folder in ``root`` is a class, with all of the images in it, however deep. Labels count
    the classes from 0 in the order of their names' bytes; where all names are different integers
    from 0 to 2147483647, they are the labels themselves. Hidden files and folders are left out,
    symbolic links followed. Images that lie in ``root`` itself are in no class and left out, which
    is noted.

    Raises:
        InputError: There are no class folders, no images in them, or a symbolic link leads back to
            a folder that it lies in.
        OSError: A folder cannot be read.
    """
    visible, num_hidden = _visible(root)
    names = sorted((one.name for one in visible if _is_folder(one)), key=os.fsencode)
    if not names:
        raise InputError(
            os.fspath(root.absolute()),
            "holds no class folders; give a LIST of its images and their labels",
        )
    classes, notes = _labelled(names)
    num_loose = sum(_is_image(one.name) and not _is_folder(one) for one in visible)
    if num_loose:
        notes.append(
            f"{counted(num_loose, 'image')} in ROOT itself, in no class folder: left out; move "
            f"them into class folders"
        )
    entries: list[Entry] = []
    empty: list[str] = []
    others: list[str] = []
    for name, label in classes:
        files, hidden = _files(root / name, name, frozenset({_identity(root)}))
        num_hidden += hidden
        images = sorted((file for file in files if _is_image(file)), key=os.fsencode)
        entries += [Entry(file, label) for file in images]
        others += sorted(file for file in files if not _is_image(file))
        if not images:
            empty.append(name)
    if not entries:
        raise InputError(
            os.fspath(root.absolute()),
            f"holds {counted(len(classes), 'class folder')} and no images in them; files are "
            f"taken for images by their names' endings: {', '.join(sorted(IMAGE_SUFFIXES))}",
        )
    if num_hidden:
        notes.append(
            f"{counted(num_hidden, 'hidden file or folder', 'hidden files or folders')} left out, "
            f"whose names begin with a dot"
        )
    if others:
        notes.append(
            f"{counted(len(others), 'file')} left out: no images, by their names' endings: "
            f"{_some(others)}"
        )
    if empty:
        notes.append(
            f"{counted(len(empty), 'class folder')} without images, with labels all the same: "
            f"{_some(empty)}"
        )
    return Listing(_folder(root), tuple(entries), tuple(classes), tuple(notes))


def _labelled(names: Sequence[str]) -> tuple[list[tuple[str, int]], list[str]]:
    """Return class folders with their labels, by label, and what is to be noted about that.

    Args:
        names: Their names, in the order of the names' bytes.
    """
    numbers = [int(name) for name in names if name.isascii() and name.isdigit()]
    if not numbers:
        return [(name, label) for label, name in enumerate(names)], []
    if len(set(numbers)) == len(names) and max(numbers) < 2**31:
        classes = sorted(zip(names, numbers, strict=True), key=lambda pair: pair[1])
        if [label for _, label in classes] == list(range(len(names))):
            return classes, []
        note = (
            f"the names of all class folders are integers, and so these are the labels, from "
            f"{classes[0][1]} to {classes[-1][1]}, and no count from 0"
        )
        return classes, [note]
    note = (
        f"the names of {len(numbers)} of {counted(len(names), 'class folder')} are integers, and "
        f"are not the labels, since not all names are different integers below 2147483648; "
        f"labels count from 0 in the order of the names, as classes.tsv says"
    )
    return [(name, label) for label, name in enumerate(names)], [note]


def suffix(name: str) -> str:
    """Return what follows the last dot of a name, in lower case; empty without one."""
    _, dot, ending = name.rpartition("/")[2].rpartition(".")
    return ending.lower() if dot else ""


def _folder(root: Path) -> str:
    return f"{str(root.absolute()).rstrip('/')}/"


def _entry(line: str, folder: str, rule: LabelRule) -> Entry:
    if "\0" in line:
        raise LabelError(f"a zero byte stands in the line, which no name has: {_shown(line)}")
    name, space, text = line.rpartition(" ")
    if rule is LabelRule.CAFFE:
        return Entry(name if space else line, parse_label(text, rule))
    if not line:
        raise LabelError("the line is empty")
    other = _OTHER_SEPARATOR.fullmatch(line)
    if other and not (space and _SEVERAL.fullmatch(text)):
        raise _SeparatorError(line, other[1][0])
    if not space:
        raise LabelError(f"expected a name, a space and a label, found {_shown(line)}")
    if not text:
        raise LabelError(f"the line ends in a space, behind {_shown(name)}")
    label = parse_label(text, rule)
    if "\r" in name and not os.path.lexists(folder + name):
        raise LabelError(
            f"a carriage return stands in the name, and there is no such file: {_shown(name)}; "
            f"make the line ends alike: tr '\\r' '\\n' < LIST > NEW"
        )
    if name.endswith((" ", "\t")) and not os.path.lexists(folder + name):
        raise LabelError(
            f"several spaces stand before the label, and all but the last belong to the name, "
            f"{_shown(name)}: there is no such file; leave one space"
        )
    if _ENDS_IN_NUMBER.fullmatch(name) and not os.path.lexists(folder + name):
        raise LabelError(
            f"there seem to be several labels: there is no file {_shown(name)}", FLOATS_HINT
        )
    return Entry(name, label)


def _shown(text: str) -> str:
    shown = printable_name(text if len(text) <= 100 else f"{text[:100]}...")
    return f"'{shown}'"


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_folder(one: os.DirEntry[str]) -> bool:
    try:
        return one.is_dir()
    except OSError:  # a link that leads in circles
        return False


def _visible(folder: Path) -> tuple[list[os.DirEntry[str]], int]:
    """Return what is in a folder and not hidden, and how much is hidden."""
    with os.scandir(folder) as found:
        everything = list(found)
    visible = [one for one in everything if not one.name.startswith(".")]
    return visible, len(everything) - len(visible)


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _files(
    folder: Path, name: str, around: frozenset[tuple[int, int]] = frozenset()
) -> tuple[list[str], int]:
    """Return the files in a folder and the folders in it, as paths that begin with ``name``.

    Hidden files and folders are only counted, and what is in the latter is not.

    Args:
        folder: The folder.
        name: What its path is called.
        around: Device and inode of the folders that it lies in.

    Raises:
        InputError: A symbolic link leads back to a folder that it lies in.
    """
    itself = _identity(folder)
    if itself in around:
        raise InputError(
            os.fspath(folder.absolute()),
            "leads back by a symbolic link to a folder that it lies in, so that its images have "
            "no end; remove the link",
        )
    around |= {itself}
    found = []
    visible, num_hidden = _visible(folder)
    for one in visible:
        path = f"{name}/{one.name}"
        if _is_folder(one):
            deeper, hidden = _files(folder / one.name, path, around)
            found += deeper
            num_hidden += hidden
        else:
            found.append(path)  # also what cannot be read: it is found so when it is to be
    return found, num_hidden


def _is_image(name: str) -> bool:
    return suffix(name) in IMAGE_SUFFIXES


_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MARKED: Final = (
    (b"\xff\xfe\0\0", "UTF-32", "utf-32"),
    (b"\0\0\xfe\xff", "UTF-32", "utf-32"),
    (b"\xff\xfe", "UTF-16", "utf-16"),
    (b"\xfe\xff", "UTF-16", "utf-16"),
)
_UNMARKED: Final = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")


def lines_of(content: bytes) -> list[bytes]:
    r"""Return the lines of a list, without their ends.

    Lines end in ``\n`` or ``\r\n``, or all of them in ``\r``. Empty lines at the end, and a byte
    order mark of UTF-8, are left out.
    """
    content = content.removeprefix(_BYTE_ORDER_MARK).rstrip(b"\r\n")
    if b"\n" not in content:
        return content.split(b"\r")
    return [line.removesuffix(b"\r") for line in content.split(b"\n")]


def wide_encoding(content: bytes) -> str | None:
    """Return which encoding of several bytes a character a list is of, as iconv calls it.

    None where it is of none, which is so wherever there is no zero byte.
    """
    if b"\0" not in content:
        return None
    for mark, name, codec in _MARKED:
        if content.startswith(mark) and _is_list(content, codec):
            return name
    return next((name for name in _UNMARKED if _is_list(content, name)), None)


def _is_list(content: bytes, codec: str) -> bool:
    """Return whether a content, decoded, begins with a name, a space and what may be a label."""
    try:
        text = content.decode(codec)
    except UnicodeDecodeError:
        return False
    before, space, after = text.partition("\n")[0].rstrip("\r").rpartition(" ")
    return "\0" not in text and bool(before and space) and after.isascii()
