"""What the commands write: reports to the output; progress, warnings and errors beside it."""

from __future__ import annotations

import json
import logging
import math
import sys
import time
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TextIO

from prefetch._errors.classes import PrefetchWarning
from prefetch._errors.printable import printable_line
from prefetch.cli.streams import tell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rich.console import Console
    from rich.progress import Progress, TaskID

_PATIENCE_S: Final = 1.0
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


def print_fields(fields: Iterable[tuple[str, str]]) -> None:
    """Print names and values in two columns; a name is empty where the one before it goes on."""
    rows = [(name, printable_line(value)) for name, value in fields]
    if not sys.stdout.isatty():
        width = max(len(name) for name, _ in rows)
        sys.stdout.write("".join(f"{name:<{width}}  {value}\n" for name, value in rows))
        return
    from rich.table import Table  # noqa: PLC0415 - as above
    from rich.text import Text  # noqa: PLC0415 - as above

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(Text(name, style="bold"), value)
    output().print(table)


def print_json(report: dict[str, Any]) -> None:
    r"""Print a report for programs.

    Numbers that are not finite, which JSON has not, become null, and bytes of names that are no
    UTF-8 ``\xf6``.
    """
    text = json.dumps(_for_json(report), indent=2, ensure_ascii=False, allow_nan=False)
    # JSON's own escapes are for ASCII; other characters steer a terminal too, such as U+009B.
    lines = (_escaped_for_json(line) for line in text.split("\n"))
    sys.stdout.write("\n".join([*lines, ""]))


def _escaped_for_json(line: str) -> str:
    if line.isprintable():
        return line
    escapes = {"\x7f": "\\u007f"}
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


def shown_bytes(nbytes: int) -> str:
    """Return a size in plain digits, and in a unit where that is easier to read."""
    for power, unit in ((3, "GB"), (2, "MB")):
        if nbytes >= 1000**power:
            return f"{nbytes} bytes ({nbytes / 1000**power:.1f} {unit})"
    return f"{nbytes} bytes"


class Patience:
    """Shows how far something is, once it has taken a second, where somebody is watching.

    Args:
        clock: Tells the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Take notice of how far it is."""
        if self._bar is None:
            if self._clock() - self._began < _PATIENCE_S or not sys.stderr.isatty():
                return
            from rich.progress import Progress  # noqa: PLC0415 - as above

            self._bar = Progress(console=messages(), transient=True)
            self._bar.start()
            self._task = self._bar.add_task(what, total=total)
        if self._task is not None:
            self._bar.update(self._task, description=what, completed=done, total=total)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def collecting_warnings() -> Iterator[list[str]]:
    """Collect what the packages warn of, for the time of a block; the rest is told as before."""
    collected: list[str] = []

    def collect(level: str, message: str) -> None:
        if level == "warning":
            collected.append(message)
        else:
            tell(level, message)

    # The level is that of the block around this one: what it shows is still shown.
    with listening(collect, level=logging.getLogger("prefetch").getEffectiveLevel()):
        yield collected


class _Listener(logging.Handler):
    """Hands what the packages log on, as a line."""

    def __init__(self, level: int, tell: Callable[[str, str], None]) -> None:
        super().__init__(level)
        self._tell = tell

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.levelname.lower(), record.getMessage())


@contextmanager
def listening(tell: Callable[[str, str], None], *, level: int = logging.WARNING) -> Iterator[None]:
    """Hand on what the packages log, and what they warn of, for the time of a block.

    Args:
        tell: Called with the level, such as ``warning``, and the message.
        level: The least level of what is handed on.
    """
    listener = _Listener(level, tell)
    loggers = [logging.getLogger(name) for name in ("memory", "prefetch")]
    before = [(logger, logger.level, logger.propagate, logger.handlers) for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("always", PrefetchWarning)
        usual = warnings.showwarning

        def show(
            message: Warning | str, category: type[Warning], *where: Any, **further: Any
        ) -> None:
            if issubclass(category, PrefetchWarning):
                tell("warning", str(message))
            else:
                usual(message, category, *where, **further)

        warnings.showwarning = show
        for logger in loggers:
            # Nobody else is told: not the block around this one, nor the root's handlers.
            logger.handlers, logger.propagate = [listener], False
            logger.setLevel(level)
        try:
            yield
        finally:
            for logger, old_level, propagate, handlers in before:
                logger.handlers, logger.propagate = handlers, propagate
                logger.setLevel(old_level)
