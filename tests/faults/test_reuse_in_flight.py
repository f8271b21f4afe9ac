"""A slot is refilled only after everything that may still use it has passed.

Trouble seen elsewhere (BVLC/caffe PR 2998, pytorch 126946): a host buffer refilled before its
asynchronous copy had ended, so that the GPU trained on the next batch's pixels. Every record's
pixels tell which record it is, the device's queues are held or slow, and each batch that arrives
must equal its fingerprint. On the simulated device a copy reads its source when it executes, so
that a missing wait really tears.
"""

from __future__ import annotations

import gc
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import DeviceBuffer, SimulatedDevice, open_device
from memory.testing import hold, peek
from prefetch._ring.block_pool import BlockPool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from memory import Device
    from memory._simulated.stream import SimulatedStream


source = images_fixture(60)


@pytest.fixture
def device() -> Iterator[Device]:
    device = open_device("simulated", latency_s=0.002)
    yield device
    device.close()


@pytest.fixture
def poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host memory is overwritten as soon as it counts as free."""
    collect = BlockPool.collect

    def poisoning(pool: BlockPool) -> None:
        before = {*pool.free}
        collect(pool)
        for block in {*pool.free} - before:
            if block._staged is not None:
                block._staged.array.fill(0xCB)

    monkeypatch.setattr(BlockPool, "collect", poisoning)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("prefetch_depth", [1, 2, 3])
def test_with_slow_copies_every_batch_equals_its_fingerprint(
    source: Path, device: Device, threads: int, prefetch_depth: int, where: str
) -> None:
    options = {"source": source, "batch_size": 4, "prefetch": prefetch_depth, "threads": threads}
    with prefetch.open(options, transform={"where": where}, device=device) as feed:
        for _ in range(2):
            for batch in feed:
                on_device = _read_back(device, batch)
                expected = np.arange(4 * batch.number, 4 * batch.number + 4)
                assert (on_device == expected[:, None, None, None]).all()
                assert batch.label.numpy().tolist() == peek(batch.label).tolist()
                assert peek(batch.label).tolist() == expected.tolist()
                del batch


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("where", ["host", "device"])
@pytest.mark.parametrize("prefetch_depth", [1, 2, 3])
def test_batches_that_are_held_are_on_the_device_and_take_no_host_memory(
    source: Path, device: Device, prefetch_depth: int, where: str
) -> None:
    options = {"source": source, "batch_size": 4, "prefetch": prefetch_depth, "threads": 2}
    with prefetch.open(options, transform={"where": where}, device=device) as feed:
        held = list(feed)  # fifteen, over and over the same blocks
        stats = feed.stats()
        assert stats.slots_leased == len(held) == 15
        assert 0 < stats.host_bytes <= (stats.ring_host_bytes or 0)
        assert device.memory_info().num_host_buffers <= min(prefetch_depth + 1, 3)
        for batch in held:
            expected = np.arange(4 * batch.number, 4 * batch.number + 4)
            assert (_read_back(device, batch) == expected[:, None, None, None]).all()
            assert (batch.data.numpy() == expected[:, None, None, None]).all()
            assert batch.label.numpy().tolist() == expected.tolist()
        del batch, held


@pytest.mark.usefixtures("poisoned")
def test_readers_wait_for_a_copy_that_stands_still_and_go_on_after_it(
    source: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    with SlowToMove() as device:
        options = {"source": source, "batch_size": 4, "prefetch": 8, "threads": 2}
        with prefetch.open(options, device=device) as feed:
            batches = iter(feed)
            with ExitStack() as stack:
                device.stack = stack
                first = next(batches)
                # Three are on the way, whose blocks are not free; no more can be filled.
                until(lambda: feed.stats().slots_ready == 2 and feed.stats().slots_filling == 0)
                time.sleep(0.05)
                assert feed.stats().slots_ready == 2
            seen = [int(peek(batch.label)[0]) for batch in (first, *batches)]
            del first
    assert seen == list(range(0, 60, 4))


class SlowToMove(SimulatedDevice):
    """Every reader's stream is held until ``stack`` is closed."""

    stack: ExitStack | None = None

    def make_stream(self, name: str = "") -> SimulatedStream:
        stream = super().make_stream(name)
        if self.stack is not None and name.startswith("ringfeed-reader"):
            self.stack.enter_context(hold(stream))
        return stream


