"""Pushes in flight: who waits for them, who is ordered behind them, and what happens if they fail.

A stream is held, so that the push stays in flight, and released by the very wait under test: a call
that does not wait finds the stream still held, and what it then does to the host's bytes is what
reaches the device.
"""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory import (
    Blob,
    BufferMismatchError,
    ClosedError,
    DeviceError,
    Head,
    SimulatedDevice,
    SyncedMemory,
)
from memory.testing import FailingDevice, Hold, hold, peek

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from memory import Device, DeviceBuffer, Event, Stream

NBYTES = 64


class EventThatReleases:
    """The event of a push on a held stream; if the test's thread waits for it, the hold ends."""

    def __init__(self, event: Event, held: Hold) -> None:
        self._event = event
        self._held = held
        self._thread = threading.current_thread()

    def done(self) -> bool:
        return self._event.done()

    def synchronize(self) -> None:
        # A stream that waits for it does so on a thread of its own, and has to go on waiting.
        if threading.current_thread() is self._thread:
            self._held.release()
        self._event.synchronize()

    def notify(self, callback: Callable[[], None]) -> None:
        self._event.notify(callback)


def stays_pending(stream: Stream) -> bool:
    """Say whether the stream's work does not end, which it would at once if nothing stopped it."""
    passed = threading.Event()
    stream.record().notify(passed.set)
    return not passed.wait(0.05)


def push(memory: SyncedMemory, stream: Stream, held: Hold) -> DeviceBuffer:
    """Push to a held stream, and return the buffer that the bytes are on their way to."""
    memory.async_gpu_push(stream)
    assert memory.push_event is not None
    memory._sides.in_flight = EventThatReleases(memory.push_event, held)
    assert memory._gpu is not None
    return memory._gpu


@pytest.fixture
def memory(simulated: SimulatedDevice) -> Iterator[SyncedMemory]:
    with SyncedMemory(NBYTES, simulated) as memory:
        memory.mutable_cpu_data()[:] = 1
        yield memory


@pytest.fixture
def stream(simulated: SimulatedDevice) -> Iterator[Stream]:
    with simulated.make_stream("pushes") as stream:
        yield stream


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.mutable_cpu_data(),
        lambda memory: memory.overwrite_cpu_data(),
        lambda memory: memory.set_cpu_data(np.zeros(NBYTES, np.uint8)),
        lambda memory: memory.set_gpu_data(memory.device.alloc_device(NBYTES)),
        lambda memory: memory.synchronize(),
        lambda memory: memory.close(),
        lambda memory: memory.__exit__(None, None, None),
    ],
    ids=["mutable_cpu", "overwrite_cpu", "set_cpu", "set_gpu", "synchronize", "close", "exit"],
)
def test_what_changes_or_gives_up_the_hosts_bytes_waits_for_the_push(
    memory: SyncedMemory, stream: Stream, call: Callable[[SyncedMemory], object]
) -> None:
    host = memory.mutable_cpu_data()
    with hold(stream) as held:
        buffer = push(memory, stream, held)
        call(memory)
        assert held.released
        host[:] = 9
    stream.synchronize()
    assert {1} == set(peek(buffer).tolist())
    assert memory.push_event is None


def test_a_second_push_waits_for_the_first(memory: SyncedMemory, stream: Stream) -> None:
    host = memory.mutable_cpu_data()
    with hold(stream) as held:
        push(memory, stream, held)
        # As Ctrl-C within mutable_cpu_data would leave it: written to, and still in flight.
        memory._head = Head.HEAD_AT_CPU
        memory.async_gpu_push(stream)
        assert held.released
    assert {1} == set(host.tolist())


def test_reading_on_the_host_does_not_wait(memory: SyncedMemory, stream: Stream) -> None:
    with hold(stream) as held:
        push(memory, stream, held)
        assert {1} == set(memory.cpu_data().tolist())
        assert not held.released
        assert memory.head is Head.SYNCED


@pytest.mark.parametrize("call", ["gpu_data", "mutable_gpu_data", "overwrite_gpu_data"])
def test_the_device_side_is_handed_out_at_once_and_ordered_behind_the_push(
    simulated: SimulatedDevice, memory: SyncedMemory, stream: Stream, call: str
) -> None:
    arrived = np.zeros(NBYTES, np.uint8)
    with hold(stream) as held:
        push(memory, stream, held)
        buffer = getattr(memory, call)()
        assert not held.released
        current = simulated.current_stream()
        simulated.copy_to_host(arrived, buffer, stream=current)
        assert stays_pending(current)
    current.synchronize()
    assert {1} == set(arrived.tolist())


