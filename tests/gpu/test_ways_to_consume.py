"""Ways to consume a feed: threads, event loops, streams and devices that are current."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import DeviceBuffer
from memory.testing import hold

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BATCH = 4
BATCHES = 10
runtime = cupy.cuda.runtime


source = images_fixture(BATCH * BATCHES)


def options(source: Path, **more: Any) -> dict[str, Any]:
    return {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 2, **more}


class Reader:
    """Reads batches on the current stream as kernels do: by address, which keeps nothing alive."""

    def __init__(self, device: Any) -> None:
        self.device = device
        self.found: list[Any] = []

    def read(self, batch: prefetch.Batch) -> None:
        host = self.device.alloc_host(batch.data.nbytes).array
        bare = DeviceBuffer(batch.data.gpu_data().ptr, host.nbytes, device=self.device)
        self.device.copy_to_host(host, bare, stream=self.device.current_stream())
        self.found.append(host)

    def check(self) -> None:
        """Compare all batches of an epoch; what has read them must have run."""
        assert len(self.found) == BATCHES
        for number, host in enumerate(self.found):
            values = host.view(np.float32).reshape(BATCH, -1)
            assert (values == np.arange(BATCH)[:, None] + BATCH * number).all()


def slow(fake: Any) -> None:
    fake.configure(latency_us=500, jitter_us=500, poison_dst=1)


@pytest.mark.fake_only
@pytest.mark.parametrize("non_blocking", [False, True])
def test_inside_a_stream_of_cupys(source: Path, cuda: Any, fake: Any, non_blocking: bool) -> None:  # noqa: FBT001 - a parameter
    slow(fake)
    reader = Reader(cuda)
    with (
        prefetch.open(options(source), device=cuda) as feed,
        cupy.cuda.Stream(non_blocking=non_blocking) as stream,
    ):
        for batch in feed:
            reader.read(batch)
            del batch
        assert cupy.cuda.get_current_stream() == stream
        stream.synchronize()
    reader.check()


@pytest.mark.fake_only
def test_inside_another_device(source: Path, two_devices: tuple[Any, Any], fake: Any) -> None:
    slow(fake)
    first, _ = two_devices
    reader = Reader(first)
    with cupy.cuda.Device(1), prefetch.open(options(source), device=first) as feed:
        with cupy.cuda.Stream(non_blocking=True) as elsewhere:
            for batch in feed:
                reader.read(batch)
                del batch
                assert runtime.getDevice() == 1
                assert cupy.cuda.get_current_stream() == elsewhere
        first.current_stream().synchronize()
    reader.check()


@pytest.mark.fake_only
def test_on_another_thread_than_the_one_that_opened_it(source: Path, cuda: Any, fake: Any) -> None:
    slow(fake)
    reader = Reader(cuda)

    def consume() -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            for batch in feed:
                reader.read(batch)
                del batch
            stream.synchronize()

    with prefetch.open(options(source), device=cuda) as feed:
        thread = threading.Thread(target=consume)
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    reader.check()


@pytest.mark.fake_only
def test_in_turns_on_two_threads_with_a_stream_each(source: Path, cuda: Any, fake: Any) -> None:
    slow(fake)
    reader, turn = Reader(cuda), threading.Lock()
    with prefetch.open(options(source), device=cuda) as feed:
        batches = iter(feed)

        def consume() -> None:
            with cupy.cuda.Stream(non_blocking=True) as stream:
                while True:
                    with turn:
                        batch = next(batches, None)
                        if batch is None:
                            break
                        reader.read(batch)
                        del batch
                stream.synchronize()

        threads = [threading.Thread(target=consume) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
            assert not thread.is_alive()
    reader.check()


@pytest.mark.fake_only
def test_in_an_event_loop_of_another_thread(source: Path, cuda: Any, fake: Any) -> None:
    slow(fake)
    reader = Reader(cuda)

    async def consume() -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            async for batch in feed:
                reader.read(batch)
                del batch
            stream.synchronize()

    with prefetch.open(options(source), device=cuda) as feed:
        thread = threading.Thread(target=lambda: asyncio.run(consume()))
        thread.start()
        thread.join(60)
        assert not thread.is_alive()
    reader.check()


STREAMS: dict[str, Callable[[], Any]] = {
    "null": lambda: cupy.cuda.Stream.null,
    "per-thread default": lambda: cupy.cuda.Stream.ptds,
    "blocking": cupy.cuda.Stream,
    "non-blocking": lambda: cupy.cuda.Stream(non_blocking=True),
}


@pytest.mark.parametrize("make", STREAMS.values(), ids=STREAMS)
def test_whatever_stream_is_current_a_slot_waits_for_it(
    source: Path, cuda: Any, make: Callable[[], Any]
) -> None:
    reader, chosen = Reader(cuda), options(source, threads=1, max_batches_held=3)
    with prefetch.open(chosen, device=cuda) as feed, make() as stream:
        batches = iter(feed)
        with hold(cuda.current_stream()):
            for _ in range(3):
                batch = next(batches)
                reader.read(batch)
                del batch
            stats = feed.stats()
            assert (stats.slots_leased, stats.slots_draining, stats.slots) == (0, 3, 3)
        for batch in batches:
            reader.read(batch)
            del batch
        stream.synchronize()
    reader.check()


@pytest.mark.fake_only
def test_with_the_per_thread_default_stream_for_cupys_default(
    source: Path, run_python: Any
) -> None:
    code = f"""
import cupy, fakecuda, numpy as np, prefetch, threading
from memory import DeviceBuffer
assert cupy.cuda.get_current_stream() == cupy.cuda.Stream.ptds
options = {{"source": {str(source)!r}, "batch_size": 4, "prefetch": 2, "threads": 2}}
fakecuda.configure(latency_us=500, jitter_us=500, poison_dst=1)
found = []
def consume(feed):
    device = feed.device
    for batch in feed:
        assert device.current_stream().name == "per-thread default"
        assert batch.data.__cuda_array_interface__["stream"] == 2
        array = batch.data.cupy()
        host = device.alloc_host(array.nbytes).array
        bare = DeviceBuffer(array.data.ptr, array.nbytes, device=device)
        device.copy_to_host(host, bare, stream=device.current_stream())
        found.append(host)
        del batch, array
    cupy.cuda.Stream.ptds.synchronize()
with prefetch.open(options, device="cuda") as feed:
    consume(feed)
    thread = threading.Thread(target=consume, args=(feed,))
    thread.start()
    thread.join(60)
for number, host in enumerate(found):
    values = host.view(np.float32).reshape(4, -1)
    assert (values == np.arange(4)[:, None] + 4 * (number % 10)).all()
print(len(found), fakecuda.stat("races"), fakecuda.stat("hazards"))
"""
    done = run_python(code, CUPY_CUDA_PER_THREAD_DEFAULT_STREAM="1")
    assert done.stdout.split() == ["20", "0", "0"], done.stderr
