"""Blobs as NumPy arrays and DLPack tensors: views, what they do to the head, how long they live."""

from __future__ import annotations

import gc
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from blobs import BLOB_DTYPES
from dlpack_tensor import Tensor

from memory import Blob, Head, bfloat16
from memory.testing import peek

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memory import Device


def synced(device: Device, dtype: type[np.generic] = np.float32) -> Blob:
    """Return a blob of 0 to 5 whose bytes are the same on both sides."""
    blob = Blob((2, 3), dtype, device=device)
    blob.mutable_cpu_data()[:] = [[0, 1, 2], [3, 4, 5]]
    blob.gpu_data()
    return blob


class TestNumpy:
    @pytest.mark.parametrize("dtype", BLOB_DTYPES)
    def test_a_blob_is_viewed_in_its_shape_and_dtype(
        self, device: Device, dtype: type[np.generic]
    ) -> None:
        blob = Blob((2, 3), dtype, device=device)
        view = blob.numpy()
        view[1, 2] = 5
        assert ((2, 3), np.dtype(dtype)) == (view.shape, view.dtype)
        assert np.shares_memory(view, blob.numpy())
        assert 5 == blob.data_at((1, 2))

    def test_a_writable_view_leaves_the_device_behind(self, second_memory: Device) -> None:
        blob = synced(second_memory)
        blob.numpy()[:] = 9
        assert blob.data.head is Head.HEAD_AT_CPU
        blob.gpu_data()
        assert {9} == set(peek(blob).ravel().tolist())

    def test_a_read_only_view_leaves_the_head_where_it_is(self, second_memory: Device) -> None:
        blob = synced(second_memory)
        view = blob.numpy(writable=False)
        assert blob.data.head is Head.SYNCED
        with pytest.raises(ValueError, match="read-only"):
            view[:] = 9

    def test_a_view_shows_the_shape_of_its_time(self) -> None:
        blob = Blob((2, 3))
        view = blob.numpy()
        blob.reshape(3)
        assert ((2, 3), (3,)) == (view.shape, blob.numpy().shape)


class TestArrayProtocol:
    def test_to_be_looked_at_does_not_move_the_head(self, second_memory: Device) -> None:
        blob = synced(second_memory)
        array = np.asarray(blob)
        assert 15 == array.sum()
        assert blob.data.head is Head.SYNCED
        assert np.shares_memory(array, blob.cpu_data())
        assert not array.flags.writeable

    def test_a_copy_is_the_callers(self, device: Device) -> None:
        blob = Blob((2, 3), device=device)
        copy = np.array(blob)
        copy[:] = 9
        assert not np.shares_memory(copy, blob.cpu_data())
        assert 0 == blob.data_at(0)

    def test_another_dtype_is_a_conversion(self) -> None:
        blob = Blob((2, 3))
        blob.mutable_cpu_data()[:] = 1.5
        assert [[1, 1, 1]] * 2 == np.asarray(blob, dtype=np.int64).tolist()
        with pytest.raises(ValueError, match="copy"):
            np.asarray(blob, dtype=np.int64, copy=False)

    def test_the_blob_itself_is_never_the_base_of_an_array(self) -> None:
        # It could be given other memory while the array is in use.
        blob = Blob((2, 3))
        assert not hasattr(blob, "__array_interface__")
        array = np.asarray(blob)
        array_values = array.tolist()
        blob.set_cpu_data(np.ones(6, np.float32))
        gc.collect()
        assert array_values == array.tolist()


