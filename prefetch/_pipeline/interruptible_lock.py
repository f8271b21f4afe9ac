"""A lock for threads that signal handlers and finalizers may interrupt."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, TypeVar

from prefetch._errors.classes import FeedBusyError

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


class InterruptibleLock:
    """A lock that knows its thread, so that a call within another one's block is refused.

    Attributes:
        lock: The lock itself, for readers, which nothing interrupts.
    """

    __slots__ = ("is_mine", "lock")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_mine: Callable[[], bool] = self.lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001 - the one way to ask
        """Whether this thread has it."""

    def run(self, step: Callable[..., _Result], *arguments: Any) -> _Result:
        """Do something with the lock.

        Raises:
            FeedBusyError: This thread has the lock already.
        """
        self.refuse_nested()
        try:
            with self.lock:
                return step(*arguments)
        finally:
            self.release_if_mine()

    def refuse_nested(self) -> None:
        """Refuse a call on a thread that has the lock.

        Raises:
            FeedBusyError: It has.
        """
        if self.is_mine():
            raise FeedBusyError(
                "next() was called by a signal handler, or by a finalizer, within another call of "
                "the feed on the same thread; call only close(), stats() and state_dict() there"
            )

    def release_if_mine(self) -> None:
        """Release the lock behind its block, if an exception has kept that from doing so."""
        # A tracer may raise between the block's last step and its end; no signal handler can.
        if self.is_mine():
            self.lock.release()
