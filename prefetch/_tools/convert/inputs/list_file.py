"""List files: a name and a label a line, as Caffe's convert_imageset reads them."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from prefetch._files.input import read_file_or_pipe
from prefetch._tools.convert.errors import InputError
from prefetch._tools.convert.inputs.labels import (
    FLOATS_HINT,
    LabelError,
    LabelRule,
    parse_label,
    printable_start,
)
from prefetch._tools.convert.inputs.listing import Entry, Listing, folder_text

if TYPE_CHECKING:
    from pathlib import Path

_OTHER_SEPARATOR = re.compile(r".*[^\t,;](\t|,|;)[+-]?[0-9]+\s*", re.ASCII | re.DOTALL)
_SEVERAL = re.compile(r"[+-]?[0-9.]+(?:[,;][+-]?[0-9.]+)*", re.ASCII)  # or one
_SEPARATORS = {"\t": "a tab", ",": "a comma", ";": "a semicolon"}
_ENDS_IN_NUMBER = re.compile(r".*\s[+-]?[0-9.]+(?:e[+-]?[0-9]+)?", re.ASCII | re.DOTALL)
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_MARKED: Final = (
    (b"\xff\xfe\0\0", "UTF-32", "utf-32"),
    (b"\0\0\xfe\xff", "UTF-32", "utf-32"),
    (b"\xff\xfe", "UTF-16", "utf-16"),
    (b"\xfe\xff", "UTF-16", "utf-16"),
)
_UNMARKED: Final = ("UTF-32LE", "UTF-32BE", "UTF-16LE", "UTF-16BE")


class _SeparatorError(LabelError):
    """Raised for a line with something else than a space before the label."""

    def __init__(self, line: str, separator: str) -> None:
        spelled = "\\t" if separator == "\t" else separator
        super().__init__(
            f"{_SEPARATORS[separator]} stands before the label, where a space is expected: "
            f"{_quote(line)}",
            f"make it a list with spaces: sed 's/{spelled} *\\([^{spelled}]*\\)$/ \\1/' LIST > NEW",
        )


def read_list(root: Path, path: Path, *, rule: LabelRule = LabelRule.STRICT) -> Listing:
    """Read a list file: a name and a label a line, with a space between them, the last of the line.

    Names are taken byte by byte, with spaces and in any encoding; see `lines_of` for
    what a line is.

    Args:
        root: Folder that names are relative to.
        path: The list, a file or a pipe.
        rule: Which labels are accepted.

    Raises:
        InputError: Lines are wrong, all of them named; or there are none.
        OSError: The file cannot be read.
    """
    folder = folder_text(root)
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


def _entry(line: str, folder: str, rule: LabelRule) -> Entry:
    if "\0" in line:
        raise LabelError(f"a zero byte stands in the line, which no name has: {_quote(line)}")
    name, space, text = line.rpartition(" ")
    if rule is LabelRule.CAFFE:
        return Entry(name if space else line, parse_label(text, rule))
    if not line:
        raise LabelError("the line is empty")
    other = _OTHER_SEPARATOR.fullmatch(line)
    if other and not (space and _SEVERAL.fullmatch(text)):
        raise _SeparatorError(line, other[1][0])
    if not space:
        raise LabelError(f"expected a name, a space and a label, found {_quote(line)}")
    if not text:
        raise LabelError(f"the line ends in a space, behind {_quote(name)}")
    label = parse_label(text, rule)
    if "\r" in name and not os.path.lexists(folder + name):
        raise LabelError(
            f"a carriage return stands in the name, and there is no such file: {_quote(name)}; "
            f"make the line ends alike: tr '\\r' '\\n' < LIST > NEW"
        )
    if name.endswith((" ", "\t")) and not os.path.lexists(folder + name):
        raise LabelError(
            f"several spaces stand before the label, and all but the last belong to the name, "
            f"{_quote(name)}: there is no such file; leave one space"
        )
    if _ENDS_IN_NUMBER.fullmatch(name) and not os.path.lexists(folder + name):
        raise LabelError(
            f"there seem to be several labels: there is no file {_quote(name)}", FLOATS_HINT
        )
    return Entry(name, label)


def _quote(text: str) -> str:
    return f"'{printable_start(text, 100)}'"


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