def test_a_copy_back_comes_after_the_push_that_reads_the_same_bytes(
    simulated: SimulatedDevice, memory: SyncedMemory, stream: Stream
) -> None:
    with hold(stream) as held:
        buffer = push(memory, stream, held)
        simulated.fill(memory.mutable_gpu_data(), 2, stream=simulated.current_stream())
        assert {2} == set(memory.cpu_data().tolist())
        assert held.released
    assert {2} == set(peek(buffer).tolist())


def test_the_event_passes_when_the_bytes_have_arrived(memory: SyncedMemory, stream: Stream) -> None:
    with hold(stream):
        memory.async_gpu_push(stream)
        event = memory.push_event
        assert event is not None
        assert not event.done()
        assert "push in flight" in repr(memory)
    event.synchronize()
    assert {1} == set(peek(memory).tolist())
    assert "push in flight" not in repr(memory)


class TestCollection:
    def test_a_push_outlives_the_memory_whose_bytes_it_reads(
        self, simulated: SimulatedDevice, stream: Stream
    ) -> None:
        memory = SyncedMemory(NBYTES, simulated)
        memory.mutable_cpu_data()[:] = 1
        with hold(stream):
            memory.async_gpu_push(stream)
            buffer = memory.gpu_data()
            del memory
            gc.collect()
            # Memory that was freed too early would be handed out again here.
            for _ in range(100):
                simulated.alloc_host(NBYTES).array.fill(9)
        stream.synchronize()
        assert {1} == set(peek(buffer).tolist())

    def test_a_lease_returns_when_the_push_of_its_bytes_has_run(
        self, simulated: SimulatedDevice, stream: Stream
    ) -> None:
        class Lease:
            def __init__(self) -> None:
                self._memory = np.ones(NBYTES, np.uint8)
                self.__array_interface__ = self._memory.__array_interface__

        lease = Lease()
        gone = weakref.ref(lease)
        memory = SyncedMemory(NBYTES, simulated)
        memory.set_cpu_data(np.asarray(lease))
        with hold(stream):
            memory.async_gpu_push(stream)
            del memory, lease
            gc.collect()
            assert gone() is not None
        stream.synchronize()
        assert gone() is None

    def test_collecting_never_blocks(self, memory: SyncedMemory, stream: Stream) -> None:
        with hold(stream) as held:
            memory.async_gpu_push(stream)
            # In a cycle, so that it is the collector that takes it.
            cycle: list[object] = [SyncedMemory(NBYTES, memory.device)]
            cycle.append(cycle)
            assert isinstance(cycle[0], SyncedMemory)
            cycle[0].mutable_cpu_data()
            cycle[0].async_gpu_push(stream)
            del cycle
            gc.collect()
            assert not held.released


