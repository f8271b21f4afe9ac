"""What work in flight on a GPU holds, and for how long.

CUDA keeps nothing alive: a copy goes on reading a host buffer that Python has freed, and finds
there what the next owner has written. So whatever is given to a stream is put on its ``Manifest``
together with all that it uses. With each event that is recorded the items since the last one become
a *flight*, which lands, and lets go of them, when the event has passed. A stream's flights land in
order.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from memory._cuda.context import EventToken

_NUM_NAMED: Final = 4


@dataclass(slots=True)
class Flight:
    """The work between two events.

    Attributes:
        number: Grows with every event of the stream.
        token: The event that passes when all of it has run.
        items: What it is, in words, and what it holds.
    """

    number: int
    token: EventToken
    items: list[tuple[str, object]]


class Manifest:
    """What one stream's work holds.

    ``load``, ``unload`` and ``depart`` are for whoever gives the stream its work, one at a time.
    All else may be called by any thread at any time; the lock is held for moments only.

    What lands is let go within a second lock, which nothing that is taken in here waits for: so
    whoever has seen an event pass may rely on nothing being held any more, also if another thread
    was the first to see it. It is reentrant, as finalizers are other people's code.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._landing = threading.RLock()
        self._aboard: list[tuple[str, object]] = []
        self._flights: deque[Flight] = deque()
        self._lost = ""

    @property
    def has_aboard(self) -> bool:
        """Whether there is work that no event covers yet."""
        return bool(self._aboard)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not self._aboard and not self._flights

    def load(self, operation: str, holds: object) -> None:
        """Note work that is about to be queued.

        Before and not after it: Ctrl-C in between must not leave a copy without its buffers.

        Args:
            operation: What it is, for errors.
            holds: All that has to stay alive until it has run.
        """
        self._aboard.append((operation, holds))

    def unload(self) -> None:
        """Take back what was loaded last: it was refused, and not queued."""
        self._aboard.pop()

    def depart(self, number: int, token: EventToken) -> None:
        """Take note of the event that passes when all that was loaded has run.

        Args:
            number: Grows with every event of the stream.
            token: The event.
        """
        with self._lock:
            if self._aboard:
                self._flights.append(Flight(number, token, self._aboard))
                self._aboard = []

    def oldest(self) -> tuple[int, EventToken] | None:
        """Return the number and the event of the flight that lands next, None if there is none."""
        with self._lock:
            return (self._flights[0].number, self._flights[0].token) if self._flights else None

    def land(self, number: int) -> None:
        """Let go of what the work up to an event that has passed was holding.

        Args:
            number: The event's.
        """
        landed: list[Flight] = []
        with self._landing:
            with self._lock:
                while self._flights and self._flights[0].number <= number:
                    landed.append(self._flights.popleft())
            landed.clear()

    def lose(self) -> None:
        """Let go of everything because the context is lost; only the names are kept."""
        self._lost = self.pending()
        self.land_all()

    def land_all(self) -> None:
        """Let go of everything: the stream has finished."""
        with self._landing:
            with self._lock:
                landed, self._flights = self._flights, deque()
                aboard, self._aboard = self._aboard, []
            landed.clear()
            aboard.clear()

    def pending(self) -> str:
        """Say which work has not been seen to finish; empty if there is none."""
        if self._lost:
            return self._lost
        with self._lock:
            names = [name for flight in self._flights for name, _ in flight.items]
        names += [name for name, _ in self._aboard]
        more = len(names) - _NUM_NAMED
        named = ", ".join(names[:_NUM_NAMED])
        return f"{named} and {more} more" if more > 0 else named
