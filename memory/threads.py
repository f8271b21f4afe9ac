"""Starting threads where nothing can interrupt it.

Python runs signal handlers between two instructions of the main thread, so that Ctrl-C, or a
handler that raises, may strike in the middle of ``Thread.start``: before there is a thread, which
then stands in ``threading.enumerate()`` for ever; when there is one, which nothing refers to; or
while a condition's lock is released, which comes out as a RuntimeError. Here another thread, which
no signal reaches, calls ``start``. Making that one is a single call of C: it has happened or not.

A thread that finds no memory for its first steps dies without a word, and ``Thread.start`` then
waits for it for ever. Here the wait has a limit.
"""

from __future__ import annotations

import _thread
import threading
from typing import TYPE_CHECKING, Final

from memory._errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ALLOW_MORE: Final = "allow the process more threads (ulimit -u) or address space (ulimit -v)"
"""What to try where the system gives no further thread."""

LIMIT_S = 20.0
"""How long a new thread is waited for before it is taken for dead."""


def start_for_device(start: ThreadStart, *, device: str, what: str) -> None:
    """Start threads for a device.

    Raises:
        DeviceError: The system gives none.
    """
    try:
        start.run()
    except RuntimeError as error:
        raise DeviceError(
            device,
            operation=f"starting {what}",
            reason=f"{error}; close streams that are no longer needed, or {ALLOW_MORE}",
        ) from error


class ThreadStart:
    """One attempt to start threads, in their order.

    Args:
        threads: Threads that were not started yet.

    Attributes:
        num_started: How many of them were started; final after ``settle``.

    Example:
        >>> thread = threading.Thread(target=print, args=("it runs",))
        >>> ThreadStart([thread]).run()
        it runs
        >>> thread.join()
    """

    def __init__(self, threads: Sequence[threading.Thread]) -> None:
        self.num_started = 0
        self._threads = threads
        self._error: BaseException | None = None
        self._made: list[int] = []
        self._when_over: Callable[[], object] | None = None
        # A lock and no Event, in whose wait Ctrl-C may have a lock released that is not held.
        self._over = threading.Lock()
        self._over.acquire()
        self._is_certain = False

    def run(self) -> None:
        """Start the threads, and wait until they have been; only once.

        Whatever interrupts it interrupts the wait alone; call ``settle`` then.

        Raises:
            RuntimeError: The system gives no further thread, or one that was never heard of; those
                before it run.
        """
        error = self.begin()
        if error is None:
            self.settle()
            error = self.take_error()
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame

    @property
    def has_begun(self) -> bool:
        """Whether there is a thread that starts them, or has."""
        return bool(self._made)

    def begin(self, when_over: Callable[[], object] | None = None) -> BaseException | None:
        """Start the threads without waiting until they have been; once, instead of ``run``.

        Args:
            when_over: Called on another thread when it is certain, if it ever is; ``take_error``
                then says whether they run. Who does not wait for it has to ``give_up`` after
                `LIMIT_S`.

        Returns:
            A RuntimeError if the system gives no further thread at all.
        """
        self._when_over = when_over
        try:
            # Called and noted in one call of C: an interrupted run() knows what it has made.
            self._made.extend(map(_thread.start_new_thread, (self._start_all,), ((),)))
        except RuntimeError as error:
            trace = error.__traceback__
            if trace is not None and trace.tb_next is not None:
                raise  # not the system's: out of a signal handler
            return error.with_traceback(None)
        return None

    def take_error(self) -> BaseException | None:
        """Return what ``run`` raises, once; never waits."""
        error, self._error = self._error, None
        return error

    def settle(self) -> None:
        """Wait until it is certain which of the threads run, also after an interrupted ``run``.

        One that has not said so after 20 s is taken for dead; should it live, it runs later.
        """
        if not self._made or self._is_certain:
            return
        if self._over.acquire(timeout=LIMIT_S):
            self._over.release()
        else:
            self.give_up()

    def give_up(self) -> None:
        """Take a thread that has not said that it runs for dead; never waits."""
        if not self._is_certain:
            self._is_certain = True
            self._error = RuntimeError(
                f"a new thread was not heard of for {LIMIT_S:g} s: it died at once, most likely "
                f"for want of memory"
            )

    def has_started(self) -> bool:
        """Return whether any of the threads runs or has run, once that is certain."""
        self.settle()
        return self.num_started > 0

    def _start_all(self) -> None:
        try:
            for thread in self._threads:
                thread.start()
                self.num_started += 1
        except BaseException as error:  # noqa: BLE001 - raised by run()
            self._error = error
        finally:
            self._threads = ()
            was_given_up, self._is_certain = self._is_certain, True
            self._over.release()
            if self._when_over is not None and not was_given_up:
                self._when_over()
