"""Which streams are noted, and which are waited for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory import ClosedError, Event, Stream
from memory._synced.sides import order_behind, with_stream

if TYPE_CHECKING:
    from memory import SimulatedDevice


class Recording:
    """A stream that notes what it is told to wait for; its event is itself."""

    def __init__(self, handle: int, *, closed: bool = False) -> None:
        self.handle = handle
        self.closed = closed
        self.waits_for: list[object] = []

    def record(self) -> Event:
        if self.closed:
            raise ClosedError("stream", operation="record")
        event: Event = self  # type: ignore[assignment]
        return event

    def wait(self, event: Event) -> None:
        self.waits_for.append(event)


def stream(handle: int, *, closed: bool = False) -> tuple[Stream, Recording]:
    """Return the same object as what the functions take and as what it is."""
    recording = Recording(handle, closed=closed)
    typed: Stream = recording  # type: ignore[assignment]
    return typed, recording


def test_a_stream_is_noted_once() -> None:
    first, _ = stream(1)
    assert (first,) == with_stream(with_stream((), first), first)


def test_two_faces_of_one_stream_are_one(simulated: SimulatedDevice) -> None:
    noted = with_stream((), simulated.current_stream())
    assert 1 == len(with_stream(noted, simulated.current_stream()))


def test_a_new_stream_with_the_handle_of_a_closed_one_takes_its_place() -> None:
    other, _ = stream(1)
    old, _ = stream(2, closed=True)
    new, _ = stream(2)
    assert (other, new) == with_stream((other, old), new)


def test_a_stream_is_put_behind_all_others_that_are_open() -> None:
    ours, recording = stream(1)
    other, other_recording = stream(2)
    closed, _ = stream(3, closed=True)
    order_behind(ours, (ours, other, closed))
    assert [other] == recording.waits_for
    assert [] == other_recording.waits_for
