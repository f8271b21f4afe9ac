"""Batches as arrays of other libraries: the same memory, the right stream, and for how long."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import cupy
import numpy as np
import pytest
from databases import images_fixture
from dlpack_tensor import Tensor

import prefetch
from memory import Blob, DtypeError, Head, bfloat16, open_device
from memory.testing import hold, peek

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

EXPORTS: dict[str, Callable[[Any], Any]] = {
    "cupy()": lambda blob: blob.cupy(),
    "dlpack": cupy.from_dlpack,
    "cuda array interface": cupy.asarray,
}


source = images_fixture(40)


def filled(device: Any) -> Blob:
    """Return a blob whose newest bytes, 0 to 5, are on the host."""
    blob = Blob((2, 3), np.float32, device=device)
    blob.mutable_cpu_data()[:] = [[0, 1, 2], [3, 4, 5]]
    return blob


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_an_export_is_the_same_memory_in_shape_and_dtype(
    cuda: Any, export: Callable[[Any], Any]
) -> None:
    blob = filled(cuda)
    array = export(blob)
    assert (array.shape, array.dtype) == ((2, 3), np.float32)
    assert array.data.ptr == blob.gpu_data().ptr
    assert array.get().tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_what_is_written_to_an_export_is_the_blobs(cuda: Any, export: Callable[[Any], Any]) -> None:
    blob = filled(cuda)
    array = export(blob)
    array[:] = cupy.zeros((2, 3), np.float32)
    assert blob.data.head is Head.HEAD_AT_GPU
    assert not blob.numpy().any()


def test_a_look_leaves_the_head_where_it_is(cuda: Any) -> None:
    blob = filled(cuda)
    assert blob.cupy(writable=False).get().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert blob.data.head is Head.SYNCED


def test_a_blob_of_no_elements_is_exported_too(cuda: Any) -> None:
    assert Blob((0, 3), device=cuda).cupy().shape == (0, 3)


def test_the_interface_names_the_current_stream(cuda: Any) -> None:
    blob = filled(cuda)
    assert blob.__cuda_array_interface__["version"] == 3
    assert blob.__cuda_array_interface__["stream"] == 1  # the null stream
    with cuda.make_stream() as stream, cuda.use_stream(stream):
        assert blob.__cuda_array_interface__["stream"] == stream.handle


def test_a_consumer_that_names_its_stream_is_put_behind_the_push(cuda: Any) -> None:
    blob = filled(cuda)
    theirs = cupy.cuda.Stream(non_blocking=True)
    back = cuda.alloc_host(blob.nbytes).array
    with cuda.make_stream() as uploads:
        blob.mutable_gpu_data()
        blob.mutable_cpu_data()[:] = 7
        with hold(uploads):
            blob.async_gpu_push(uploads)
            # The host waits for nothing here.
            capsule = blob.__dlpack__(stream=theirs.ptr)
            device_side = blob.data._gpu
            assert device_side is not None
            cupy.cuda.runtime.memcpyAsync(
                back.ctypes.data,
                device_side.ptr,
                blob.nbytes,
                cupy.cuda.runtime.memcpyDeviceToHost,
                theirs.ptr,
            )
            assert not theirs.done
        theirs.synchronize()
    assert set(back.view(np.float32).tolist()) == {7}
    del capsule, device_side


@pytest.mark.parametrize("max_version", [None, (1, 0)])
def test_bfloat16_is_exported_by_its_name(cuda: Any, max_version: tuple[int, int] | None) -> None:
    blob = Blob((2, 3), bfloat16(), device=cuda)
    blob.mutable_cpu_data()[:] = [[0, 1, 2], [3, 4, 5]]
    tensor = Tensor.of(blob.__dlpack__(max_version=max_version))
    assert (4, 16, 1) == (tensor.code, tensor.bits, tensor.lanes)  # kDLBfloat
    assert (2, cuda.ordinal) == (tensor.device_type, tensor.device_id)
    assert blob.gpu_data().ptr == tensor.data + tensor.byte_offset
    for array in (blob.cupy(), cupy.from_dlpack(blob)):
        assert (array.shape, array.dtype) == ((2, 3), bfloat16())
        assert array.data.ptr == blob.gpu_data().ptr
        assert array.get().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_the_interface_has_no_name_for_bfloat16_and_says_so(cuda: Any) -> None:
    blob = Blob((2, 3), bfloat16(), device=cuda)
    with pytest.raises(DtypeError, match="no name for bfloat16 as DLPack has"):
        cupy.asarray(blob)


@pytest.mark.parametrize("stream", [None, 0, 1, 2, -1])
def test_every_number_of_a_stream_that_dlpack_knows_is_taken(cuda: Any, stream: int | None) -> None:
    blob = filled(cuda)
    assert blob.__dlpack__(stream=stream) is not None  # PyTorch's 0 without CuPy's warning
    assert blob.__dlpack__(stream=stream, max_version=(1, 0)) is not None


def test_dlpack_names_the_gpu_and_gives_the_host_its_copy_on_request(
    two_devices: tuple[Any, Any],
) -> None:
    for device in two_devices:
        blob = Blob((3,), np.int64, device=device)
        blob.mutable_cpu_data()[:] = [1, 2, 3]
        assert blob.__dlpack_device__() == (2, device.ordinal)
        host = np.from_dlpack(blob, device="cpu")
        assert host.tolist() == [1, 2, 3]
        with cupy.cuda.Device(device.ordinal):
            assert cupy.from_dlpack(blob).device.id == device.ordinal


def test_devices_without_cuda_memory_offer_none_of_it() -> None:
    with open_device("simulated") as device:
        blob = Blob((2,), device=device)
        assert not hasattr(blob, "__cuda_array_interface__")
        assert blob.__dlpack_device__() == (1, 0)
        with pytest.raises(NotImplementedError, match="does not offer cupy"):
            blob.cupy()


@pytest.mark.parametrize("export", EXPORTS.values(), ids=EXPORTS)
def test_an_export_keeps_the_batch_from_being_refilled(
    source: Path, cuda: Any, export: Callable[[Any], Any]
) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 1}, device=cuda) as feed:
        batches = iter(feed)
        batch = next(batches)
        array = export(batch.data)[1:]  # a part of it
        del batch
        for later in batches:
            cuda.current_stream().synchronize()
            assert later.number > 0
            del later
        assert array[0].get().ravel()[0] == 1
    # It outlives the feed as well.
    assert set(array[2].get().ravel().tolist()) == {3.0}


def test_a_blob_keeps_what_it_has_described(cuda: Any) -> None:
    blob = Blob((4,), np.uint8, device=cuda)
    blob.mutable_cpu_data()[:] = 5
    array = cupy.asarray(blob)
    blob.set_gpu_data(cuda.alloc_device(4))
    gc.collect()
    cuda.alloc_device(4)
    assert set(array.get().tolist()) == {5}


def by_the_current_stream(blob: Blob, stream: Any) -> Any:
    with stream:
        return blob.cupy()


def by_name(blob: Blob, stream: Any) -> Any:
    return blob.__dlpack__(stream=stream.ptr)  # another stream is current


@pytest.mark.parametrize("export", [by_the_current_stream, by_name])
def test_the_streams_of_all_exports_are_waited_for_before_a_refill(
    source: Path, cuda: Any, export: Callable[[Blob, Any], Any]
) -> None:
    theirs = cupy.cuda.Stream(non_blocking=True)
    out = []
    with prefetch.open(
        {"source": source, "batch_size": 4, "prefetch": 1, "threads": 1},
        device=cuda,
        max_batches_held=2,
    ) as feed:
        batches = iter(feed)
        with hold(cuda.stream_from(theirs)):
            for _ in range(2):
                batch = next(batches)
                array = export(batch.data, theirs)
                host = cuda.alloc_host(batch.data.nbytes).array
                cupy.cuda.runtime.memcpyAsync(
                    host.ctypes.data,
                    batch.data.gpu_data().ptr,
                    host.nbytes,
                    cupy.cuda.runtime.memcpyDeviceToHost,
                    theirs.ptr,
                )
                out.append(host)
                del batch, array
            assert feed.stats().slots_draining == 2
        for batch in batches:
            del batch
        theirs.synchronize()
    for number, host in enumerate(out):
        values = host.view(np.float32).reshape(4, -1)
        assert (values == np.arange(4)[:, None] + 4 * number).all()


def test_peek_shows_the_device_side(cuda: Any) -> None:
    blob = filled(cuda)
    blob.gpu_data()
    blob.mutable_cpu_data()[:] = 9
    assert peek(blob).tolist() == [[0, 1, 2], [3, 4, 5]]


def test_an_export_waits_for_nothing_on_the_default_stream(
    source: Path, cuda: Any, until: Callable[[Callable[[], bool]], None]
) -> None:
    theirs = cupy.cuda.Stream(non_blocking=True)
    with prefetch.open({"source": source, "batch_size": 4}, device=cuda) as feed:
        feed.to_stream(theirs)
        batches = iter(feed)
        next(batches)
        with hold(cuda.stream_from(0)):
            batch = next(batches)
            capsule = batch.data.__dlpack__(stream=theirs.ptr, max_version=(1, 0))
            until(lambda: theirs.done)
        del batch, capsule


@pytest.mark.fake_only
def test_a_batch_with_two_exports_costs_at_most_24_calls_of_the_driver(
    source: Path, cuda: Any, fake: Any
) -> None:
    # With its copies still in flight, each export has the stream wait for them once more.
    fake.configure(latency_us=5000)
    theirs = cupy.cuda.Stream(non_blocking=True)
    with prefetch.open({"source": source, "batch_size": 4}, device=cuda) as feed:
        feed.to_stream(theirs)
        batches = iter(feed)
        calls = []
        for _ in range(5):
            before = fake.stat("thread_calls")
            batch = next(batches)
            batch.data.__dlpack__(stream=theirs.ptr, max_version=(1, 0))
            batch.label.__dlpack__(stream=theirs.ptr, max_version=(1, 0))
            del batch
            calls.append(fake.stat("thread_calls") - before)
        assert max(calls[1:]) <= 24, calls
