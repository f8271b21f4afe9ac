"""CUDA graphs that others capture while a feed runs: nothing is torn, and no capture is spoilt.

``torch.cuda.graph()`` captures in global mode: meanwhile CUDA refuses many a call of any thread,
and whoever makes one spoils the capture.
"""

from __future__ import annotations

import gc
import threading
import time
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import DeviceError
from memory.testing import hold

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

runtime = cupy.cuda.runtime
BATCH = 4
GLOBAL, THREAD_LOCAL = runtime.streamCaptureModeGlobal, runtime.streamCaptureModeThreadLocal


source = images_fixture(400)


@pytest.fixture
def theirs() -> Any:
    return cupy.cuda.Stream(non_blocking=True)


@contextmanager
def captured_elsewhere(mode: int) -> Iterator[None]:
    """Capture a graph on a stream that no feed knows of; fails where the capture was spoilt."""
    stream = cupy.cuda.Stream(non_blocking=True)
    runtime.streamBeginCapture(stream.ptr, mode)
    try:
        yield
    finally:
        runtime.graphDestroy(runtime.streamEndCapture(stream.ptr))


class Reading:
    """A consumer's work that reads a batch by its address, on a stream that does not get to it."""

    def __init__(self, device: Any, theirs: Any, batch: prefetch.Batch) -> None:
        self._theirs = theirs
        self._first = int(batch.indices[0])
        self._out = device.alloc_host(batch.data.nbytes).array
        runtime.memcpyAsync(
            self._out.ctypes.data,
            batch.data.gpu_data().ptr,
            self._out.nbytes,
            runtime.memcpyDeviceToHost,
            theirs.ptr,
        )

    def found(self) -> list[float]:
        """Return the first pixel of each image, when the stream has got to it."""
        self._theirs.synchronize()
        images = self._out.view(np.float32).reshape(BATCH, -1)
        assert (images == images[:, :1]).all()
        return [float(value) for value in images[:, 0]]


def opened(source: Path, device: Any) -> prefetch.Feed:
    options: dict[str, Any] = {"source": source, "batch_size": BATCH, "prefetch": 1, "threads": 1}
    return prefetch.open(options, device=device)


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL], ids=["global", "thread local"])
def test_a_capture_elsewhere_succeeds_and_no_batch_in_use_is_filled_again(
    source: Path, cuda: Any, theirs: Any, until: Callable[[Callable[[], bool]], None], mode: int
) -> None:
    with opened(source, cuda) as feed:
        feed.to_stream(theirs)
        batches = iter(feed)
        with hold(cuda.stream_from(theirs)):
            batch = next(batches)
            reading = Reading(cuda, theirs, batch)
            with captured_elsewhere(mode):
                del batch
                # The reader takes the slot back meanwhile, and asks for its last uses.
                until(lambda: feed.stats().slots_draining == 1)
            following = next(batches)
            assert following.number == 1
            del following
        assert reading.found() == [0, 1, 2, 3]


@pytest.mark.fake_only
@pytest.mark.parametrize("status", [900, 906, 400], ids=["capture", "implicit", "no handle"])
def test_a_status_that_says_nothing_of_the_work_frees_no_slot(
    source: Path,
    cuda: Any,
    theirs: Any,
    fake: Any,
    until: Callable[[Callable[[], bool]], None],
    status: int,
) -> None:
    with opened(source, cuda) as feed:
        feed.to_stream(theirs)
        batches = iter(feed)
        with hold(cuda.stream_from(theirs)):
            batch = next(batches)
            reading = Reading(cuda, theirs, batch)
            fake.inject(f"cuEventQuery@1+={status},cuEventSynchronize@1+={status}")
            del batch
            until(lambda: feed.stats().slots_draining == 1)
            if status == 400:  # it may never be known again: the feed says so, in place of a batch
                until(lambda: _fails(feed, batches))
            else:
                until(lambda: feed.stats().slots_ready == 1)
                assert feed.stats().slots_draining == 1
            fake.inject(None)
        assert reading.found() == [0, 1, 2, 3]


