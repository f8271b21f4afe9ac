"""Where the device transforms: what fails, what is in flight, and what is refilled when.

The law is that of all effects: the right error reaches the consumer once, the batches before it are
right and none is lost, nothing hangs, nothing is left. And staging memory, which the kernel reads
some time after it was queued, holds the next batch's pixels only when it has.
"""

from __future__ import annotations

import gc
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import (
    DeviceBuffer,
    DeviceError,
    DeviceMemoryError,
    HostMemoryError,
    SimulatedDevice,
    open_device,
)
from memory.testing import FailingDevice, hold, live_buffers, peek
from prefetch._ring.lease import Lease
from prefetch._ring.push_block import HostBlock, block_bytes
from prefetch._ring.staged_memory import StagedMemory
from prefetch._transform.device import DeviceTransform
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from memory import Stream

NUM = 24
THREADS = [1, 2, 8]


source = images_fixture(NUM, scope="module")


@pytest.fixture(autouse=True)
def _no_bytes_left() -> Iterator[None]:
    """Fail a test that leaves memory of any device allocated."""
    before = live_buffers()
    yield
    if before != live_buffers():
        gc.collect()
        gc.collect()
    assert before == live_buffers()


class Remembering(SimulatedDevice):
    """A device that knows its streams, so that a test can hold those of the readers."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.streams: list[Any] = []
        self._made = threading.Lock()

    def make_stream(self, name: str = "") -> Any:
        stream = super().make_stream(name)
        with self._made:
            self.streams.append(stream)
        return stream


def options(source: Path, threads: int = 2, **more: Any) -> dict[str, Any]:
    transform = {"crop_size": 6, "mirror": True, "scale": 0.5, "where": "device"}
    return {
        "source": source,
        "batch_size": 4,
        "threads": threads,
        "prefetch": 2,
        "transform": transform,
        **more,
    }


def take_all(feed: prefetch.Feed) -> tuple[list[int], BaseException | None]:
    """Return the records of an epoch's batches up to an error; looks past every stream."""
    taken: list[int] = []
    try:
        for batch in feed:
            assert (peek(batch.data).T == 0.5 * batch.indices).all()
            taken += batch.indices.tolist()
            del batch
    except prefetch.PrefetchError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever the consumer is told
        assert feed.closed
        return taken, error.with_traceback(None)
    return taken, None


ERRORS: dict[str, type[Exception]] = {
    "alloc_host": HostMemoryError,
    "alloc_device": DeviceMemoryError,
    "copy_to_device": DeviceError,
    "launch": DeviceError,
    "record": DeviceError,
    "wait": DeviceError,
}


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("number", [1, 2, 5])
@pytest.mark.parametrize("operation", ERRORS)
def test_the_nth_call_of_the_device_that_fails_is_the_consumers_error(
    source: Path, operation: str, number: int, threads: int
) -> None:
    chosen = options(source, threads)
    with FailingDevice(open_device("simulated"), fail={operation: number}) as device:
        feed = prefetch.open(chosen, device=device)
        taken, error = take_all(feed)
        state = feed.state_dict()
        feed.close()
        del feed
        if error is None:  # no more were asked for, or a batch of the next epoch needed it
            assert operation.startswith("alloc")
        else:
            assert type(error) is ERRORS[operation]
            assert device.num_failures == 1
        if threads == 1 and operation == "launch":
            assert len(taken) == 4 * (number - 1)
    rest: list[int] = []
    if error is not None:
        with prefetch.open(chosen, device="simulated") as sound:
            sound.load_state_dict(state)
            rest, none = take_all(sound)
            assert none is None
    assert taken + rest == list(range(NUM))


@pytest.mark.parametrize("operation", ["launch", "copy_to_device"])
def test_a_failure_as_it_runs_is_told_wherever_the_batchs_bytes_are_asked_for(
    source: Path, operation: str
) -> None:
    with (
        FailingDevice(open_device("simulated"), fail={operation: 3}, when="run") as device,
        prefetch.open(options(source, 1), device=device) as feed,
    ):
        told = []
        for batch in feed:
            try:
                values = batch.data.cpu_data()
            except DeviceError:
                told.append(batch.number)
                for ask in (batch.data.numpy, batch.data.cpu_data, batch.data.gpu_data):
                    with pytest.raises(DeviceError, match="on command"):
                        ask()
                del ask
            else:
                assert (values.T == 0.5 * batch.indices).all()
                del values
            del batch
        assert device.num_failures == 1
        assert told[0] == 2
        with pytest.raises(DeviceError, match="on command"):
            device.current_stream().synchronize()