class TestStreams:
    """Work of the streams that were handed the device's side comes before what could collide."""

    def test_a_push_does_not_overtake_work_on_the_old_bytes(
        self, simulated: SimulatedDevice, memory: SyncedMemory, stream: Stream
    ) -> None:
        seen = np.zeros(NBYTES, np.uint8)
        consumer = simulated.current_stream()
        buffer = memory.gpu_data()
        with hold(consumer):
            simulated.copy_to_host(seen, buffer, stream=consumer)
            memory.mutable_cpu_data()[:] = 2
            memory.async_gpu_push(stream)
            assert stays_pending(stream)
        stream.synchronize()
        consumer.synchronize()
        assert {1} == set(seen.tolist())
        assert {2} == set(peek(memory).tolist())

    def test_a_copy_to_the_host_waits_for_work_on_another_stream(
        self, simulated: SimulatedDevice, memory: SyncedMemory, stream: Stream
    ) -> None:
        with simulated.use_stream(stream):
            buffer = memory.mutable_gpu_data()
        held = hold(stream)
        simulated.fill(buffer, 5, stream=stream)
        # The current stream is the null stream now, on which nothing orders the fill.
        with simulated.make_stream("releases") as other:
            simulated.launch(held.release, stream=other)
            assert {5} == set(memory.cpu_data().tolist())

    def test_another_stream_that_asks_is_put_behind_the_first(
        self, simulated: SimulatedDevice, memory: SyncedMemory, stream: Stream
    ) -> None:
        seen = np.zeros(NBYTES, np.uint8)
        buffer = memory.mutable_gpu_data()
        first = simulated.current_stream()
        with hold(first):
            simulated.fill(buffer, 5, stream=first)
            with simulated.use_stream(stream):
                simulated.copy_to_host(seen, memory.gpu_data(), stream=stream)
            assert stays_pending(stream)
        stream.synchronize()
        assert {5} == set(seen.tolist())

    def test_streams_are_forgotten_once_their_work_is_behind_an_event_or_of_no_matter(
        self, simulated: SimulatedDevice, memory: SyncedMemory, stream: Stream
    ) -> None:
        memory.gpu_data()
        memory.mutable_cpu_data()
        counts = [len(memory._sides.streams)]
        memory.async_gpu_push(stream)
        counts.append(len(memory._sides.streams))
        memory.gpu_data()
        memory.set_gpu_data(simulated.alloc_device(NBYTES))
        counts.append(len(memory._sides.streams))
        assert [1, 0, 0] == counts

    def test_a_stream_that_was_closed_is_waited_for_no_longer(
        self, simulated: SimulatedDevice, memory: SyncedMemory
    ) -> None:
        with simulated.make_stream() as gone, simulated.use_stream(gone):
            simulated.fill(memory.mutable_gpu_data(), 5, stream=gone)
        assert {5} == set(memory.cpu_data().tolist())


class TestFillings:
    """Work that fills the device's side is waited for as a push is, on whatever stream."""

    @pytest.fixture
    def filler(self, simulated: SimulatedDevice) -> Iterator[Stream]:
        with simulated.make_stream("fills") as stream:
            yield stream

    @staticmethod
    def fill(memory: SyncedMemory, stream: Stream, value: int) -> None:
        buffer = memory.device.alloc_device(memory.size)
        memory.device.fill(buffer, value, stream=stream)
        memory.set_gpu_data(buffer, filled=stream.record())

    def test_whoever_asks_for_it_on_another_stream_is_ordered_behind_it(
        self, memory: SyncedMemory, simulated: SimulatedDevice, filler: Stream, stream: Stream
    ) -> None:
        out = np.zeros(NBYTES, np.uint8)
        with hold(filler):
            self.fill(memory, filler, 7)
            assert memory.head is Head.HEAD_AT_GPU
            with simulated.use_stream(stream):
                simulated.copy_to_host(out, memory.gpu_data(), stream=stream)
            assert stays_pending(stream)
        stream.synchronize()
        assert {7} == set(out.tolist())

    @pytest.mark.parametrize("call", [SyncedMemory.cpu_data, SyncedMemory.mutable_cpu_data])
    def test_the_host_waits_for_it(
        self,
        memory: SyncedMemory,
        filler: Stream,
        call: Callable[[SyncedMemory], NDArray[np.uint8]],
    ) -> None:
        with hold(filler) as held:
            self.fill(memory, filler, 7)
            assert memory.push_event is not None
            memory._sides.in_flight = EventThatReleases(memory.push_event, held)
            assert {7} == set(call(memory).tolist())
            assert held.released
        assert memory.push_event is None

    def test_what_was_filled_can_be_written_to_and_pushed(
        self, memory: SyncedMemory, filler: Stream, stream: Stream
    ) -> None:
        self.fill(memory, filler, 7)
        memory.mutable_cpu_data()[0] = 8
        memory.async_gpu_push(stream)
        stream.synchronize()
        assert [8, 7] == peek(memory)[:2].tolist()

    def test_one_that_failed_is_told_by_every_call_that_needs_its_bytes(
        self, simulated: SimulatedDevice, caplog: pytest.LogCaptureFixture
    ) -> None:
        device = FailingDevice(simulated, fail={"fill": 1}, when="run")
        with SyncedMemory(NBYTES, device) as memory:
            with device.make_stream() as stream:
                self.fill(memory, stream, 7)
            for _ in range(2):
                for call in (memory.cpu_data, memory.mutable_cpu_data, memory.gpu_data):
                    with pytest.raises(DeviceError, match="fill failed"):
                        call()
                assert memory.head is Head.HEAD_AT_GPU
        assert "fill failed" in caplog.text

    @pytest.mark.parametrize("side", ["cpu", "gpu"])
    def test_setting_other_bytes_tells_it_once_and_then_repairs_it(
        self, simulated: SimulatedDevice, side: str
    ) -> None:
        device = FailingDevice(simulated, fail={"fill": 1}, when="run")
        with SyncedMemory(NBYTES, device) as memory:
            with device.make_stream() as stream:
                self.fill(memory, stream, 7)
                other = device.alloc_device(NBYTES)
                device.copy_to_device(other, np.full(NBYTES, 5, np.uint8), stream=stream)

            def set_other() -> None:
                if side == "cpu":
                    memory.set_cpu_data(np.full(NBYTES, 5, np.uint8))
                else:
                    memory.set_gpu_data(other)

            with pytest.raises(DeviceError, match="fill failed"):
                set_other()
            set_other()
            assert {5} == set(memory.cpu_data().tolist())