def _read_back(device: Device, batch: prefetch.Batch) -> npt.NDArray[np.float32]:
    """Copy a batch off the device on the consumer's stream, as a kernel would read it."""
    stream = device.current_stream()
    out = np.empty(batch.data.count() * 4, dtype=np.uint8)
    device.copy_to_host(out, batch.data.gpu_data(), stream=stream)
    stream.synchronize()
    return out.view(np.float32).reshape(batch.data.shape)


def test_a_slot_is_not_refilled_while_a_consumer_stream_may_read_it(
    source: Path, device: Device
) -> None:
    stream = device.make_stream("consumer")
    results: list[npt.NDArray[np.uint8]] = []
    with (
        prefetch.open(
            {"source": source, "batch_size": 4, "prefetch": 2, "threads": 1, "max_batches_held": 3},
            device=device,
        ) as feed,
        device.use_stream(stream),
    ):
        iterator = iter(feed)
        with hold(stream):
            for _ in range(3):
                batch = next(iterator)
                out = np.zeros(batch.data.count() * 4, dtype=np.uint8)
                handed = batch.data.gpu_data()
                # A kernel knows an address only, and keeps nothing alive.
                bare = DeviceBuffer(handed.ptr, handed.nbytes, device=device)
                device.copy_to_host(out, bare, stream=stream)
                results.append(out)
                del handed
                del batch  # the lease is gone, the queued read is not
            stats = feed.stats()
            assert stats.slots_leased == 0
            assert stats.slots_draining == 3
            assert stats.slots == 3
        stream.synchronize()
        assert next(iterator).number == 3
    for number, read in enumerate(results):
        values = read.view(np.float32).reshape(4, -1)
        assert values[:, 0].tolist() == [4.0 * number + k for k in range(4)]
        assert (values == values[:, :1]).all()
    stream.close()


def test_closing_with_held_streams_neither_hangs_nor_tears(source: Path, device: Device) -> None:
    stream = device.make_stream("consumer")
    with prefetch.open(
        {"source": source, "batch_size": 4, "prefetch": 2, "threads": 2}, device=device
    ) as feed:
        with device.use_stream(stream), hold(stream):
            batch = next(iter(feed))
            feed.close()
        stream.synchronize()
        assert (peek(batch.data).reshape(4, -1)[:, 0] == [0, 1, 2, 3]).all()
        del batch
    stream.close()


def test_closing_frees_no_memory_that_a_consumers_stream_may_still_read(
    source: Path, device: Device
) -> None:
    with device.make_stream("consumer") as stream:
        feed = prefetch.open({"source": source, "batch_size": 4}, device=device)
        with device.use_stream(stream), hold(stream):
            batch = next(iter(feed))
            out = np.zeros(batch.data.nbytes, dtype=np.uint8)
            handed = batch.data.gpu_data()
            bare = DeviceBuffer(handed.ptr, handed.nbytes, device=device)
            device.copy_to_host(out, bare, stream=stream)
            del batch, handed
            feed.close()
            del feed
            gc.collect()
        stream.synchronize()
    assert (out.view(np.float32).reshape(4, -1) == np.arange(4)[:, None]).all()


def test_the_consumers_current_stream_is_as_it_was(source: Path, device: Device) -> None:
    stream = device.make_stream("consumer")
    with (
        prefetch.open({"source": source, "batch_size": 4}, device=device) as feed,
        device.use_stream(stream),
    ):
        for batch in feed:
            assert device.current_stream() is stream
            assert batch.number >= 0
        del batch
    stream.close()


def test_a_batch_that_was_dropped_while_its_push_flies_does_not_count_as_held(
    source: Path, device: Device
) -> None:
    with prefetch.open(
        {"source": source, "batch_size": 4, "prefetch": 3, "threads": 2, "max_batches_held": 2},
        device=device,
    ) as feed:
        for batch in feed:
            del batch
        assert feed.stats().slots == 4


def test_memory_goes_with_the_feed_and_the_last_export_without_the_garbage_collector(
    source: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    gc.disable()
    try:
        device = open_device("simulated")
        feed = prefetch.open({"source": source, "batch_size": 4}, device=device)
        kept = next(iter(feed)).label.numpy()
        feed.close()
        # What the current stream may still use stays until it has come to its end.
        until(lambda: device.memory_info().allocated_bytes == 0)
        assert device.memory_info().host_allocated_bytes == 0
        assert kept.tolist() == [0, 1, 2, 3]
        device.close()
    finally:
        gc.enable()
