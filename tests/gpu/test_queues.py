"""What a GPU may do with its queues: bound them, and call all host functions one by one.

And the flags by which streams, events and pinned memory cost no more than they must.
"""

from __future__ import annotations

import gc
import threading
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import Blob, DeviceBuffer
from memory._cuda import maths
from memory.testing import hold

if TYPE_CHECKING:
    from pathlib import Path

BATCH = 4
BATCHES = 12
COSTLY = ("hostallocs_not_portable", "streams_blocking", "events_timed", "events_spinning")

pytestmark = pytest.mark.fake_only


source = images_fixture(BATCH * BATCHES)


def options(source: Path, **transform: Any) -> dict[str, Any]:
    chosen = {"source": source, "batch_size": BATCH, "threads": 2, "prefetch": 2}
    return {**chosen, "transform": transform}


def read_later(device: Any, batch: prefetch.Batch) -> Any:
    """Queue a copy of a batch's data to the host, which keeps nothing of the batch."""
    out = device.alloc_host(batch.data.nbytes).array
    bare = DeviceBuffer(batch.data.gpu_data().ptr, batch.data.nbytes, device=device)
    device.copy_to_host(out, bare, stream=device.current_stream())
    return out.view(np.float32).reshape(BATCH, -1)


@pytest.mark.parametrize("where", ["host", "device"])
def test_flags_are_those_that_cost_nothing(source: Path, cuda: Any, fake: Any, where: str) -> None:
    before = [fake.stat(name) for name in COSTLY]
    theirs = cupy.cuda.Stream(non_blocking=True)
    with prefetch.open(options(source, where=where), device=cuda) as feed:
        for batch in feed:
            batch.data.__dlpack__(stream=theirs.ptr)
            batch.label.numpy()
            del batch
    blob = Blob((8,), np.float32, device=cuda)
    blob.mutable_cpu_data()[:] = 1
    blob.scale_data(2.0)
    assert blob.asum_data() == 16
    assert [fake.stat(name) for name in COSTLY] == before


def test_a_full_stream_of_the_callers_delays_its_own_calls_and_tears_nothing(
    source: Path, cuda: Any, fake: Any
) -> None:
    fake.configure(queue=6)
    theirs = cupy.cuda.Stream(non_blocking=True)
    seen: list[Any] = []

    def consume() -> None:
        with prefetch.open(options(source), device=cuda) as feed, theirs:
            for batch in feed:
                seen.append(read_later(cuda, batch))
                del batch

    waited = fake.stat("queue_waits")
    with fake.hold(theirs):
        thread = threading.Thread(target=consume)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
    thread.join(30)
    assert not thread.is_alive()
    theirs.synchronize()
    assert fake.stat("queue_waits") > waited
    for number, data in enumerate(seen):
        assert (data == np.arange(BATCH)[:, None] + BATCH * number).all()
    assert len(seen) == BATCHES


def test_a_full_stream_of_ours_holds_up_no_other_stream(cuda: Any, fake: Any, until: Any) -> None:
    fake.configure(queue=8)
    source, target = cuda.alloc_host(64).array, cuda.alloc_device(64)
    with cuda.make_stream() as full, cuda.make_stream() as free:

        def fill() -> None:
            for _ in range(40):
                cuda.copy_to_device(target, source, stream=full)

        waited = fake.stat("queue_waits")
        with fake.hold(full):
            thread = threading.Thread(target=fill)
            thread.start()
            until(lambda: fake.stat("queue_waits") > waited)
            others = cuda.alloc_device(64)
            cuda.copy_to_device(others, source, stream=free)
            free.synchronize()
            del others
            gc.collect()
            assert thread.is_alive()
        thread.join(30)
        assert not thread.is_alive()
        full.synchronize()


def test_a_host_function_that_never_returns_holds_up_no_feed(source: Path, cuda: Any) -> None:
    theirs = cuda.stream_from(cupy.cuda.Stream(non_blocking=True))
    with prefetch.open(options(source), device=cuda) as feed, hold(theirs):
        for number, batch in enumerate(feed):
            cuda.current_stream().synchronize()
            assert (batch.data.numpy().reshape(BATCH, -1)[:, 0] // BATCH == number).all()
            del batch


class TestKernelsAreLoadedBeforeTheirFirstLaunch:
    def test_one_that_is_compiled(self, cuda: Any, fake: Any) -> None:
        # A text of its own: CuPy keeps what it has compiled and loaded.
        kernel = cuda.compile(maths.SOURCE + "// here", "ringfeed_scale_float")
        before, target = fake.stat("lazy_loads"), cuda.alloc_device(64)
        with cuda.make_stream() as busy, cuda.make_stream() as stream, fake.hold(busy) as held:
            event = busy.record()
            timer = threading.Timer(5, held.release)  # a launch that waits fails, and hangs not
            timer.start()
            kernel((1,), (16,), (target, np.float32(1), np.uint64(16)), stream=stream)
            stream.synchronize()
            timer.cancel()
            assert not event.done()
        assert fake.stat("lazy_loads") == before

    def test_those_of_the_maths(
        self, cuda: Any, fake: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(maths, "SOURCE", maths.SOURCE + "// there")
        maths._kernel.cache_clear()
        before = fake.stat("lazy_loads")
        blob = Blob((2,), np.float64, device=cuda)
        blob.mutable_gpu_data()
        blob.mutable_cpu_data()[:] = [1, -2]
        blob.mutable_cpu_diff()[:] = [-1, 1]
        blob.gpu_data()
        blob.update()
        blob.scale_data(2.0)
        assert (blob.asum_data(), blob.sumsq_data()) == (10, 52)
        assert fake.stat("lazy_loads") == before
        maths._kernel.cache_clear()