class TestFailures:
    """A push that failed is told once, and the host still has the newest bytes."""

    @pytest.fixture
    def failing(self, simulated: SimulatedDevice) -> Device:
        return FailingDevice(simulated, fail={"copy_to_device": 1}, when="run")

    @pytest.fixture
    def lost(self, failing: Device) -> Iterator[SyncedMemory]:
        """Return a memory whose push has failed, which nobody has been told."""
        with SyncedMemory(NBYTES, failing) as memory:
            memory.mutable_cpu_data()[:] = 1
            with failing.make_stream() as stream:
                memory.async_gpu_push(stream)
            assert memory.head is Head.SYNCED
            yield memory

    @pytest.mark.parametrize(
        "call",
        [
            lambda memory: memory.mutable_cpu_data(),
            lambda memory: memory.overwrite_cpu_data(),
            lambda memory: memory.gpu_data(),
            lambda memory: memory.mutable_gpu_data(),
            lambda memory: memory.overwrite_gpu_data(),
            lambda memory: memory.set_cpu_data(np.zeros(NBYTES, np.uint8)),
            lambda memory: memory.set_gpu_data(memory.device.alloc_device(NBYTES)),
            lambda memory: memory.synchronize(),
        ],
    )
    def test_the_first_call_that_finds_out_raises_and_the_next_one_works(
        self, lost: SyncedMemory, call: Callable[[SyncedMemory], object]
    ) -> None:
        with pytest.raises(DeviceError, match="copy_to_device failed"):
            call(lost)
        assert lost.head is Head.HEAD_AT_CPU
        assert {1} == set(lost.cpu_data().tolist())
        call(lost)

    def test_the_next_push_repairs_it(self, lost: SyncedMemory, failing: Device) -> None:
        with pytest.raises(DeviceError):
            lost.synchronize()
        with failing.make_stream() as stream:
            lost.async_gpu_push(stream)
        assert {1} == set(peek(lost).tolist())

    def test_reading_on_the_host_goes_on(self, lost: SyncedMemory) -> None:
        assert {1} == set(lost.cpu_data().tolist())

    def test_closing_logs_what_nobody_has_seen(
        self, lost: SyncedMemory, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, logger="memory"):
            lost.close()
        assert "copy_to_device failed" in caplog.text


CALLS: dict[str, Callable[[SyncedMemory], object]] = {
    "cpu_data": lambda memory: memory.cpu_data(),
    "mutable_cpu_data": lambda memory: memory.mutable_cpu_data(),
    "overwrite_cpu_data": lambda memory: memory.overwrite_cpu_data(),
    "gpu_data": lambda memory: memory.gpu_data(),
    "mutable_gpu_data": lambda memory: memory.mutable_gpu_data(),
    "overwrite_gpu_data": lambda memory: memory.overwrite_gpu_data(),
    "async_gpu_push": lambda memory: memory.async_gpu_push(memory.device.current_stream()),
    "copy_from": lambda memory: memory.copy_from(source(memory.device)),
}


def source(device: Device) -> SyncedMemory:
    memory = SyncedMemory(NBYTES, device)
    device.fill(memory.mutable_gpu_data(), 8, stream=device.current_stream())
    return memory


