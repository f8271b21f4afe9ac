"""Folders of images whose names are the classes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prefetch._errors.printable import counted
from prefetch._tools.convert.errors import InputError
from prefetch._tools.convert.inputs.listing import Entry, Listing, folder_text, suffix

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SUFFIXES = "bmp dib gif jp2 jpe jpeg jpg pbm pgm png pnm ppm tif tiff webp"
IMAGE_SUFFIXES = frozenset(_SUFFIXES.split())
"""Endings of names, in lower case, by which files in class folders are taken for images."""

_NAMED = 5


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
    visible, hidden = _visible(root)
    names = sorted((one.name for one in visible if _is_folder(one)), key=os.fsencode)
    if not names:
        raise InputError(
            os.fspath(root.absolute()),
            "holds no class folders; give a LIST of its images and their labels",
        )
    classes, notes = _label_classes(names)
    loose = sorted(one.name for one in visible if _is_image(one.name) and not _is_folder(one))
    if loose:
        notes.append(
            f"{counted(len(loose), 'image')} in ROOT itself, in no class folder: left out; move "
            f"them into class folders: {_some(loose)}"
        )
    entries: list[Entry] = []
    empty: list[str] = []
    others: list[str] = []
    for name, label in classes:
        files, hidden_there = _files(root / name, name, frozenset({_identity(root)}))
        hidden += hidden_there
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
    notes += _note_of_splits(entries, classes)
    if hidden:
        notes.append(
            f"{counted(len(hidden), 'hidden file or folder', 'hidden files or folders')} left out, "
            f"whose names begin with a dot: {_some(sorted(hidden))}"
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
    return Listing(folder_text(root), tuple(entries), tuple(classes), tuple(notes))


def _note_of_splits(entries: Sequence[Entry], classes: Sequence[tuple[str, int]]) -> list[str]:
    """Note where the folders look like splits, train and val, with the classes inside of each."""
    inner: dict[int, set[str]] = {label: set() for _, label in classes}
    for entry in entries:
        _, *folders, _ = entry.name.split("/")
        if not folders:
            return []  # images lie in a class folder itself
        inner[entry.label].add(folders[0])
    common = sorted(set.intersection(*inner.values()), key=os.fsencode)
    if len(classes) < 2 or len(common) < 2:
        return []
    names = [name for name, _ in classes]
    note = (
        f"no image lies in a class folder itself, and all of them hold the folders "
        f"{_some(common)}: the classes are {_some(names)}; if they are splits, convert each by "
        f"itself"
    )
    return [note]


def _label_classes(names: Sequence[str]) -> tuple[list[tuple[str, int]], list[str]]:
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


def _files(
    folder: Path, name: str, around: frozenset[tuple[int, int]] = frozenset()
) -> tuple[list[str], list[str]]:
    """Return the files in a folder and the folders in it, as paths that begin with ``name``.

    Behind them come hidden files and folders; what is in the latter is not looked at.

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
    visible, hidden_here = _visible(folder)
    hidden = [f"{name}/{one}" for one in hidden_here]
    for one in visible:
        path = f"{name}/{one.name}"
        if _is_folder(one):
            deeper, hidden_deeper = _files(folder / one.name, path, around)
            found += deeper
            hidden += hidden_deeper
        else:
            found.append(path)  # also what cannot be read: it is found so when it is to be
    return found, hidden


def _visible(folder: Path) -> tuple[list[os.DirEntry[str]], list[str]]:
    """Return what is in a folder and not hidden, and the names of what is."""
    with os.scandir(folder) as found:
        everything = list(found)
    visible = [one for one in everything if not one.name.startswith(".")]
    return visible, [one.name for one in everything if one.name.startswith(".")]


def _is_folder(one: os.DirEntry[str]) -> bool:
    try:
        return one.is_dir()
    except OSError:  # a link that leads in circles
        return False


def _identity(folder: Path) -> tuple[int, int]:
    status = folder.stat()
    return status.st_dev, status.st_ino


def _is_image(name: str) -> bool:
    return suffix(name) in IMAGE_SUFFIXES


def _some(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
