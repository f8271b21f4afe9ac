"""What queued work on a GPU holds, and until when.

CUDA keeps nothing alive: a copy would read a host buffer that Python has freed, with the bytes of
its next owner. So all work that is given to a stream is added to its `KeepAlive`, with all that it
uses. An event that is recorded seals what was added since the last one into a `Segment`, which is
released once the event has passed; a stream's segments in order.
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
class Segment:
    """The work between two events: items are what it is, in words, and what it holds."""

    number: int
    token: EventToken
    items: list[tuple[str, object]]


class KeepAlive:
    """What one stream's work holds.

    `add`, `drop_last` and `seal` are called under the stream's lock, along with the work that they
    are about. All else may be called by any thread at any time.
    """

    def __init__(self) -> None:
        # Held for moments only: no finalizer runs within it.
        self._lock = threading.Lock()
        # Held while references are dropped, so that release() returns only when nothing is held any
        # more, also if another thread was first. Never taken by add() or seal(). Reentrant, because
        # a finalizer that runs here may query another event.
        self._releasing = threading.RLock()
        self._uncovered: list[tuple[str, object]] = []
        self._segments: deque[Segment] = deque()
        self._abandoned = ""

    @property
    def has_uncovered(self) -> bool:
        """Whether there is work that no event covers yet."""
        return bool(self._uncovered)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held."""
        return not self._uncovered and not self._segments

    def add(self, operation: str, holds: object) -> None:
        """Note work that is about to be queued.

        Args:
            operation: What it is, for errors.
            holds: All that has to stay alive until it has run.
        """
        # Before it is queued and not after: Ctrl-C in between must not leave a copy without its
        # buffers.
        self._uncovered.append((operation, holds))

    def drop_last(self) -> None:
        """Drop what was added last: CUDA has refused it."""
        self._uncovered.pop()

    def seal(self, number: int, token: EventToken) -> None:
        """Have an event cover all that was added since the last one.

        Args:
            number: Grows with every event of the stream.
            token: The event.
        """
        with self._lock:
            if self._uncovered:
                self._segments.append(Segment(number, token, self._uncovered))
                self._uncovered = []

    def oldest(self) -> tuple[int, EventToken] | None:
        """Return number and event of the segment that is released next; None if there is none."""
        with self._lock:
            return (self._segments[0].number, self._segments[0].token) if self._segments else None

    def release(self, number: int) -> None:
        """Release what the work up to an event that has passed was holding."""
        released: list[Segment] = []
        with self._releasing:
            with self._lock:
                while self._segments and self._segments[0].number <= number:
                    released.append(self._segments.popleft())
            # Here, and not within the inner lock: finalizers run other people's code.
            released.clear()

    def release_all(self) -> None:
        """Release everything: the stream has finished."""
        with self._releasing:
            with self._lock:
                segments, self._segments = self._segments, deque()
                uncovered, self._uncovered = self._uncovered, []
            segments.clear()
            uncovered.clear()

    def abandon(self) -> None:
        """Release everything because the context is lost; only the names are kept, for errors."""
        self._abandoned = self.pending()
        self.release_all()

    def pending(self) -> str:
        """Name the work that has not been seen to finish; empty if there is none."""
        if self._abandoned:
            return self._abandoned
        with self._lock:
            names = [name for segment in self._segments for name, _ in segment.items]
        names += [name for name, _ in self._uncovered]
        more = len(names) - _NUM_NAMED
        named = ", ".join(names[:_NUM_NAMED])
        return f"{named} and {more} more" if more > 0 else named
