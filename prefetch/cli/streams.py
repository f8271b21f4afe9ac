"""The standard streams of the command: closed ones, full disks behind them, readers that leave."""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from typing import TYPE_CHECKING, Any

from prefetch._errors.printable import printable_message

if TYPE_CHECKING:
    from collections.abc import Iterator

BROKEN_PIPE = 141
"""Exit status where a pipe was closed too early: that of a program that SIGPIPE ends."""


class OutputLostError(OSError):
    """Raised once, where the standard output cannot be written."""


class _Output(io.FileIO):
    """The standard output; once it is lost, what is still written goes nowhere.

    Attributes:
        lost: Why it cannot be written; None as long as it can.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self.lost: OSError | None = None

    def write(self, content: Any) -> int:
        if self.lost is None:
            try:
                return super().write(content)
            except OSError as error:
                self.lost = error
                raise OutputLostError(error.errno, error.strerror) from None
        return memoryview(content).nbytes


class _Messages(io.FileIO):
    """The standard error; what cannot be written goes nowhere, and changes no exit status."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._is_lost = False

    def write(self, content: Any) -> int:
        if not self._is_lost:
            try:
                return super().write(content)
            except OSError:
                self._is_lost = True
        return memoryview(content).nbytes


@contextlib.contextmanager
def standard_streams() -> Iterator[Streams]:
    """Make the standard streams ready for a command, and as they were afterwards."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # The next file opened, such as a database, would get its number, and whatever a
            # library writes there as a warning.
            os.open(os.devnull, os.O_RDWR)
    output, messages = sys.stdout, sys.stderr
    if messages is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - for good
    elif isinstance(messages, io.TextIOWrapper):
        with contextlib.suppress(OSError):  # one that is in memory, in a test
            sys.stderr = io.TextIOWrapper(
                io.BufferedWriter(_Messages(messages.fileno())),
                encoding=messages.encoding,
                errors="backslashreplace",  # a key may be in any script
                line_buffering=True,
            )
    streams = Streams()
    if isinstance(output, io.TextIOWrapper):
        with contextlib.suppress(OSError):  # one that is in memory, in a test
            streams.raw = _Output(output.fileno())
    if streams.raw is not None:
        output.flush()
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(streams.raw),
            encoding=output.encoding,
            errors="backslashreplace",
            line_buffering=output.isatty(),
        )
    try:
        yield streams
    finally:
        with contextlib.suppress(OutputLostError):
            streams.flush()
        sys.stdout = output
        if messages is not None:
            sys.stderr.flush()
            sys.stderr = messages


class Streams:
    """The standard streams of one command."""

    def __init__(self) -> None:
        self.raw: _Output | None = None

    @property
    def is_closed(self) -> bool:
        """Whether there is no standard output."""
        return sys.stdout is None

    def flush(self) -> None:
        """Write out what is still to be written."""
        if sys.stdout is not None:
            sys.stdout.flush()

    def status(self, status: int) -> int:
        """Write out what is still to be written; return the exit status that this comes to."""
        with contextlib.suppress(OutputLostError):
            self.flush()
        lost = None if self.raw is None else self.raw.lost
        if lost is None:
            return status
        if lost.errno == errno.EPIPE:
            return BROKEN_PIPE
        tell("error", f"the standard output cannot be written: {lost.strerror or lost}")
        return 1


def tell(level: str, message: str) -> None:
    """Write a message beside the output, in one line where it is one; to nobody if nobody reads."""
    sys.stderr.write(f"{level}: {printable_message(message)}\n")
    sys.stderr.flush()
