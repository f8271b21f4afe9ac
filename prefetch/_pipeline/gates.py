"""What wakes the consumers: each waits at a gate of its own, and `Gates.notify_all` opens all.

No wake-up is lost: a consumer makes its gate first and then polls; a thread that has something for
it notes that first and then opens the gates. One of the two sees the other.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Gates:
    """One-shot gates on which consumers wait; `notify_all` opens them all.

    Thread-safe, without a lock.
    """

    def __init__(self) -> None:
        self._waiting: dict[object, Callable[[], object]] = {}

    def gate(self) -> threading.Lock:
        """Return a gate that the next `notify_all` opens."""
        # No condition: Ctrl-C may come between its releasing the lock and its taking it again, and
        # the ``with`` around it then releases a lock that is not held, or is another thread's. A
        # gate is waited at without any lock; one whose wait is interrupted is opened later, unused.
        gate = threading.Lock()
        gate.acquire()
        self._waiting[gate] = gate.release
        return gate

    def future(self, loop: asyncio.AbstractEventLoop) -> asyncio.Future[None]:
        """Return a future of an event loop that the next `notify_all` resolves."""
        future: asyncio.Future[None] = loop.create_future()
        self._waiting[future] = partial(_resolve_soon, future)
        return future

    def discard(self, waiter: object) -> None:
        """Forget a gate or a future that is not waited for any more."""
        self._waiting.pop(waiter, None)

    def notify_all(self) -> None:
        """Open every gate and resolve every future."""
        # Without a lock: close() comes here from signal handlers and finalizers.
        while self._waiting:
            try:
                _, wake = self._waiting.popitem()  # atomic: no two callers get the same one
            except KeyError:
                return
            wake()

    def wait(self, gate: threading.Lock, timeout_s: float | None) -> bool:
        """Wait until a gate is open.

        Args:
            gate: From `gate`.
            timeout_s: Seconds after which to give up; None for no limit.

        Returns:
            Whether it was opened in time.
        """
        if timeout_s is None:
            return gate.acquire()
        return gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))

    async def wait_async(self, future: asyncio.Future[None], timeout_s: float | None) -> bool:
        """Wait until a future of `future` is resolved, as `wait` does."""
        try:
            done, _ = await asyncio.wait([future], timeout=timeout_s)
            return bool(done)
        finally:
            self.discard(future)


def _resolve_soon(waiter: asyncio.Future[None]) -> None:
    """Resolve a future of an event loop, from any thread."""
    with suppress(RuntimeError):  # the loop may have been closed a moment ago
        waiter.get_loop().call_soon_threadsafe(_resolve, waiter)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
