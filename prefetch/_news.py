"""What wakes the consumers: each waits at a gate of its own, and news opens all of them.

No condition: Ctrl-C within a condition's wait may come between its letting the lock go and its
taking it again, and then the ``with`` around it lets go of a lock that is not held, or is another
thread's. A gate is waited at without any lock. A wait that is interrupted leaves a gate that is
opened later, for nobody.
"""

from __future__ import annotations

import threading


class News:
    """The gates of those who wait. To be used with the prefetcher's lock, but for `wait`."""

    def __init__(self) -> None:
        self._gates: list[threading.Lock] = []

    def gate(self) -> threading.Lock:
        """Return a gate that the next `notify_all` opens; with the lock."""
        gate = threading.Lock()
        gate.acquire()
        self._gates.append(gate)
        return gate

    def notify_all(self) -> None:
        """Open every gate; with the lock."""
        while self._gates:
            self._gates.pop().release()

    def wait(self, gate: threading.Lock, timeout_s: float | None) -> bool:
        """Wait until a gate is open; without the lock.

        Args:
            gate: From `gate`.
            timeout_s: Seconds after which to give up; None for no limit.

        Returns:
            Whether it was opened in time.
        """
        if timeout_s is None:
            return gate.acquire()
        return gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))
