"""Blob: the memories behind it. Capacity, given data, sharing, copying."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from blobs import counting

from memory import (
    Blob,
    BufferMismatchError,
    ClosedError,
    DeviceMismatchError,
    DtypeError,
    Head,
    NoDeviceMemoryError,
    ShapeMismatchError,
    SimulatedDevice,
)
from memory.testing import FailingDevice, peek

if TYPE_CHECKING:
    from memory import Device
    from memory._shape import Dims


class TestCapacity:
    def test_shrinking_keeps_the_bytes_and_growing_back_shows_them(
        self, dtype: type[np.generic]
    ) -> None:
        blob = counting(Blob(10, dtype))
        data, diff = blob.data, blob.diff
        blob.reshape(2, 2)
        assert [[0, 1], [2, 3]] == blob.cpu_data().tolist()
        blob.reshape(10)
        assert list(range(10)) == blob.cpu_data().tolist()
        assert list(range(100, 110)) == blob.cpu_diff().tolist()
        assert (data, diff) == (blob.data, blob.diff)

    def test_outgrowing_the_bytes_gives_both_data_and_diff_new_zeros(
        self, dtype: type[np.generic]
    ) -> None:
        blob = counting(Blob(4, dtype))
        blob.reshape(5)
        assert [0] * 5 == blob.cpu_data().tolist() == blob.cpu_diff().tolist()

    @pytest.mark.parametrize("head", [Head.HEAD_AT_CPU, Head.HEAD_AT_GPU])
    @pytest.mark.parametrize("call", ["overwrite_cpu_data", "overwrite_gpu_data"])
    def test_overwriting_a_shrunk_shape_leaves_the_values_beyond_it(
        self, second_memory: Device, head: Head, call: str
    ) -> None:
        blob = counting(Blob(4, device=second_memory))
        expected = [2, 3]
        if head is Head.HEAD_AT_GPU:
            stream = second_memory.current_stream()
            second_memory.fill(blob.mutable_gpu_data(), 0, stream=stream)
            expected = [0, 0]
        blob.reshape(2)
        assert 8 == getattr(blob, call)().nbytes
        blob.reshape(4)
        assert expected == blob.cpu_data()[2:].tolist()

    def test_overwriting_a_whole_blob_fetches_nothing(self, simulated: SimulatedDevice) -> None:
        blob = counting(Blob(4, device=simulated))
        blob.overwrite_gpu_data()
        blob.overwrite_cpu_data()
        stats = simulated.stats()
        assert (0, 0) == (stats.num_to_host, stats.num_to_device)

    @pytest.mark.parametrize("side", ["cpu", "gpu"])
    def test_caffes_overrun_after_setting_data_of_a_shrunk_blob_is_gone(
        self, second_memory: Device, side: str
    ) -> None:
        # In Caffe the capacity stays at 10 while the memories shrink to 5 elements.
        blob = counting(Blob(10, device=second_memory))
        blob.reshape(5)
        if side == "cpu":
            blob.set_cpu_data(np.arange(5, dtype=np.float32))
        else:
            blob.set_gpu_data(second_memory.alloc_device(20))
        assert (20, 20) == (blob.data.size, blob.diff.size)
        blob.reshape(10)
        assert (40, 40) == (blob.data.size, blob.diff.size)
        assert [0] * 10 == blob.cpu_data().tolist() == blob.cpu_diff().tolist()

    def test_an_overrun_after_sharing_smaller_memory_is_gone_too(self) -> None:
        blob, small = counting(Blob(10)), counting(Blob(5))
        blob.reshape(5)
        blob.share_data(small)
        blob.reshape(10)
        assert (40, 40) == (blob.data.size, blob.diff.size)
        assert [0] * 10 == blob.cpu_data().tolist()


class TestSettingData:
    @pytest.mark.parametrize("shape", [(6,), (2, 3)], ids=["flat", "shaped"])
    def test_an_array_of_the_blobs_dtype_is_used_in_place(
        self, device: Device, dtype: type[np.generic], shape: Dims
    ) -> None:
        blob = Blob((2, 3), dtype, device=device)
        array = np.zeros(shape, dtype)
        blob.set_cpu_data(array)
        assert blob.data.head is Head.HEAD_AT_CPU
        blob.mutable_cpu_data()[1, 2] = 5
        assert 5 == array.reshape(-1)[5]

    @pytest.mark.parametrize(
        ("array", "found"),
        [
            (np.zeros((2, 3), np.float64), "float64"),
            (np.zeros(24, np.uint8), "uint8"),
            (np.zeros((2, 3), ">f4"), ">f4"),
            (np.zeros((3, 2), np.float32), "shape (3, 2)"),
            (np.zeros(5, np.float32), "shape (5,)"),
            (np.zeros((1, 2, 3), np.float32), "shape (1, 2, 3)"),
            (np.zeros((2, 6), np.float32)[:, ::2], "not C-contiguous"),
            (np.zeros((3, 2), np.float32).T, "not C-contiguous"),
            (np.broadcast_to(np.float32(0), (2, 3)), "read-only"),
            ([[0.0] * 3] * 2, "type list"),
        ],
    )
    def test_a_wrong_array_is_refused_with_what_was_expected_and_found(
        self, array: Any, found: str
    ) -> None:
        blob = counting(Blob((2, 3)))
        with pytest.raises(BufferMismatchError) as caught:
            blob.set_cpu_data(array)
        assert found in caught.value.found
        assert [[0, 1, 2], [3, 4, 5]] == blob.cpu_data().tolist()

    def test_a_device_buffer_is_used_in_place(self, second_memory: Device) -> None:
        blob = Blob((2, 3), device=second_memory)
        buffer = second_memory.alloc_device(24)
        blob.set_gpu_data(buffer)
        assert blob.data.head is Head.HEAD_AT_GPU
        assert buffer.ptr == blob.gpu_data().ptr

    @pytest.mark.parametrize("nbytes", [20, 40])
    def test_a_refused_buffer_leaves_a_shrunk_blob_as_it_was(
        self, second_memory: Device, nbytes: int
    ) -> None:
        blob = counting(Blob(10, device=second_memory))
        blob.reshape(6)
        with pytest.raises(BufferMismatchError):
            blob.set_gpu_data(second_memory.alloc_device(nbytes))
        blob.reshape(10)
        assert list(range(10)) == blob.cpu_data().tolist()
        assert list(range(100, 110)) == blob.cpu_diff().tolist()

    def test_the_rings_way_takes_both_sides_and_pushes(self, second_memory: Device) -> None:
        slot = second_memory.alloc_device(48)
        host = second_memory.alloc_host(24).array.view(np.float32)
        blob = Blob((2, 3), device=second_memory)
        blob.set_gpu_data(slot.slice(24, 24))
        blob.set_cpu_data(host)
        host[:] = np.arange(6)
        with second_memory.make_stream() as stream:
            blob.async_gpu_push(stream)
        assert [[0, 1, 2], [3, 4, 5]] == peek(blob).tolist()
        assert blob.data.head is Head.SYNCED


class TestGpuShape:
    def test_the_dimensions_are_on_the_device(self, second_memory: Device) -> None:
        blob = Blob((2, 3, 4), device=second_memory)
        assert [2, 3, 4] == peek(blob.gpu_shape()).view(np.int64).tolist()
        blob.reshape(24)
        assert [24] == peek(blob.gpu_shape()).view(np.int64).tolist()

    def test_no_dimensions_are_no_bytes(self, second_memory: Device) -> None:
        assert 0 == Blob((), device=second_memory).gpu_shape().nbytes

    def test_the_cpu_device_has_no_place_for_them(self) -> None:
        with pytest.raises(NoDeviceMemoryError):
            Blob((2, 3)).gpu_shape()


class TestSharing:
    def test_what_either_writes_both_have(self, dtype: type[np.generic]) -> None:
        ours, theirs = Blob((2, 3), dtype), counting(Blob((6,), dtype))
        ours.share_data(theirs)
        assert [[0, 1, 2], [3, 4, 5]] == ours.cpu_data().tolist()
        ours.mutable_cpu_data()[:] = 7
        assert [7] * 6 == theirs.cpu_data().tolist()
        assert [0] * 6 == ours.cpu_diff().ravel().tolist()

    def test_the_diff_is_shared_by_itself(self) -> None:
        ours, theirs = Blob((2, 3)), counting(Blob((6,)))
        ours.share_diff(theirs)
        assert theirs.diff is ours.diff
        assert theirs.data is not ours.data

    def test_sharing_ends_when_one_outgrows_its_bytes(self) -> None:
        ours, theirs = Blob(6), counting(Blob(6))
        ours.share_data(theirs)
        ours.reshape(7)
        ours.mutable_cpu_data()[:] = 9
        assert list(range(6)) == theirs.cpu_data().tolist()

    def test_sharing_a_larger_memory_does_not_raise_the_capacity(self) -> None:
        ours, theirs = Blob(6), counting(Blob(24))
        theirs.reshape(6)
        ours.share_data(theirs)
        ours.share_diff(theirs)
        ours.reshape(12)
        assert theirs.data is not ours.data

    def test_closing_one_leaves_the_other(self) -> None:
        ours, theirs = Blob(6), counting(Blob(6))
        ours.share_data(theirs)
        ours.close()
        assert list(range(6)) == theirs.cpu_data().tolist()

    @pytest.mark.parametrize("share", ["share_data", "share_diff"])
    def test_unequal_counts_dtypes_and_devices_are_refused(self, share: str) -> None:
        with SimulatedDevice() as other:
            for theirs, error in (
                (Blob(5), ShapeMismatchError),
                (Blob(6, np.float64), DtypeError),
                (Blob(6, device=other), DeviceMismatchError),
            ):
                with pytest.raises(error):
                    getattr(Blob(6), share)(theirs)


class TestCopying:
    def test_the_data_is_copied_and_not_the_diff(
        self, device: Device, dtype: type[np.generic]
    ) -> None:
        source, target = counting(Blob((2, 3), dtype, device=device)), Blob((2, 3), dtype)
        target.copy_from(source)
        assert [0, 1, 2, 3, 4, 5] == target.cpu_data().ravel().tolist()
        assert [0] * 6 == target.cpu_diff().ravel().tolist()

    def test_or_the_diff_and_not_the_data(self, device: Device, dtype: type[np.generic]) -> None:
        source, target = counting(Blob((2, 3), dtype, device=device)), Blob((2, 3), dtype)
        target.copy_from(source, copy_diff=True)
        assert [0] * 6 == target.cpu_data().ravel().tolist()
        assert [100, 101, 102, 103, 104, 105] == target.cpu_diff().ravel().tolist()

    @pytest.mark.parametrize("target", ["fresh", "cpu", "gpu", "shrunk"])
    @pytest.mark.parametrize("head", ["fresh", "cpu", "gpu", "synced"])
    def test_the_copy_is_right_whatever_the_heads_are(
        self, second_memory: Device, head: str, target: str
    ) -> None:
        source = Blob(6, device=second_memory)
        if head != "fresh":
            counting(source)
        if head == "gpu":
            source.mutable_gpu_data()
        if head == "synced":
            source.gpu_data()
        blob = Blob(10 if target == "shrunk" else 6, device=second_memory)
        if target != "fresh":
            blob.mutable_cpu_data()[:] = 9
        if target == "gpu":
            blob.mutable_gpu_data()
        blob.reshape(6)
        blob.copy_from(source)
        expected = [0] * 6 if head == "fresh" else list(range(6))
        assert expected == blob.cpu_data().tolist()
        if target == "shrunk":
            blob.reshape(10)
            assert [*expected, 9, 9, 9, 9] == blob.cpu_data().tolist()

    def test_another_shape_is_refused_or_taken(self) -> None:
        source, target = counting(Blob((2, 3))), counting(Blob(6))
        with pytest.raises(ShapeMismatchError, match="reshape=True"):
            target.copy_from(source)
        target.copy_from(source, reshape=True)
        assert (2, 3) == target.shape
        assert 5 == target.data_at((1, 2))

    def test_a_blob_without_a_shape_is_no_scalar(self) -> None:
        blob = Blob()
        with pytest.raises(ShapeMismatchError):
            blob.copy_from(Blob(()))
        blob.copy_from(Blob(()), reshape=True)
        assert 1 == blob.count()

    def test_another_dtype_is_refused(self) -> None:
        with pytest.raises(DtypeError, match="expected dtype float32, found float64"):
            Blob(6).copy_from(Blob(6, np.float64))

    def test_copying_to_itself_changes_nothing(self) -> None:
        blob = counting(Blob(6))
        blob.copy_from(blob, reshape=True)
        assert list(range(6)) == blob.cpu_data().tolist()

    def test_a_copy_that_fails_leaves_shape_and_values(self, simulated: SimulatedDevice) -> None:
        source = counting(Blob(20, device=simulated))
        device = FailingDevice(simulated, fail={"alloc_host": 3})
        target = counting(Blob((2, 3), device=device))
        with pytest.raises(MemoryError):
            target.copy_from(source, reshape=True)
        assert (2, 3) == target.shape
        assert [[0, 1, 2], [3, 4, 5]] == target.cpu_data().tolist()
        assert 105 == target.diff_at((1, 2))


def test_a_blob_over_an_array_is_that_of_a_blob_given_it(
    dtype: type[np.generic], device: Device
) -> None:
    array = np.arange(24).reshape(2, 3, 4).astype(dtype)
    blob = Blob.over(array, device=device)
    given = Blob(array.shape, dtype, device=device)
    given.set_cpu_data(array)
    for one in (blob, given):
        assert one.shape == (2, 3, 4)
        assert one.dtype == dtype
        assert one.device is device
        assert one.data.head is Head.HEAD_AT_CPU
        assert one.diff.size == array.nbytes
        assert one.diff.head is Head.UNINITIALIZED
        assert (one.cpu_data() == array).all()
    assert repr(blob) == repr(given)
    blob.mutable_cpu_data()[0, 0, 0] = 7
    assert array[0, 0, 0] == 7
    if not device.has_device_memory:
        return
    assert blob.gpu_data().nbytes == array.nbytes
    assert peek(blob).tobytes() == array.tobytes()


def test_what_a_blob_over_an_array_shows_is_its_memory_whenever_that_is_asked_for(
    device: Device,
) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    blob = Blob.over(array, device=device)
    shown, written = blob.cpu_data(), blob.mutable_cpu_data()
    assert not shown.flags.writeable
    assert type(written) is np.ndarray
    assert shown.base is not None
    memory = blob.data
    assert blob.data is memory
    assert memory.head is Head.HEAD_AT_CPU
    written[0, 0] = 7
    assert blob.cpu_data()[0, 0] == shown[0, 0] == memory.cpu_data().view(np.float32)[0] == 7
    if device.has_device_memory:
        blob.mutable_gpu_data()
        assert peek(blob).tobytes() == array.tobytes()
        assert blob.data.head is Head.HEAD_AT_GPU
    blob.close()
    for access in (blob.cpu_data, blob.mutable_cpu_data, blob.numpy):
        with pytest.raises(ClosedError):
            access()


def test_a_blob_over_an_array_that_shares_anothers_data_shows_that() -> None:
    blob, other = Blob.over(np.zeros(3, np.float32)), Blob.over(np.ones(3, np.float32))
    blob.share_data(other)
    other.mutable_cpu_data()[0] = 5
    assert blob.cpu_data().tolist() == [5, 1, 1]
    assert blob.data is other.data


def test_threads_that_ask_for_the_data_of_a_blob_over_an_array_get_the_same_memory() -> None:
    for _ in range(50):
        blob = Blob.over(np.zeros(4, np.float32))
        start = threading.Barrier(4)

        def ask(blob: Blob = blob, start: threading.Barrier = start) -> int:
            start.wait()
            return id(blob.data)

        with ThreadPoolExecutor(4) as pool:
            assert {one.result() for one in [pool.submit(ask) for _ in range(4)]} == {id(blob.data)}


def test_a_blob_over_an_array_grows_into_memory_of_its_own() -> None:
    array = np.ones(4, np.float32)
    blob = Blob.over(array)
    blob.mutable_cpu_diff()[:] = 3
    blob.reshape(2, 2)
    assert blob.cpu_data().sum() == 4
    assert blob.cpu_diff().sum() == 12
    blob.reshape(5)
    assert blob.cpu_data().sum() == 0
    assert blob.cpu_diff().sum() == 0
    assert (array == 1).all()


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.zeros((4, 4), np.float32)[:, ::2], BufferMismatchError),
        (np.frombuffer(b"1234", np.uint8), BufferMismatchError),
        (np.zeros(3, np.complex64), DtypeError),
    ],
    ids=["gaps", "read-only", "complex"],
)
def test_a_blob_over_an_array_that_cannot_be_used_in_place_is_refused(
    array: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        Blob.over(array)


def test_threads_that_ask_for_a_diff_at_once_get_the_same_one() -> None:
    for _ in range(50):
        blob = Blob.over(np.zeros(4, np.float32))
        start = threading.Barrier(4)

        def ask(blob: Blob = blob, start: threading.Barrier = start) -> int:
            start.wait()
            return id(blob.diff)

        with ThreadPoolExecutor(4) as pool:
            assert len({future.result() for future in [pool.submit(ask) for _ in range(4)]}) == 1