@pytest.mark.parametrize("threads", THREADS)
@pytest.mark.parametrize("depth", [1, 2])
def test_with_slow_copies_every_batch_equals_its_fingerprint(
    source: Path, threads: int, depth: int
) -> None:
    with (
        open_device("simulated", latency_s=0.002) as device,
        prefetch.open(options(source, threads, prefetch=depth), device=device) as feed,
    ):
        for _ in range(2):
            for batch in feed:
                stream = device.current_stream()
                out = np.empty(batch.data.nbytes, np.uint8)
                device.copy_to_host(out, batch.data.gpu_data(), stream=stream)
                stream.synchronize()
                found = out.view(np.float32).reshape(batch.data.shape)
                assert (found.T == 0.5 * batch.indices).all()
                del batch


def hold_all(device: Remembering, stack: ExitStack) -> list[Any]:
    """Hold the readers' streams."""
    return [stack.enter_context(hold(stream)) for stream in list(device.streams)]


@pytest.mark.parametrize("threads", THREADS)
def test_what_is_staged_is_refilled_only_after_the_kernel_has_read_it(
    source: Path, threads: int
) -> None:
    """The readers' streams stand still; batches are taken and dropped unread, as by a fast loop."""
    with (
        Remembering() as device,
        device.make_stream("consumer") as consumer,
        prefetch.open(options(source, threads), device=device) as feed,
        device.use_stream(consumer),
    ):
        iterator = iter(feed)
        first = next(iterator)
        device.streams.remove(consumer)
        assert device.streams
        results: list[NDArray[np.uint8]] = []

        def read(batch: prefetch.Batch, stream: Stream) -> None:
            out = np.zeros(batch.data.nbytes, np.uint8)
            handed = batch.data.gpu_data()
            # A kernel knows an address only, and keeps nothing alive.
            bare = DeviceBuffer(handed.ptr, handed.nbytes, device=device)
            device.copy_to_host(out, bare, stream=stream)
            results.append(out)

        read(first, consumer)
        del first
        with ExitStack() as stack:
            hold_all(device, stack)
            for number in range(1, 3):
                batch = next(iterator)
                assert batch.number == number
                read(batch, consumer)
                del batch
            assert feed.stats().slots_leased == 0
        for batch in iterator:
            read(batch, consumer)
            del batch
        consumer.synchronize()
    for number, read_bytes in enumerate(results):
        found = read_bytes.view(np.float32).reshape(4, -1)
        assert (found.T == 0.5 * np.arange(4 * number, 4 * number + 4)).all()
    assert len(results) == 6


def test_another_stream_than_that_of_next_is_put_behind_the_kernel(source: Path) -> None:
    with Remembering() as device, device.make_stream("other") as other:
        device.streams.clear()  # the readers' from here on
        with prefetch.open(options(source, 1), device=device) as feed:
            iterator = iter(feed)
            assert next(iterator).number == 0
            with ExitStack() as stack:
                hold_all(device, stack)
                batches = [next(iterator) for _ in range(3)]
                outs = [np.zeros(batch.data.nbytes, np.uint8) for batch in batches]
                with device.use_stream(other):
                    for batch, out in zip(batches, outs, strict=True):
                        device.copy_to_host(out, batch.data.gpu_data(), stream=other)
            other.synchronize()
            for batch, out in zip(batches, outs, strict=True):
                found = out.view(np.float32).reshape(batch.data.shape)
                assert (found.T == 0.5 * batch.indices).all()
            batches.clear()
            del batch


@pytest.mark.parametrize("threads", THREADS)
def test_an_epoch_that_is_abandoned_with_kernels_in_flight_tears_nothing(
    source: Path, threads: int
) -> None:
    with (
        open_device("simulated", latency_s=0.001) as device,
        prefetch.open(options(source, threads), device=device) as feed,
    ):
        for _ in range(5):
            batch = next(iter(feed))
            assert (batch.data.numpy().T == 0.5 * batch.indices).all()
            assert batch.number == 0
            del batch
        taken, error = take_all(feed)
        assert (taken, error) == (list(range(NUM)), None)


def test_closing_with_kernels_in_flight_neither_hangs_nor_tears(source: Path) -> None:
    with open_device("simulated", latency_s=0.005) as device:
        with prefetch.open(options(source), device=device) as feed:
            kept = next(iter(feed))
        assert (kept.data.numpy().T == 0.5 * kept.indices).all()
        del kept


def test_a_closed_feed_keeps_the_memory_that_a_consumers_stream_may_still_read(
    source: Path,
) -> None:
    with (
        open_device("simulated") as device,
        device.make_stream("consumer") as stream,
        device.use_stream(stream),
    ):
        feed = prefetch.open(options(source), device=device)
        batch = next(iter(feed))
        out = np.zeros(batch.data.nbytes, np.uint8)
        with hold(stream):
            handed = batch.data.gpu_data()
            # A kernel knows an address only, and keeps nothing alive.
            bare = DeviceBuffer(handed.ptr, handed.nbytes, device=device)
            device.copy_to_host(out, bare, stream=stream)
            del batch, handed
            feed.close()
            del feed
        stream.synchronize()
        assert (out.view(np.float32).reshape(4, -1).T == 0.5 * np.arange(4)).all()


