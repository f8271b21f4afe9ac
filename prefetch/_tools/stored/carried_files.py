"""Files that go from databases to those made of them: names of classes, order of channels."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from prefetch._errors.printable import printable_name
from prefetch._files.input import read_regular
from prefetch._source.sidecar_files import (
    CHANNELS_FILE,
    CLASSES_FILE,
    format_classes,
    parse_classes,
    raw_channel_order,
    sidecar,
)
from prefetch._tools.convert.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


def read_class_names(database: Path) -> dict[int, str]:
    """Return the class of each label, by what lies beside a database; empty where nothing does.

    Raises:
        InputError: The file is no such table.
        OSError: It cannot be read.
    """
    path = sidecar(database, CLASSES_FILE)
    return parse_class_names(path) if path.is_file() else {}


def parse_class_names(path: Path) -> dict[int, str]:
    """Return the class of each label; also of a list of names alone, whose labels count from 0.

    Raises:
        InputError: The file is no such table, or a label has two names.
        OSError: It cannot be read.
    """
    content = read_regular(path)
    try:
        return parse_classes(content, may_be_names=True)
    except ValueError as error:
        raise InputError(os.fspath(path.absolute()), str(error)) from None


def carried_files(
    databases: Sequence[Path],
    *,
    class_names: Mapping[int, str] | None = None,
    has_image_files: bool = False,
) -> dict[str, str]:
    """Return the files that go beside a database made of others: their names and contents.

    Args:
        databases: What it is made of.
        class_names: The names of its labels; None for those of the databases.
        has_image_files: Whether all its records become image files, which have their own order of
            channels.

    Raises:
        InputError: The databases contradict each other, or a file is no such table.
        OSError: A file cannot be read.
    """
    names = _join_class_names(databases) if class_names is None else class_names
    order = None if has_image_files else _join_orders(databases)
    files = {CLASSES_FILE: format_classes(names)} if names else {}
    return files if order is None else {**files, CHANNELS_FILE: f"{order}\n"}


def _join_class_names(databases: Sequence[Path]) -> dict[int, str]:
    """Return the classes of several databases.

    Raises:
        InputError: A label is of one class here and of another there.
    """
    joined: dict[int, str] = {}
    first: dict[int, Path] = {}
    for path in databases:
        for label, name in read_class_names(path).items():
            other = joined.setdefault(label, name)
            if other != name:
                raise InputError(
                    str(path.absolute()),
                    f"its label {label} is {printable_name(name)}, and that of "
                    f"{first[label].absolute()} is {printable_name(other)}; make them agree with "
                    f"ringfeed labels DB NEW --set",
                )
            first.setdefault(label, path)
    return joined


def _join_orders(databases: Sequence[Path]) -> str | None:
    """Return the order of channels of several databases; None where one does not say it.

    Raises:
        InputError: One holds RGB and another BGR, as all do that do not say it.
    """
    orders = {path: raw_channel_order(path) for path in databases}
    others = [path for path, order in orders.items() if order != "rgb"]
    if others and "rgb" in orders.values():
        first = next(path for path, order in orders.items() if order == "rgb")
        raise InputError(
            str(first.absolute()),
            f"its raw records hold RGB, as {CHANNELS_FILE} beside it says, and those of "
            f"{others[0].absolute()} are taken for BGR; convert one of them anew, arrays with or "
            f"without --reverse-channels, or, where both hold RGB or have no colours, write rgb "
            f"into {sidecar(others[0].absolute(), CHANNELS_FILE)}",
        )
    return None if None in orders.values() else next(iter(orders.values()))
