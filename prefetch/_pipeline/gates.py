"""What wakes the consumers: each waits at a gate of its own, and news opens all of them.

No condition: Ctrl-C within a condition's wait may come between its letting the lock go and its
taking it again, and then the ``with`` around it lets go of a lock that is not held, or is another
thread's. A gate is waited at without any lock. A wait that is interrupted leaves a gate that is
opened later, for nobody.

No lock either: close() opens the gates from wherever it is called. Who waits makes his gate first
and then looks whether there is news already; who has news first says so and then opens the gates.
One of the two sees the other.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Gates:
    """The gates and futures of those who wait. Thread-safe, without a lock."""

    def __init__(self) -> None:
        self._waiting: dict[object, Callable[[], object]] = {}

    def gate(self) -> threading.Lock:
        """Return a gate that the next `notify_all` opens."""
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
        """Forget a gate or a future that nobody waits for any more."""
        self._waiting.pop(waiter, None)

    def notify_all(self) -> None:
        """Open every gate and resolve every future."""
        while True:
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


def _resolve_soon(waiter: asyncio.Future[None]) -> None:
    """Resolve a future of an event loop, from any thread."""
    with suppress(RuntimeError):  # the loop is closed, perhaps since a moment ago
        waiter.get_loop().call_soon_threadsafe(_resolve, waiter)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