class TestDlpack:
    @pytest.mark.parametrize(
        "dtype", [dtype for dtype in BLOB_DTYPES if dtype is not bfloat16().type]
    )
    def test_a_tensor_is_a_writable_view_on_the_host(
        self, off_gpu: Device, dtype: type[np.generic]
    ) -> None:
        blob = Blob((2, 3), dtype, device=off_gpu)
        tensor = np.from_dlpack(blob)
        assert (1, 0) == blob.__dlpack_device__()
        assert ((2, 3), np.dtype(dtype)) == (tensor.shape, tensor.dtype)
        tensor[1, 2] = 5
        assert 5 == blob.data_at((1, 2))

    @pytest.mark.parametrize("max_version", [None, (0, 8), (1, 0)])
    def test_bfloat16_is_named_as_the_protocol_has_it(
        self, off_gpu: Device, max_version: tuple[int, int] | None
    ) -> None:
        blob = Blob((2, 3), "bfloat16", device=off_gpu)
        tensor = Tensor.of(blob.__dlpack__(max_version=max_version))
        assert (4, 16, 1) == (tensor.code, tensor.bits, tensor.lanes)  # kDLBfloat
        assert (1, 0, 2) == (tensor.device_type, tensor.device_id, tensor.ndim)
        assert [2, 3] == tensor.shape[:2]
        assert blob.cpu_data().ctypes.data == tensor.data + tensor.byte_offset

    def test_a_copy_of_bfloat16_can_be_asked_for(self) -> None:
        blob = Blob((2, 3), "bfloat16")
        capsule = blob.__dlpack__(max_version=(1, 0), copy=True)
        assert 4 == Tensor.of(capsule).code
        assert blob.cpu_data().ctypes.data != Tensor.of(capsule).data

    def test_a_capsule_of_bfloat16_keeps_the_memory(self) -> None:
        blob = Blob((2, 3), bfloat16())
        lease = np.zeros(6, bfloat16())
        blob.set_cpu_data(lease)
        gone = weakref.ref(lease)
        capsule = blob.__dlpack__()
        del blob, lease
        gc.collect()
        assert gone() is not None
        del capsule
        gc.collect()
        assert gone() is None

    def test_exporting_leaves_the_device_behind(self, simulated: Device) -> None:
        blob = synced(simulated)
        np.from_dlpack(blob)[:] = 9
        assert blob.data.head is Head.HEAD_AT_CPU
        assert {9} == set(blob.cpu_data().ravel().tolist())

    def test_a_consumer_of_the_first_protocol_gets_a_capsule(self) -> None:
        assert "dltensor" in repr(Blob((2, 3)).__dlpack__())

    def test_a_consumer_of_the_second_protocol_gets_its_own(self) -> None:
        assert "dltensor_versioned" in repr(Blob((2, 3)).__dlpack__(max_version=(1, 0)))

    def test_a_read_only_view_says_so_where_the_protocol_can(self) -> None:
        view = Blob((2, 3)).numpy(writable=False)
        with pytest.raises(BufferError, match="readonly"):
            view.__dlpack__()
        assert not np.from_dlpack(view).flags.writeable

    def test_a_copy_can_be_asked_for(self) -> None:
        blob = Blob((2, 3))
        copy = np.from_dlpack(blob, copy=True)
        copy[:] = 9
        assert 0 == blob.data_at(0)

    def test_another_device_is_refused(self) -> None:
        with pytest.raises((BufferError, ValueError), match="device"):
            Blob((2, 3)).__dlpack__(dl_device=(2, 0))


class Lease:
    """Host memory that is no ndarray, as a ring's slot hands it out."""

    def __init__(self, nbytes: int) -> None:
        self._memory = np.zeros(nbytes, np.uint8)
        self.__array_interface__ = self._memory.__array_interface__


@pytest.mark.parametrize(
    "export",
    [
        lambda blob: blob.numpy(),
        lambda blob: blob.numpy()[1:, ::2],
        lambda blob: blob.numpy().reshape(6),
        lambda blob: blob.numpy(writable=False).T,
        lambda blob: blob.cpu_data(),
        lambda blob: blob.data.cpu_data()[4:],
        np.asarray,
        lambda blob: blob.__dlpack__(),
        lambda blob: np.from_dlpack(blob)[0],
        lambda blob: memoryview(blob.numpy()),
    ],
    ids=[
        "numpy",
        "slice",
        "reshape",
        "read-only",
        "cpu_data",
        "bytes",
        "asarray",
        "capsule",
        "from_dlpack",
        "memoryview",
    ],
)
def test_every_export_keeps_the_lease_behind_a_blob_alive_and_no_longer(
    off_gpu: Device, export: Callable[[Blob], object]
) -> None:
    lease = Lease(24)
    gone = weakref.ref(lease)
    array: NDArray[Any] = np.asarray(lease).view(np.float32)
    blob = Blob((2, 3), device=off_gpu)
    blob.set_cpu_data(array)
    exported = export(blob)
    blob.close()
    del blob, array, lease
    gc.collect()
    assert gone() is not None
    del exported
    assert gone() is None