def at(head: Head, device: Device) -> SyncedMemory:
    memory = SyncedMemory(NBYTES, device)
    if head in {Head.HEAD_AT_CPU, Head.SYNCED}:
        memory.mutable_cpu_data()[:] = int(head)
    if head is Head.SYNCED:
        memory.gpu_data()
    if head is Head.HEAD_AT_GPU:
        device.fill(memory.mutable_gpu_data(), int(head), stream=device.current_stream())
    return memory


@pytest.mark.parametrize(
    ("head", "call"),
    [(head, call) for head in Head for call in CALLS if call != "async_gpu_push"]
    + [(Head.HEAD_AT_CPU, "async_gpu_push")],
)
def test_whichever_effect_of_a_call_fails_the_contents_stay_and_it_can_be_repeated(
    simulated: SimulatedDevice, head: Head, call: str
) -> None:
    dry = FailingDevice(simulated, fail={})
    memory = at(head, dry)
    before = dict(dry.calls())
    CALLS[call](memory)
    effects = [
        (operation, number)
        for operation, total in dry.calls().items()
        for number in range(before.get(operation, 0) + 1, total + 1)
    ]
    for operation, number in effects:
        device = FailingDevice(simulated, fail={operation: number})
        memory = at(head, device)
        # Whichever error the effect has: out of memory, or a failure of the device.
        with pytest.raises((DeviceError, MemoryError)):
            CALLS[call](memory)
        assert 1 == device.num_failures
        assert head == memory.head
        if call != "overwrite_cpu_data":
            CALLS[call](memory)
            expected = 8 if call == "copy_from" else int(head)
            if call != "overwrite_gpu_data":
                assert {expected} == set(memory.cpu_data().tolist())


def test_a_copy_that_cannot_be_given_an_event_is_waited_for(simulated: SimulatedDevice) -> None:
    device = FailingDevice(simulated, fail={"record": 1})
    memory = SyncedMemory(NBYTES, device)
    memory.mutable_cpu_data()[:] = 1
    with device.make_stream() as stream:
        with pytest.raises(DeviceError):
            memory.async_gpu_push(stream)
        # Nothing is in flight that the next write could tear.
        assert {1} == set(peek(memory).tolist())


def test_a_wait_that_fails_leaves_the_copy_in_flight(simulated: SimulatedDevice) -> None:
    device = FailingDevice(simulated, fail={"synchronize": 1})
    memory = SyncedMemory(NBYTES, device)
    memory.mutable_cpu_data()[:] = 1
    with hold(device.current_stream()) as held:
        with pytest.raises(DeviceError):
            memory.gpu_data()
        assert memory.push_event is not None
        assert memory._gpu is not None
        buffer = memory._gpu
        memory._sides.in_flight = EventThatReleases(memory.push_event, held)
        memory.mutable_cpu_data()[:] = 9
        assert held.released
    assert {1} == set(peek(buffer).tolist())


