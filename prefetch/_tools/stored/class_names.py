r"""The names of classes beside a database: ``classes.tsv``, a label, a tab and a name a line.

``\t``, ``\n``, ``\r`` and ``\\`` in a name mean a tab, a line feed, a carriage return and a
backslash.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from prefetch._errors.printable import printable_name
from prefetch._files.input import read_regular
from prefetch._tools.convert.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

CLASSES_FILE: Final = "classes.tsv"
_LINE: Final = re.compile(rb"([+-]?[0-9]{1,10})\t(.+)")
_ESCAPE: Final = re.compile(r"\\([\\tnr])")
_MEANT: Final = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
_ESCAPES: Final = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


def read_class_names(database: Path) -> dict[int, str]:
    """Return the class of each label, by what lies beside a database; empty where nothing does.

    Raises:
        InputError: The file is no such table.
        OSError: It cannot be read.
    """
    folder = database if database.is_dir() else database.parent
    path = folder / CLASSES_FILE
    return parse_class_names(path) if path.is_file() else {}


def parse_class_names(path: Path) -> dict[int, str]:
    """Return the class of each label; also of a list of names alone, whose labels count from 0.

    Raises:
        InputError: The file is no such table, or a label has two names.
        OSError: It cannot be read.
    """
    lines = read_regular(path).removeprefix(b"\xef\xbb\xbf").split(b"\n")
    lines = [line.removesuffix(b"\r") for line in lines if line.strip()]
    found = [_LINE.fullmatch(line) for line in lines]
    if not any(found):
        return {label: _meant(line) for label, line in enumerate(lines)}
    names: dict[int, str] = {}
    for number, line in enumerate(found, 1):
        if line is None:
            raise InputError(
                os.fspath(path.absolute()),
                f"line {number}: expected a label, a tab and a name, as in the lines before it",
            )
        label = int(line[1])
        if names.setdefault(label, _meant(line[2])) != _meant(line[2]):
            raise InputError(
                os.fspath(path.absolute()), f"line {number}: the label {label} has two names"
            )
    return names


def class_table(names: Mapping[int, str]) -> str:
    """Return the content of `CLASSES_FILE`."""
    return "".join(
        f"{label}\t{name.translate(_ESCAPES)}\n" for label, name in sorted(names.items())
    )


def join_class_names(of_databases: Mapping[str, Mapping[int, str]]) -> dict[int, str]:
    """Return the classes of several databases.

    Args:
        of_databases: Those of each, by its path.

    Raises:
        InputError: A label is of one class here and of another there.
    """
    joined: dict[int, str] = {}
    first: dict[int, str] = {}
    for path, names in of_databases.items():
        for label, name in names.items():
            other = joined.setdefault(label, name)
            if other != name:
                raise InputError(
                    path,
                    f"its label {label} is {printable_name(name)}, and that of {first[label]} is "
                    f"{printable_name(other)}; make them agree with ringfeed labels DB NEW --set",
                )
            first.setdefault(label, path)
    return joined


def _meant(line: bytes) -> str:
    return _ESCAPE.sub(lambda found: _MEANT[found[1]], os.fsdecode(line))
