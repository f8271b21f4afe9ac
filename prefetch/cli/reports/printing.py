"""Printing a report to the standard output: as two columns for people, as JSON for programs."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any

from prefetch._errors.printable import printable_line
from prefetch.cli.terminal.console import output

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def rows(name: str, values: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield a field of several lines: its name stands before the first of them only."""
    for value in values:
        yield name, value
        name = ""


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns; an empty name continues the field before it."""
    lines = [(name, printable_line(value)) for name, value in fields]
    if not sys.stdout.isatty():
        width = max(len(name) for name, _ in lines)
        sys.stdout.write("".join(f"{name:<{width}}  {value}\n" for name, value in lines))
        return
    from rich.table import Table  # noqa: PLC0415 - 0.1 s, and --json does not need it
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in lines:
        table.add_row(Text(name, style="bold"), value)
    output().print(table)


def print_json(report: dict[str, Any]) -> None:
    r"""Print a report for programs.

    Numbers that are not finite, which JSON has not, become null, and bytes of names that are no
    UTF-8 ``\xf6``.
    """
    text = json.dumps(_for_json(report), indent=2, ensure_ascii=False, allow_nan=False)
    # JSON's own escapes are for ASCII; other characters steer a terminal too, such as U+009B.
    lines = (_escape_for_json(line) for line in text.split("\n"))
    sys.stdout.write("\n".join([*lines, ""]))


def _escape_for_json(line: str) -> str:
    if line.isprintable():
        return line
    escapes = {"\x7f": "\\u007f"}  # which json.dumps leaves as it is
    return "".join(
        char if char.isprintable() else escapes.get(char, json.dumps(char)[1:-1]) for char in line
    )


def _for_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {_for_json(name): _for_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    if isinstance(value, str) and not value.isascii():
        return value.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
    return None if isinstance(value, float) and not math.isfinite(value) else value


def printable_size(nbytes: int) -> str:
    """Return a size in plain digits, and in a unit where that is easier to read."""
    for power, unit in ((3, "GB"), (2, "MB")):
        if nbytes >= 1000**power:
            return f"{nbytes} bytes ({nbytes / 1000**power:.1f} {unit})"
    return f"{nbytes} bytes"