class TestBlobs:
    def test_a_blob_pushes_its_data_and_waits_for_it(
        self, simulated: SimulatedDevice, stream: Stream
    ) -> None:
        blob = Blob((4, 4), np.float32, device=simulated)
        blob.mutable_cpu_data()[:] = 1
        with hold(stream) as held:
            buffer = push(blob.data, stream, held)
            assert blob.push_event is blob.data.push_event
            assert "push in flight" in repr(blob)
            assert {1} == set(blob.numpy(writable=False).ravel().tolist())
            before = held.released
            blob.numpy()[:] = 9
            assert (False, True) == (before, held.released)
        assert {1.0} == set(peek(buffer).view(np.float32).tolist())

    @pytest.mark.parametrize(
        "call",
        [
            lambda blob: blob.close(),
            lambda blob: blob.set_cpu_data(np.zeros(8, np.float32)),
            lambda blob: blob.set_gpu_data(blob.device.alloc_device(32)),
            lambda blob: blob.__dlpack__(),
        ],
        ids=["close", "set_cpu", "set_gpu", "dlpack"],
    )
    def test_what_lets_go_of_a_blobs_bytes_waits_for_the_push(
        self, simulated: SimulatedDevice, stream: Stream, call: Callable[[Blob], object]
    ) -> None:
        blob = Blob(16, np.float32, device=simulated)
        host = blob.mutable_cpu_data()
        host[:] = 1
        with hold(stream) as held:
            buffer = push(blob.data, stream, held)
            blob.reshape(8)
            call(blob)
            assert held.released
            host[:] = 9
        assert {1.0} == set(peek(buffer).view(np.float32).tolist())

    def test_closing_a_blob_logs_a_failure_that_nobody_has_seen(
        self, simulated: SimulatedDevice, caplog: pytest.LogCaptureFixture
    ) -> None:
        device = FailingDevice(simulated, fail={"copy_to_device": 1}, when="run")
        blob = Blob(4, device=device)
        blob.mutable_cpu_data()
        with device.make_stream() as stream:
            blob.async_gpu_push(stream)
        with caplog.at_level(logging.WARNING, logger="memory"):
            blob.close()
        assert "copy_to_device failed" in caplog.text

    def test_a_refused_replacement_leaves_the_push_and_the_blob_as_they_were(
        self, simulated: SimulatedDevice, stream: Stream
    ) -> None:
        blob = Blob(16, np.float32, device=simulated)
        blob.mutable_cpu_data()[:] = 1
        with hold(stream) as held:
            push(blob.data, stream, held)
            blob.reshape(8)
            with pytest.raises(BufferMismatchError):
                blob.set_cpu_data(np.zeros(16, np.float32)[::2])
            assert not held.released
            blob.reshape(16)
            assert {1} == set(blob.cpu_data().tolist())

    def test_a_closed_stream_is_refused_and_nothing_is_pushed(
        self, simulated: SimulatedDevice
    ) -> None:
        blob = Blob(4, device=simulated)
        blob.mutable_cpu_data()
        stream = simulated.make_stream()
        stream.close()
        with pytest.raises(ClosedError):
            blob.async_gpu_push(stream)
        assert blob.data.head is Head.HEAD_AT_CPU
        assert blob.push_event is None


def test_both_sides_may_be_set_at_once_behind_the_event_that_makes_them_equal() -> None:
    with (
        SimulatedDevice() as device,
        device.make_stream() as stream,
        SyncedMemory(NBYTES, device) as memory,
    ):
        buffer, here = device.alloc_device(NBYTES), np.full(NBYTES, 3, np.uint8)
        with hold(stream):
            device.copy_to_device(buffer, here.copy(), stream=stream)
            memory.set_gpu_data(buffer, filled=stream.record(), host=here)
            assert memory.head == Head.SYNCED
            assert np.shares_memory(memory.cpu_data(), here)  # nobody waits for the copy
            assert memory.push_event is not None
        assert set(peek(memory).tolist()) == {3}
        memory.mutable_cpu_data()[:] = 4
        assert memory.head.name == "HEAD_AT_CPU"
        with pytest.raises(BufferMismatchError):
            memory.set_gpu_data(buffer, host=here[1:])


def test_of_both_sides_the_hosts_is_left_where_the_copy_failed() -> None:
    with (
        FailingDevice(SimulatedDevice(), fail={"copy_to_device": 1}, when="run") as device,
        SyncedMemory(NBYTES, device) as memory,
    ):
        buffer, here = device.alloc_device(NBYTES), np.full(NBYTES, 3, np.uint8)
        with device.make_stream() as stream:
            device.copy_to_device(buffer, here, stream=stream)
            memory.set_gpu_data(buffer, filled=stream.record(), host=here)
            with pytest.raises(DeviceError, match="on command"):
                memory.mutable_cpu_data()
            assert memory.head is Head.HEAD_AT_CPU
            assert set(memory.mutable_cpu_data().tolist()) == {3}


def test_what_a_closed_device_holds_is_still_had_by_the_host() -> None:
    device = SimulatedDevice()
    memory = SyncedMemory(NBYTES, device)
    memory.mutable_cpu_data()[:] = 6
    memory.mutable_gpu_data()
    others = SyncedMemory(NBYTES, device)
    others.set_gpu_data(memory.gpu_data())
    device.close()
    assert set(others.cpu_data().tolist()) == {6}  # in memory that no device gives any more
    assert set(memory.mutable_cpu_data().tolist()) == {6}
    with pytest.raises(ClosedError):
        memory.gpu_data()


def test_a_closed_stream_of_an_open_device_is_told() -> None:
    with SimulatedDevice() as device, SyncedMemory(NBYTES, device) as memory:
        memory.overwrite_gpu_data()
        stream = device.make_stream()
        with device.use_stream(stream):
            stream.close()
            with pytest.raises(ClosedError):
                memory.cpu_data()
