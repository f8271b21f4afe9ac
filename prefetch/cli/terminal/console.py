"""rich's consoles: on the standard output for reports, on the standard error for all else."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final, TextIO

if TYPE_CHECKING:
    from rich.console import Console

_UNBROKEN: Final = 10_000  # columns; a report that a program reads has no line breaks in a path


def output() -> Console:
    """Return a console on the standard output."""
    return _console(sys.stdout)


def messages() -> Console:
    """Return a console on the standard error."""
    return _console(sys.stderr)


def _console(file: TextIO) -> Console:
    from rich.console import Console  # noqa: PLC0415 - 0.1 s, and --json does not need it

    width = None if file.isatty() else _UNBROKEN
    return Console(file=file, width=width, highlight=False, markup=False, emoji=False)
