"""SyncedMemory against a model of two byte arrays, under any sequence of calls."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from memory import Head, HeadError, SimulatedDevice, SyncedMemory
from memory.testing import Hold, hold, peek

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memory import DeviceBuffer, Event, Stream

NBYTES = 4
U, CPU, GPU, SYNCED = Head
values = st.lists(st.integers(0, 255), min_size=NBYTES, max_size=NBYTES)
places = st.integers(0, NBYTES - 1)
streams = st.integers(0, 2)


class Model:
    """Two sides and a head, with every copy made at once."""

    def __init__(self) -> None:
        self.head = U
        self.host = [0] * NBYTES
        self.gpu = [0] * NBYTES

    def to_host(self) -> None:
        if self.head is GPU:
            self.host, self.head = list(self.gpu), SYNCED
        elif self.head is U:
            self.host, self.head = [0] * NBYTES, CPU

    def to_gpu(self) -> None:
        if self.head is CPU:
            self.gpu, self.head = list(self.host), SYNCED
        elif self.head is U:
            self.gpu, self.head = [0] * NBYTES, GPU


class EventThatReleases:
    """The event of a push on a held stream; if the machine's thread waits for it, the hold ends.

    So a call that does not wait, though it should, leaves the stream held, and the push then reads
    what is written after it.
    """

    def __init__(self, event: Event, held: Hold) -> None:
        self._event = event
        self._held = held
        self._thread = threading.current_thread()

    def done(self) -> bool:
        return self._event.done()

    def synchronize(self) -> None:
        if threading.current_thread() is self._thread:
            self._held.release()
        self._event.synchronize()

    def notify(self, callback: Callable[[], None]) -> None:
        self._event.notify(callback)


class SyncedMachine(RuleBasedStateMachine):
    """Calls in any order, on three streams that are slow, or held, at its will.

    Work on the device is given and not waited for. What it must have seen is noted, and compared
    once everything has run.
    """

    @initialize()
    def open(self) -> None:
        self.device = SimulatedDevice()
        self.streams = [self.device.current_stream(), *map(self.device.make_stream, "ab")]
        self.memory = SyncedMemory(NBYTES, self.device)
        self.model = Model()
        self.held: Hold | None = None
        self.given: NDArray[np.uint8] | None = None
        self.seen: list[tuple[list[int], NDArray[np.uint8]]] = []

    def teardown(self) -> None:
        if not hasattr(self, "device"):
            return
        try:
            self.everything_has_run()
        finally:
            self.memory.close()
            self.device.close()
            self.streams.clear()

    @rule()
    def read_on_the_host(self) -> None:
        self.model.to_host()
        assert self.model.host == self.memory.cpu_data().tolist()

    @rule(place=places, value=st.integers(0, 255))
    def write_on_the_host(self, place: int, value: int) -> None:
        self.model.to_host()
        self.model.head = CPU
        self.model.host[place] = value
        self.memory.mutable_cpu_data()[place] = value

    @rule(new=values)
    def overwrite_on_the_host(self, new: list[int]) -> None:
        self.model.head, self.model.host = CPU, list(new)
        self.memory.overwrite_cpu_data()[:] = new

    @rule(stream=streams, slow=st.booleans())
    def read_on_the_device(self, stream: int, slow: bool) -> None:  # noqa: FBT001 - drawn
        self.model.to_gpu()
        with self.device.use_stream(self.streams[stream]):
            buffer = self.memory.gpu_data()
        self.look_at(buffer, self.streams[stream], slow=slow)

    @rule(stream=streams, slow=st.booleans(), place=places, value=st.integers(0, 255))
    def write_on_the_device(self, stream: int, slow: bool, place: int, value: int) -> None:  # noqa: FBT001 - drawn
        self.model.to_gpu()
        self.model.head = GPU
        self.model.gpu[place] = value
        with self.device.use_stream(self.streams[stream]):
            buffer = self.memory.mutable_gpu_data()
        self.slow_down(self.streams[stream], slow=slow)
        self.device.fill(buffer.slice(place, 1), value, stream=self.streams[stream])

    @rule(stream=streams, slow=st.booleans(), value=st.integers(0, 255))
    def overwrite_on_the_device(self, stream: int, slow: bool, value: int) -> None:  # noqa: FBT001 - drawn
        self.model.head, self.model.gpu = GPU, [value] * NBYTES
        with self.device.use_stream(self.streams[stream]):
            buffer = self.memory.overwrite_gpu_data()
        self.slow_down(self.streams[stream], slow=slow)
        self.device.fill(buffer, value, stream=self.streams[stream])

    @rule(new=values)
    def give_an_array(self, new: list[int]) -> None:
        self.model.head, self.model.host = CPU, list(new)
        self.given = np.array(new, np.uint8)
        self.memory.set_cpu_data(self.given)

    @rule(value=st.integers(0, 255))
    def give_a_buffer(self, value: int) -> None:
        self.model.head, self.model.gpu = GPU, [value] * NBYTES
        buffer = self.device.alloc_device(NBYTES)
        with self.device.make_stream() as stream:
            self.device.fill(buffer, value, stream=stream)
        self.memory.set_gpu_data(buffer)

    @rule(new=values)
    def copy_from_another(self, new: list[int]) -> None:
        source = SyncedMemory(NBYTES, self.device)
        source.mutable_cpu_data()[:] = new
        self.model.head, self.model.host = CPU, list(new)
        self.memory.copy_from(source)

    @precondition(lambda self: self.model.head is CPU)
    @rule(stream=streams, keep_in_flight=st.booleans())
    def push(self, stream: int, keep_in_flight: bool) -> None:  # noqa: FBT001 - drawn
        self.model.to_gpu()
        held = hold(self.streams[stream]) if keep_in_flight else None
        self.memory.async_gpu_push(self.streams[stream])
        event, buffer = self.memory.push_event, self.memory._gpu
        assert event is not None
        assert buffer is not None
        self.look_at(buffer, self.streams[stream], slow=False)
        if held is not None:
            self.memory._sides.in_flight = EventThatReleases(event, held)
            self.held = held

    @precondition(lambda self: self.model.head is not CPU)
    @rule(stream=streams)
    def push_nothing_new(self, stream: int) -> None:
        try:
            self.memory.async_gpu_push(self.streams[stream])
        except HeadError:
            return
        raise AssertionError("pushed, though there was nothing new")

    @rule()
    def everything_has_run(self) -> None:
        if self.held is not None:
            self.held.release()
        for stream in self.streams:
            stream.synchronize()
        for expected, seen in self.seen:
            assert expected == seen.tolist()
        self.seen.clear()
        if self.model.head in {GPU, SYNCED}:
            assert self.model.gpu == peek(self.memory).tolist()

    @invariant()
    def the_head_is_the_models(self) -> None:
        assert self.model.head == self.memory.head

    @invariant()
    def an_array_that_was_given_is_the_host_side(self) -> None:
        if self.given is not None and self.model.head is not GPU:
            assert self.model.host == self.given.tolist()

    def look_at(self, buffer: DeviceBuffer, stream: Stream, *, slow: bool) -> None:
        """Note what work on a stream sees in the buffer, however late it runs."""
        seen = np.zeros(NBYTES, np.uint8)
        self.slow_down(stream, slow=slow)
        self.device.copy_to_host(seen, buffer, stream=stream)
        self.seen.append((list(self.model.gpu), seen))

    def slow_down(self, stream: Stream, *, slow: bool) -> None:
        """Let a stream be busy for long enough that whatever may overtake it does."""
        if slow:
            self.device.launch(lambda: time.sleep(0.002), stream=stream)


TestSyncedMachine = SyncedMachine.TestCase
TestSyncedMachine.settings = settings(max_examples=80, stateful_step_count=20, deadline=None)
