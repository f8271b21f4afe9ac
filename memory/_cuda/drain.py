"""The release of what a stream's queued work holds, as soon as it has run, on a waiter's thread.

A lease that a copy holds has to come back even if the stream is never used again, as when all of a
ring's slots wait for just that.
"""

from __future__ import annotations

from time import sleep
from typing import TYPE_CHECKING

from memory._cuda.runtime import ASK_AGAIN_S, is_capture_error, runtime
from memory._errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory._cuda.context import CudaContext
    from memory._cuda.keepalive import KeepAlive


class Drain:
    """A stream's work until there is no more, as something that a waiter waits for.

    Args:
        context: The GPU.
        keep_alive: What the work holds.
        cover: Records an event behind the work that none covers; returns False, and ends the drain,
            if there is nothing. A method of the stream's state, which is thus held meanwhile.
    """

    __slots__ = ("_context", "_cover", "_keep_alive")

    def __init__(
        self, context: CudaContext, keep_alive: KeepAlive, cover: Callable[[], bool]
    ) -> None:
        self._context = context
        self._keep_alive = keep_alive
        self._cover = cover

    def done(self) -> bool:
        """Return whether there is nothing left to wait for."""
        return self._keep_alive.is_empty

    def synchronize(self) -> None:
        """Block until there is nothing left to wait for, releasing what has run."""
        while True:
            try:
                if not self._release_next():
                    return
            except (DeviceError, runtime.CUDARuntimeError) as error:
                if not is_capture_error(error) and self._context.is_lost():
                    # Nothing will run any more. The next turn finds nothing, and returns.
                    self._keep_alive.abandon()
                else:
                    # Refused for the length of a capture, which says nothing of the work.
                    sleep(ASK_AGAIN_S)

    def _release_next(self) -> bool:
        """Wait for the oldest segment and release it; return False if there is none."""
        oldest = self._keep_alive.oldest()
        if oldest is None:
            return self._cover()
        number, token = oldest
        runtime.eventSynchronize(token.handle)
        self._keep_alive.release(number)
        return True
