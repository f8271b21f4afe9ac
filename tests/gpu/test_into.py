"""feed.into: batches copied into arrays that stay where they are, as CUDA graphs need it."""

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


class ByInterface:
    """What PyTorch's tensors offer, and many others."""

    def __init__(self, array: Any, *, read_only: bool = False) -> None:
        interface = array.__cuda_array_interface__
        self.__cuda_array_interface__ = {**interface, "data": (interface["data"][0], read_only)}


class ByDlpack:
    """What offers DLPack only."""

    def __init__(self, array: Any) -> None:
        self.__dlpack_device__ = array.__dlpack_device__
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**options)


source = images_fixture(18)


@pytest.fixture
def theirs() -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def opened(source: Path, device: Any, **options: Any) -> prefetch.Feed:
    return prefetch.open(
        {"source": source, "batch_size": BATCH, "prefetch": 2, "threads": 1, **options},
        device=device,
    )


def static(source: Path, fill: float = -1) -> Any:
    """Return an array on the GPU of a batch's dtype and shape."""
    with opened(source, "cpu") as feed:
        shape = next(iter(feed)).data.shape
    array = cupy.empty(shape, np.float32)
    array.set(np.full(shape, fill, np.float32))
    cupy.cuda.get_current_stream().synchronize()
    return array


@pytest.mark.parametrize("stand_in", [lambda array: array, ByInterface, ByDlpack])
def test_every_batch_lies_at_the_same_address(
    source: Path, cuda: Any, theirs: Any, stand_in: Callable[[Any], Any]
) -> None:
    images, labels = static(source), cupy.empty(BATCH, np.int64)
    address, out = images.data.ptr, np.empty(images.shape, np.float32)
    with opened(source, cuda) as feed:
        feed.to_stream(theirs)
        seen = 0
        for filled in feed.into(stand_in(images), stand_in(labels)):
            # As a graph does: by address, on the consumer's stream.
            cupy.cuda.runtime.memcpyAsync(
                out.ctypes.data,
                address,
                out.nbytes,
                cupy.cuda.runtime.memcpyDeviceToHost,
                theirs.ptr,
            )
            theirs.synchronize()
            rows = out[: filled.n].reshape(filled.n, -1)
            assert (rows == filled.indices[:, None]).all()
            seen += filled.n
    assert seen == 18
    assert filled.n == 2
    assert (out[2:].reshape(2, -1) == [[14], [15]]).all()  # as they were


def test_a_stream_that_is_behind_holds_no_batch_and_tears_none(
    source: Path, cuda: Any, theirs: Any
) -> None:
    images, read = static(source), []
    with opened(source, cuda, max_batches_held=1) as feed:
        feed.to_stream(theirs)
        batches = iter(feed.into(images))
        with hold(cuda.stream_from(theirs)):
            for _ in range(3):
                next(batches)
                out = cuda.alloc_host(images.nbytes).array
                cupy.cuda.runtime.memcpyAsync(
                    out.ctypes.data,
                    images.data.ptr,
                    out.nbytes,
                    cupy.cuda.runtime.memcpyDeviceToHost,
                    theirs.ptr,
                )
                read.append(out)
            stats = feed.stats()
            assert (stats.slots_leased, stats.slots_draining, stats.slots) == (0, 3, 3)
        theirs.synchronize()
        assert next(batches).number == 3
    for number, out in enumerate(read):
        values = out.view(np.float32).reshape(BATCH, -1)
        assert (values == np.arange(BATCH)[:, None] + BATCH * number).all()


def test_an_array_on_the_host_is_filled_too(source: Path, cuda: Any) -> None:
    images = static(source).get()
    with opened(source, cuda) as feed:
        filled = next(iter(feed.into(images)))
        feed.device.current_stream().synchronize()
        assert (images.reshape(BATCH, -1) == filled.indices[:, None]).all()


def test_what_does_not_fit_is_refused(source: Path, two_devices: tuple[Any, Any]) -> None:
    images = static(source)
    with opened(source, two_devices[0]) as feed:
        with pytest.raises(BufferMismatchError, match="found a read-only one"):
            feed.into(ByInterface(images, read_only=True))
        with pytest.raises(BufferMismatchError, match="C-contiguous, found float32 of shape"):
            feed.into(images[:, ::2])
        with pytest.raises(BufferMismatchError, match="or an array on cuda:0 with"):
            feed.into("array")
        with pytest.raises(BufferMismatchError, match=r"data: expected float32 .* found float16"):
            next(iter(feed.into(cupy.empty(images.shape, np.float16))))
        with cupy.cuda.Device(1):
            elsewhere = cupy.empty(images.shape, np.float32)
        with pytest.raises(DeviceMismatchError, match="on another GPU"):
            feed.into(elsewhere)
        assert next(iter(feed.into(images))).number == 0
