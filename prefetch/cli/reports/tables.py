"""The list of unreadable images that a conversion leaves: number, path and reason."""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Final

import typer

from prefetch._files.output import write_whole
from prefetch._files.table import format_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from prefetch._tools.convert import Unreadable

_UNREADABLE: Final = re.compile(rb"[0-9]+\t[^\t\n]+\t[^\t\n]+\n")


def write_unreadable(path: Path, unreadable: Sequence[Unreadable]) -> None:
    """Write the list of images that cannot be read.

    Raises:
        OutputError: It cannot be written.
    """
    text = format_table((one.index, one.path, one.reason) for one in unreadable)
    write_whole(path, text.encode("utf-8", "surrogateescape"))


def check_unreadable(path: Path) -> None:
    """Refuse to write the list over anything but such a list.

    Raises:
        BadParameter: Something else is there.
    """
    if not _may_be_replaced(path):
        raise typer.BadParameter(
            f"--report: {path} is there already, and lists no unreadable images; name another file"
        )


def remove_unreadable(path: Path) -> None:
    """Remove an earlier process's list, once no image in it is unreadable any more."""
    if path.is_file() and not path.is_symlink() and _may_be_replaced(path):
        path.unlink()


def _may_be_replaced(path: Path) -> bool:
    try:
        mode = path.stat().st_mode
    except OSError:  # there is nothing
        return True
    if not stat.S_ISREG(mode):
        return not stat.S_ISDIR(mode)  # such as /dev/null
    try:
        with path.open("rb") as file:
            line = file.readline(1 << 20)
    except OSError:
        return False
    return not line or _UNREADABLE.fullmatch(line) is not None
