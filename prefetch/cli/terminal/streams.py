"""The standard streams of a command: closed ones, full disks, readers that leave early."""

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
"""Exit status where a pipe was closed too early: that of a program ended by SIGPIPE."""


class OutputLostError(OSError):
    """Raised once, where the standard output cannot be written."""


class _Output(io.FileIO):
    """The standard output; after the first failure all further output is dropped.

    Attributes:
        lost: The first failure; None while there was none.
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
    """The standard error; what cannot be written is dropped, and changes no exit status."""

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
    """Replace the standard streams by ones that survive failures, while a block runs."""
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
        """Flush the standard output."""
        if sys.stdout is not None:
            sys.stdout.flush()

    def status(self, status: int) -> int:
        """Flush the output; return the exit status of the command, given what it would be else."""
        with contextlib.suppress(OutputLostError):
            self.flush()
        lost = None if self.raw is None else self.raw.lost
        if lost is None:
            return status
        if lost.errno == errno.EPIPE:
            return BROKEN_PIPE
        print_message("error", f"the standard output cannot be written: {lost.strerror or lost}")
        return 1


def print_message(level: str, message: str) -> None:
    """Write a message to the standard error; names in it cannot break its line."""
    sys.stderr.write(f"{level}: {printable_message(message)}\n")
    sys.stderr.flush()
