"""A consumer's stream that is captured into a CUDA graph: refused in words, and nothing torn."""

from __future__ import annotations

import gc
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import Blob, DeviceError
from memory.testing import hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

runtime = cupy.cuda.runtime
BATCH = 4
REFUSED = r"is being captured into a CUDA graph.*copy each batch"


source = images_fixture(40)


@pytest.fixture
def theirs() -> Any:
    return cupy.cuda.Stream(non_blocking=True)


@contextmanager
def captured(stream: Any) -> Iterator[None]:
    """Capture a stream; the capture must have come to no harm."""
    stream.begin_capture()
    try:
        yield
    finally:
        runtime.graphDestroy(runtime.streamEndCapture(stream.ptr))


def test_what_the_stream_cannot_do_is_refused_and_the_capture_comes_to_no_harm(
    cuda: Any, theirs: Any
) -> None:
    stream, buffer = cuda.stream_from(theirs), cuda.alloc_device(16)
    passed = cuda.current_stream().record()
    calls: list[Callable[[], object]] = [
        stream.record,
        stream.synchronize,
        lambda: stream.wait(passed),
        lambda: cuda.fill(buffer, 0, stream=stream),
        lambda: cuda.copy_to_device(buffer, np.zeros(16, np.uint8), stream=stream),
    ]
    with captured(theirs):
        for call in calls:
            with pytest.raises(DeviceError, match=REFUSED):
                call()
    for call in calls:
        call()


def test_no_batch_is_exported_to_it(cuda: Any, theirs: Any) -> None:
    blob = Blob((4,), device=cuda)
    blob.mutable_cpu_data()[:] = 7
    blob.gpu_data()
    with captured(theirs):
        with pytest.raises(DeviceError, match=REFUSED):
            blob.__dlpack__(stream=theirs.ptr)
        for export in (blob.cupy, lambda: blob.__cuda_array_interface__):
            with theirs, pytest.raises(DeviceError, match=REFUSED):
                export()
    with theirs:
        assert blob.cupy().get().tolist() == [7] * 4


def test_next_says_so(source: Path, cuda: Any, theirs: Any) -> None:
    with prefetch.open({"source": source, "batch_size": BATCH}, device=cuda) as feed:
        feed.to_stream(theirs)
        batches = iter(feed)
        assert next(batches).number == 0
        with captured(theirs), pytest.raises(DeviceError, match=REFUSED):
            next(batches)


def test_a_batch_let_go_meanwhile_is_not_filled_again(source: Path, cuda: Any, theirs: Any) -> None:
    with prefetch.open(
        {"source": source, "batch_size": BATCH, "prefetch": 1, "threads": 1}, device=cuda
    ) as feed:
        feed.to_stream(theirs)
        batches = iter(feed)
        with hold(cuda.stream_from(theirs)):
            batch = next(batches)
            out = cuda.alloc_host(batch.data.nbytes).array
            # As a kernel reads it: by its address, which keeps nothing alive.
            runtime.memcpyAsync(
                out.ctypes.data,
                batch.data.gpu_data().ptr,
                out.nbytes,
                runtime.memcpyDeviceToHost,
                theirs.ptr,
            )
            with captured(theirs):
                del batch
                with pytest.raises(DeviceError, match=REFUSED):
                    deque(batches, maxlen=0)
        theirs.synchronize()
        values = out.view(np.float32).reshape(BATCH, -1)
        assert (values == np.arange(BATCH)[:, None]).all()


def test_work_given_before_keeps_what_it_uses(cuda: Any, theirs: Any) -> None:
    target, back = cuda.alloc_device(64), cuda.alloc_host(64).array
    stream = cuda.stream_from(theirs)
    with hold(stream):
        source = cuda.alloc_host(64).array
        source[:] = 5
        cuda.copy_to_device(target, source, stream=stream)
        # An event that only a capture could follow would be part of the graph.
        assert not stream.state.keep_alive.has_uncovered
        with captured(theirs):
            del source
            gc.collect()
            for _ in range(4):
                cuda.alloc_host(64).array[:] = 9
    cuda.copy_to_host(back, target, stream=stream)
    stream.synchronize()
    assert set(back.tolist()) == {5}


@pytest.mark.fake_only
def test_a_call_that_a_capture_elsewhere_forbids_says_what_to_do(cuda: Any, fake: Any) -> None:
    fake.inject("cuMemAlloc@1=900")
    with pytest.raises(DeviceError, match=REFUSED):
        cuda.alloc_device(64)
