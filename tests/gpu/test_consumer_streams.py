"""feed.to_stream: batches handed over on streams of other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from memory import BufferMismatchError, DeviceMismatchError
from memory.testing import hold

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

BATCH = 4


class TorchStream:
    """What PyTorch's Stream offers, before it knew the protocol."""

    def __init__(self, stream: Any) -> None:
        self.cuda_stream = stream.ptr
        self.device_index = 0


class ProtocolStream:
    """What any library's may offer."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._stream.ptr)


STREAMS: dict[str, Callable[[Any], Any]] = {
    "CuPy's": lambda stream: stream,
    "PyTorch's": TorchStream,
    "__cuda_stream__": ProtocolStream,
    "a handle": lambda stream: stream.ptr,
}


source = images_fixture(60)


@pytest.mark.parametrize("stand_in", STREAMS.values(), ids=STREAMS)
def test_a_slot_is_not_refilled_while_the_stream_may_read_it(
    source: Path, cuda: Any, stand_in: Callable[[Any], Any]
) -> None:
    theirs = cupy.cuda.Stream(non_blocking=True)
    read = []
    with prefetch.open(
        {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 1},
        max_batches_held=3,
        device=cuda,
    ) as feed:
        feed.to_stream(stand_in(theirs))
        batches = iter(feed)
        with hold(cuda.stream_from(theirs)):
            for _ in range(3):
                batch = next(batches)
                out = cuda.alloc_host(batch.data.nbytes).array
                cupy.cuda.runtime.memcpyAsync(
                    out.ctypes.data,
                    batch.data.gpu_data().ptr,
                    out.nbytes,
                    cupy.cuda.runtime.memcpyDeviceToHost,
                    theirs.ptr,
                )
                read.append(out)
                del batch
            stats = feed.stats()
            assert (stats.slots_leased, stats.slots_draining, stats.slots) == (0, 3, 3)
        theirs.synchronize()
        assert next(batches).number == 3
    for number, out in enumerate(read):
        values = out.view(np.float32).reshape(BATCH, -1)
        assert (values == np.arange(BATCH)[:, None] + BATCH * number).all()


@pytest.mark.fake_only
def test_the_stream_waits_for_the_copies_and_the_current_one_does_not(
    source: Path, cuda: Any, fake: Any
) -> None:
    fake.configure(latency_us=100_000)
    theirs = cupy.cuda.Stream(non_blocking=True)
    with prefetch.open({"source": source, "batch_size": BATCH, "threads": 1}, device=cuda) as feed:
        feed.to_stream(theirs)
        batch = next(iter(feed))
        mine = cuda.current_stream().record()
        mine.synchronize()
        assert not theirs.done
        out = cuda.alloc_host(batch.data.nbytes).array
        cuda.copy_to_host(out, batch.data.data._gpu, stream=cuda.stream_from(theirs))
        theirs.synchronize()
        assert (out.view(np.float32).reshape(BATCH, -1) == np.arange(BATCH)[:, None]).all()
        del batch


def test_what_is_no_stream_of_the_device_is_refused(
    source: Path, two_devices: tuple[Any, Any]
) -> None:
    with cupy.cuda.Device(1):
        elsewhere = cupy.cuda.Stream(non_blocking=True)
    with prefetch.open({"source": source, "batch_size": BATCH}, device=two_devices[0]) as feed:
        with pytest.raises(DeviceMismatchError, match="belongs to cuda:1"):
            feed.to_stream(elsewhere)
        with pytest.raises(BufferMismatchError, match="a stream of this device"):
            feed.to_stream("stream")
        assert next(iter(feed)).number == 0


def test_a_librarys_stream_outlasts_a_loaded_state_although_the_device_is_opened_anew(
    source: Path,
) -> None:
    theirs = cupy.cuda.Stream(non_blocking=True)
    with prefetch.open({"source": source, "batch_size": BATCH, "device": "cuda"}) as feed:
        feed.to_stream(theirs)
        assert next(iter(feed)).number == 0
        feed.load_state_dict(feed.state_dict())
        batch = next(iter(feed))
        assert batch.number == 1
        out = np.empty(batch.data.nbytes, np.uint8)
        cupy.cuda.runtime.memcpyAsync(
            out.ctypes.data,
            batch.data.gpu_data().ptr,
            out.nbytes,
            cupy.cuda.runtime.memcpyDeviceToHost,
            theirs.ptr,
        )
        theirs.synchronize()
        assert (out.view(np.float32).reshape(BATCH, -1) == 4 + np.arange(BATCH)[:, None]).all()
        del batch


def test_a_slot_is_not_refilled_before_what_a_recorded_stream_was_given_has_run(
    source: Path, cuda: Any
) -> None:
    theirs = cupy.cuda.Stream(non_blocking=True)
    read = []
    with prefetch.open(
        {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 1}, device=cuda
    ) as feed:
        batches = iter(feed)
        with hold(cuda.stream_from(theirs)):
            for _ in range(3):
                batch = next(batches)
                batch.record_stream(TorchStream(theirs))
                out = cuda.alloc_host(batch.data.nbytes).array
                cupy.cuda.runtime.memcpyAsync(
                    out.ctypes.data,
                    batch.data.cupy().data.ptr,
                    out.nbytes,
                    cupy.cuda.runtime.memcpyDeviceToHost,
                    theirs.ptr,
                )
                read.append(out)
                del batch
            assert feed.stats().slots_draining == 3
        theirs.synchronize()
        assert next(batches).number == 3
    for number, out in enumerate(read):
        values = out.view(np.float32).reshape(BATCH, -1)
        assert (values == np.arange(BATCH)[:, None] + BATCH * number).all()
