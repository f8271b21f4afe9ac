"""What a conversion writes beside a database: names of its classes, order of its channels."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prefetch._errors.printable import printable_name, printable_path
from prefetch._files.table import format_table, unescape_field

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping

logger = logging.getLogger("prefetch")

CLASSES_FILE: Final = "classes.tsv"
"""A line a class: label, tab, name; in names ``\\t``, ``\\n``, ``\\r`` and ``\\\\`` are escapes."""

CHANNELS_FILE: Final = "channels.txt"
"""One word, ``rgb`` or ``bgr``: the order in which raw records hold three channels."""

_MOST_BYTES: Final = 1 << 24
_MOST_CLASSES: Final = 1_000_000
_INT32: Final = range(-(1 << 31), 1 << 31)
_CLASS: Final = re.compile(rb"([+-]?[0-9]{1,10})\t(.+)")


def class_names(databases: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a source's classes by label; none where no database has any.

    A label that has no name between others is named by its number. A list that cannot be used is
    warned of, and left out.

    Args:
        databases: Paths of the databases, which have the same classes or say nothing of them.
    """
    named = _named(databases)
    if len(set(named.values())) > 1:
        logger.warning(
            "the databases do not agree on the names of their classes, and so there are no "
            "class_names: %s",
            explain_difference(named) or "some have more of them",
        )
        return ()
    return next(iter(named.values()), ())


def classes_differ(databases: Iterable[str]) -> str | None:
    """Say which label is not the same class in all databases; None where none is known to be."""
    return explain_difference(_named(databases))


def explain_difference(named: Mapping[str, tuple[str, ...]]) -> str | None:
    """Say which is the first label that two databases name otherwise.

    Args:
        named: The names of the classes by label, by database.
    """
    firsts: dict[int, tuple[str, str]] = {}
    for path, names in named.items():
        for label, name in enumerate(names):
            first, other = firsts.setdefault(label, (name, path))
            if first != name:
                return (
                    f"label {label} is {printable_name(first)} in {printable_path(other)} and "
                    f"{printable_name(name)} in {printable_path(path)}"
                )
    return None


def _named(databases: Iterable[str]) -> dict[str, tuple[str, ...]]:
    return {path: names for path in databases if (names := _names_beside(path))}


def raw_channel_order(database: str | os.PathLike[str]) -> str | None:
    """Return ``rgb`` or ``bgr`` where it is known beside a database, else None."""
    word = (_read(sidecar(database, CHANNELS_FILE)) or b"").strip()
    return word.decode() if word in {b"rgb", b"bgr"} else None


def parse_classes(
    content: bytes, *, labels: range = _INT32, may_be_names: bool = False
) -> dict[int, str]:
    """Return the name of each class, of the content of `CLASSES_FILE`.

    Args:
        content: Of the file. Names may be of bytes that are no UTF-8.
        labels: Which labels there may be.
        may_be_names: Take a list of names alone too, whose labels count from 0.

    Raises:
        ValueError: A line is no class of one of these labels, or a label has two names.
    """
    lines = content.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = [line.removesuffix(b"\r") for line in lines if line.strip()]
    found = [_CLASS.fullmatch(line) for line in lines]
    if may_be_names and not any(found):
        return {label: _name(line) for label, line in enumerate(lines)}
    names: dict[int, str] = {}
    for number, line in enumerate(found, start=1):
        if line is None or int(line[1]) not in labels:
            raise ValueError(
                f"line {number}: expected a label from {labels[0]} to {labels[-1]}, a tab and a "
                f"name{', as in other lines' if may_be_names else ''}"
            )
        label, name = int(line[1]), _name(line[2])
        if names.setdefault(label, name) != name:
            raise ValueError(f"line {number}: the label {label} has two names")
    return names


def format_classes(names: Mapping[int, str]) -> str:
    """Return the content of `CLASSES_FILE`."""
    return format_table(sorted(names.items()))


def sidecar(database: str | os.PathLike[str], name: str) -> Path:
    """Return the path of a file beside a database, which may be a folder or its data file."""
    path = Path(database)
    return (path if path.is_dir() else path.parent) / name


def _names_beside(database: str) -> tuple[str, ...]:
    path = sidecar(database, CLASSES_FILE)
    try:
        # A feed's names are by label, and none is below 0.
        names = parse_classes(_read(path) or b"", labels=range(_MOST_CLASSES))
    except ValueError as error:
        logger.warning("%s, %s; there are no class_names", printable_path(str(path)), error)
        return ()
    return tuple(names.get(label, str(label)) for label in range(max(names, default=-1) + 1))


def _name(field: bytes) -> str:
    return unescape_field(field.decode("utf-8", "surrogateescape"))


def _read(path: Path) -> bytes | None:
    """Return a small file; None where there is none that can be read."""
    try:
        if not path.is_file() or path.stat().st_size > _MOST_BYTES:
            return None
        return path.read_bytes()
    except OSError:
        return None
