"""What work in flight on a GPU holds, and for how long.

CUDA keeps nothing alive: a copy goes on reading a host buffer that Python has freed, and finds
there what the next owner has written. So whatever is given to a stream is put on its ``Manifest``
together with all that it uses. With each event that is recorded the items since the last one become
a *flight*, which lands, and lets go of them, when the event is seen to have passed: at a look at
that event or a later one, or with the next event of the stream. A stream's flights land in order.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from memory._cuda import NOT_READY, runtime

if TYPE_CHECKING:
    from memory._cuda_context import EventToken

# More is given to a stream without an event only by a caller who floods it; so it is no limit that
# a program of ours meets, and bounds what is held on to.
MOST_ABOARD: Final = 64

_NUM_NAMED: Final = 4


@dataclass(slots=True)
class _Flight:
    """The work between two events."""

    number: int
    token: EventToken
    items: list[tuple[str, object]]


class Manifest:
    """What one stream's work holds.

    ``load`` and ``depart`` are for whoever gives the stream its work, one at a time. ``land`` and
    ``pending`` may be called by any thread at any time, and hold the lock for moments only.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._aboard: list[tuple[str, object]] = []
        self._flights: deque[_Flight] = deque()

    @property
    def is_full(self) -> bool:
        """Whether it is time for an event."""
        return len(self._aboard) >= MOST_ABOARD

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
        landed: list[_Flight] = []
        with self._lock:
            while self._flights and _has_passed(self._flights[0].token):
                landed.append(self._flights.popleft())
            if self._aboard:
                self._flights.append(_Flight(number, token, self._aboard))
                self._aboard = []
        # What was held dies here, outside of the lock: finalizers are other people's code.
        del landed

    def land(self, number: int) -> None:
        """Let go of what the work up to an event that has passed was holding.

        Args:
            number: The event's.
        """
        landed: list[_Flight] = []
        with self._lock:
            while self._flights and self._flights[0].number <= number:
                landed.append(self._flights.popleft())
        del landed

    def land_all(self) -> None:
        """Let go of everything; the stream has finished, or its context is lost."""
        with self._lock:
            landed, self._flights = self._flights, deque()
            aboard, self._aboard = self._aboard, []
        del landed, aboard

    def await_last(self) -> None:
        """Block until the last event behind which anything is held has passed."""
        with self._lock:
            token = self._flights[-1].token if self._flights else None
        if token is not None:
            runtime.eventSynchronize(token.handle)

    def pending(self) -> str:
        """Say which work has not been seen to finish; empty if there is none."""
        with self._lock:
            names = [name for flight in self._flights for name, _ in flight.items]
        names += [name for name, _ in self._aboard]
        more = len(names) - _NUM_NAMED
        named = ", ".join(names[:_NUM_NAMED])
        return f"{named} and {more} more" if more > 0 else named


def _has_passed(token: EventToken) -> bool:
    # One whose work has failed has: its context is lost, and nothing will run in it any more.
    return bool(runtime.eventQuery(token.handle) != NOT_READY)