def _fails(feed: prefetch.Feed, batches: Iterator[prefetch.Batch]) -> bool:
    try:
        next(batches)
    except DeviceError as error:
        assert "cannot tell any more whether its work has run" in str(error)  # noqa: PT017
        return feed.closed
    return False


@pytest.mark.fake_only
def test_memory_refused_to_be_freed_during_a_capture_is_freed_after_it(
    cuda: Any, fake: Any, until: Callable[[Callable[[], bool]], None]
) -> None:
    before = fake.stat("mem_used"), fake.stat("pinned_used")
    block, pinned = cuda.alloc_device(1 << 20), cuda.alloc_host(1 << 20)
    fake.inject("cuMemFree@1=900,cuMemFreeHost@1=900")
    del block
    pinned.close()
    del pinned
    gc.collect()
    until(lambda: (fake.stat("mem_used"), fake.stat("pinned_used")) == before)


@pytest.mark.fake_only
def test_nothing_waits_for_the_whole_device_before_closing(
    source: Path, cuda: Any, fake: Any
) -> None:
    waits = fake.stat("device_waits")
    with opened(source, cuda) as feed:
        held = [batch for _, batch in zip(range(6), feed, strict=False)]  # the ring grows
        held.clear()
        for _ in feed:
            pass
    cuda.context.deferred_free.settle()
    assert fake.stat("device_waits") == waits


def test_waiting_for_what_a_batch_is_kept_until_spoils_no_capture(
    source: Path, cuda: Any, theirs: Any, until: Callable[[Callable[[], bool]], None]
) -> None:
    with opened(source, cuda) as feed:
        batch = next(iter(feed))
        with hold(cuda.stream_from(theirs)):
            event = theirs.record()
            with captured_elsewhere(GLOBAL):
                batch.keep_until(event)
                del batch
                time.sleep(0.1)  # the thread waits meanwhile
            assert feed.stats().slots_draining == 1
        until(lambda: feed.stats().slots_draining == 0)


def test_a_callers_thread_is_still_stopped_by_its_own_capture(cuda: Any, theirs: Any) -> None:
    failed = []

    def allocate_in_a_capture() -> None:
        theirs.begin_capture(GLOBAL)
        try:
            cuda.alloc_device(64)
        except DeviceError as error:
            failed.append(str(error))
        finally:
            with pytest.raises(runtime.CUDARuntimeError):
                runtime.graphDestroy(runtime.streamEndCapture(theirs.ptr))

    thread = threading.Thread(target=allocate_in_a_capture)
    thread.start()
    thread.join()
    assert len(failed) == 1
    assert "is being captured into a CUDA graph" in failed[0]


@pytest.mark.fake_only
@pytest.mark.parametrize("call", ["cuEventSynchronize@1+=900", "cuEventSynchronize@1=400"])
@pytest.mark.parametrize("own", [True, False], ids=["our stream", "the caller's"])
def test_what_work_in_flight_holds_outlasts_an_error_that_says_nothing_of_the_work(
    cuda: Any,
    theirs: Any,
    fake: Any,
    until: Callable[[Callable[[], bool]], None],
    call: str,
    *,
    own: bool,
) -> None:
    stream = cuda.make_stream() if own else cuda.stream_from(theirs)
    target, source = cuda.alloc_device(64), cuda.alloc_host(64)
    held = weakref.ref(target)
    with hold(stream):
        fake.inject(call)
        cuda.copy_to_device(target, source.array, stream=stream)
        del target
        time.sleep(0.2)  # the waiter asks meanwhile
        gc.collect()
        assert held() is not None
        assert "copy_to_device" in stream.state.keep_alive.pending()
        fake.inject(None)
    until(lambda: held() is None)
    stream.close()
    source.close()