@pytest.mark.parametrize("threads", THREADS)
def test_batches_dropped_while_their_kernels_are_in_flight_are_not_held(
    source: Path, threads: int
) -> None:
    with (
        open_device("simulated", latency_s=0.003) as device,
        prefetch.open(options(source, threads, max_batches_held=2), device=device) as feed,
    ):
        numbers = []
        for batch in feed:
            numbers.append(batch.number)
            del batch
        assert numbers == list(range(6))


@pytest.mark.parametrize("what", ["batch", "blob", "buffer"])
def test_all_of_an_epoch_can_be_held_by_anything_of_it(source: Path, what: str) -> None:
    with open_device("simulated") as device, prefetch.open(options(source), device=device) as feed:
        held: list[Any] = []
        for batch in feed:
            buffer = batch.data.gpu_data()
            held.append({"batch": batch, "blob": batch.data, "buffer": buffer}[what])
            del batch, buffer
        assert feed.stats().slots_leased == 6
        device.current_stream().synchronize()  # it was put behind every kernel
        while held:
            first = 4 * len(held) - 4
            kept = held.pop()
            shown = peek(kept.data if what == "batch" else kept).view(np.float32)
            assert (shown.reshape(4, -1).T == 0.5 * np.arange(first, first + 4)).all()
            del kept
        assert feed.stats().slots_leased == 0


def test_the_slots_event_covers_the_kernel_also_without_labels_behind_it(source: Path) -> None:
    with (
        Remembering() as device,
        prefetch.open(options(source, 1, labels=False), device=device) as feed,
    ):
        iterator = iter(feed)
        del_me = next(iterator)
        with ExitStack() as stack:
            hold_all(device, stack)
            del del_me
            # Those that were ready, and then one that was queued on the stream that stands still.
            for _ in range(3):
                batch = next(iterator)
                del batch  # nobody has looked at it: only the slot itself knows of its kernel
            assert feed.stats().slots_draining >= 1
        taken, error = take_all(feed)
        assert (taken, error) == (list(range(NUM)), None)


@pytest.mark.parametrize("operation", ["launch", "record"])
def test_what_was_queued_before_a_push_failed_is_waited_for(operation: str) -> None:
    """The batch may be one that nobody wants any more, so that its slot is filled again."""
    with (
        FailingDevice(open_device("simulated"), fail={operation: 1}) as device,
        device.make_stream() as stream,
    ):
        transform = DeviceTransform(Transform(train=False), device)
        memory = StagedMemory(device, transform)
        lease = Lease(cast("Any", None))
        shape, dtype = (2, 1, 3, 3), np.dtype(np.float32)
        rows, _ = memory.bind(shape, dtype, None, HostBlock(device), most_rows=2)
        rows.pixels[:] = 1
        rows.begin(np.zeros((2, 3), np.uint32), windows=False)
        events: list[Any] = []
        with hold(stream) as held:
            if operation == "record":
                threading.Timer(0.05, held.release).start()
            with pytest.raises(DeviceError, match="on command"):
                memory.push(lease, stream, events)
            if operation == "launch":
                assert [event.done() for event in events] == [False]
            else:  # without an event it can only wait
                assert held.released
        memory.drop()


def test_memory_goes_with_the_feed_and_the_last_batch_without_the_garbage_collector(
    source: Path,
) -> None:
    gc.disable()
    try:
        device = open_device("simulated")
        feed = prefetch.open(options(source), device=device)
        kept = next(iter(feed)).data
        feed.close()
        assert kept.numpy()[3, 0, 0, 0] == 1.5
        assert device.memory_info().allocated_bytes > 0
        del kept
        info = device.memory_info()
        assert (info.host_allocated_bytes, info.allocated_bytes) == (0, 0)
        device.close()
    finally:
        gc.enable()


def test_memory_does_not_grow_over_epochs(source: Path) -> None:
    staged_bytes = block_bytes(4 * (16 + 3 * 8 * 8), 4 * 8)
    batch_bytes = 4 * (4 * 3 * 6 * 6)
    with open_device("simulated") as device, prefetch.open(options(source), device=device) as feed:
        for _ in range(6):
            assert take_all(feed) == (list(range(NUM)), None)
            stats = feed.stats()
            assert stats.slots == 3
            assert stats.ring_host_bytes == 3 * staged_bytes
            assert stats.ring_device_bytes == 3 * (staged_bytes + batch_bytes)
            assert stats.host_bytes <= stats.ring_host_bytes
            assert stats.device_bytes <= stats.ring_device_bytes
