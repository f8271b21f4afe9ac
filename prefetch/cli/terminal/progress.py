"""A progress bar for what takes longer than a second."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Final, Self

from prefetch.cli.terminal.console import messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress, TaskID

_DELAY_S: Final = 1.0


class DelayedProgress:
    """A progress bar that appears after a second, and only on a terminal.

    Args:
        clock: Returns the time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __call__(self, what: str, done: int, total: int) -> None:
        """Update the bar."""
        if self._bar is None:
            if self._clock() - self._began < _DELAY_S or not sys.stderr.isatty():
                return
            from rich.progress import Progress  # noqa: PLC0415 - 0.1 s, and few runs show a bar

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
