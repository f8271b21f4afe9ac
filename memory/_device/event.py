"""Events: what one is, and the one that host code lets pass.

The worker of a simulated stream lets one pass for each ``record()``; a test, to release a stream
that it holds. A `HostEvent` has no lock, so any thread may ask it, wait for it and let it pass,
within a garbage collection as well.
"""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from memory._errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

_logger = logging.getLogger("memory")

_num_forks = 0


def _count_fork() -> None:
    global _num_forks  # noqa: PLW0603 - of the process
    _num_forks += 1


os.register_at_fork(after_in_child=_count_fork)


@runtime_checkable
class Event(Protocol):
    """A point in a stream's work, which passes once all work given before it has run."""

    def done(self) -> bool:
        """Return whether the event has passed; one whose work failed has. Never blocks."""
        ...

    def synchronize(self) -> None:
        """Block the calling thread until the event has passed.

        Raises:
            DeviceError: If work before the event failed. Every call raises it, on any thread.
        """
        ...

    def notify(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called exactly once, when the event has passed or failed.

        It is called at once, on the caller's thread, if that is already so; else on any thread,
        which it must not block and on which it must make no device call. What it raises is
        logged and goes no further.

        Args:
            callback: Called without arguments.
        """
        ...


class Failure:
    """What went wrong on a stream; raised as often as it is asked for.

    An exception object raised twice would gather tracebacks, and with them the buffers that its
    frames hold: so each time a new one is made.

    Attributes:
        seen: Whether it was ever raised.
    """

    __slots__ = ("_cause", "_device", "_operation", "_reason", "seen")

    def __init__(self, device: str, *, operation: str, error: BaseException) -> None:
        self.seen = False
        if isinstance(error, DeviceError):
            # Handed on from another stream: named where it began.
            self._device, self._operation = error.device, error.operation
            self._reason = error.reason
            self._cause = error.__cause__
        else:
            self._device, self._operation = device, operation
            self._reason = f"{type(error).__name__}: {error}"
            self._cause = error.with_traceback(None)

    def error(self) -> DeviceError:
        """Return a new exception that says what happened, with its cause."""
        self.seen = True
        error = DeviceError(self._device, operation=self._operation, reason=self._reason)
        error.__cause__ = self._cause
        return error

    def __str__(self) -> str:
        return f"device {self._device!r}: {self._operation} failed: {self._reason}"


def held_too_long(limit_s: float | None) -> TimeoutError:
    """Return the error of a stream that was held until its limit."""
    return TimeoutError(
        f"held for {limit_s} s and not released; the code that is to release the stream probably "
        f"waits for it"
    )


class HostEvent:
    """An event that passes when ``complete`` is called. See ``Event`` for the rest.

    Example:
        >>> event = HostEvent()
        >>> event.notify(lambda: print("passed"))
        >>> event.complete()
        passed
        >>> event.done()
        True
    """

    __slots__ = ("__weakref__", "_callbacks", "_failure", "_forks", "_passed")

    def __init__(self) -> None:
        self._forks = _num_forks
        self._callbacks: dict[object, Callable[[], None]] = {}
        self._failure: Failure | None = None
        self._passed = False

    def complete(self, failure: Failure | None = None) -> None:
        """Let the event pass, and run the callbacks on this thread. Once passed, it stays so.

        Args:
            failure: What went wrong before it; None if nothing did.
        """
        if not self._passed:
            self._failure = failure
            self._passed = True
        # Whoever takes a callback out of the dictionary, which is atomic, runs it: so it runs once,
        # and no wake-up is lost: either this loop finds it, or notify() finds the event passed.
        while True:
            try:
                _, callback = self._callbacks.popitem()
            except KeyError:
                return
            try:
                callback()
            except BaseException:
                # Whatever it is, the other callbacks have threads waiting behind them.
                _logger.exception("a callback of an event failed")

    def done(self) -> bool:
        """Return whether the event has passed. Never blocks."""
        return self._passed

    def synchronize(self) -> None:
        """Block until the event has passed.

        Raises:
            DeviceError: If work before it failed, or it had not passed before a fork.
        """
        self.wait_for(None)
        if self._failure is not None:
            raise self._failure.error()

    def wait_for(self, timeout_s: float | None) -> bool:
        """Block until the event has passed or the time is over; return whether it has passed.

        Args:
            timeout_s: Seconds; None for no end.

        Raises:
            DeviceError: It had not passed when the process was forked: it never will here.
        """
        if self._passed:
            return True
        if self._forks != _num_forks:
            raise DeviceError(
                "the host",
                operation="waiting for an event",
                reason="it had not passed when the process was forked, and the thread that lets it "
                "pass is the parent's; open the feed, or the device, in the child",
            )
        gate = threading.Lock()
        gate.acquire()
        self.notify(gate.release)
        # A wait that Ctrl-C interrupts leaves a gate, which is opened later without effect.
        return gate.acquire(timeout=-1 if timeout_s is None else timeout_s)

    def notify(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called once, when the event has passed; at once if it has."""
        ticket = object()
        self._callbacks[ticket] = callback
        # Looked at after adding: complete() sets the flag before it takes callbacks out.
        if self._passed and self._callbacks.pop(ticket, None) is not None:
            try:
                callback()
            except Exception:
                _logger.exception("a callback of an event failed")

    def __repr__(self) -> str:
        state = "pending" if not self._passed else "failed" if self._failure else "passed"
        return f"<HostEvent {state}>"
