"""Blob: arithmetic, on the side where the newest bytes are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from memory import Blob, DtypeError, Head, HeadError, NoDataError
from memory.testing import peek

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memory import Device, SimulatedDevice

SHAPE = (2, 3, 4, 5)


@pytest.fixture(params=[np.float32, np.float64], ids=lambda dtype: dtype.__name__)
def dtype(request: pytest.FixtureRequest) -> type[np.floating]:
    dtype: type[np.floating] = request.param
    return dtype


@pytest.fixture
def values(dtype: type[np.floating]) -> NDArray[np.floating]:
    return np.random.default_rng(1701).uniform(-3, 3, SHAPE).astype(dtype)


def settle(blob: Blob, head: Head) -> None:
    """Bring the data and the diff, as they are, to a head."""
    for memory in (blob.data, blob.diff):
        memory.mutable_cpu_data()
        if head is Head.HEAD_AT_GPU:
            memory.mutable_gpu_data()
        elif head is Head.SYNCED:
            memory.gpu_data()


class TestCaffesOwnCases:
    """The cases of Caffe's test_blob_math, on every device."""

    def test_sum_of_squares(self, device: Device, values: NDArray[np.floating]) -> None:
        blob = Blob(SHAPE, values.dtype, device=device)
        assert (0, 0) == (blob.sumsq_data(), blob.sumsq_diff())
        blob.mutable_cpu_data()[:] = values
        expected = sum(float(value) ** 2 for value in values.flat)
        for head in self._heads(device):
            settle(blob, head)
            blob.mutable_cpu_diff()[:] = 0
            assert expected == pytest.approx(blob.sumsq_data(), rel=1e-6)
            assert 0 == blob.sumsq_diff()
            blob.mutable_cpu_diff()[:] = values * 7
            settle(blob, head)
            assert expected * 49 == pytest.approx(blob.sumsq_diff(), rel=1e-6)
            assert head == blob.data.head

    def test_asum(self, device: Device, values: NDArray[np.floating]) -> None:
        blob = Blob(SHAPE, values.dtype, device=device)
        assert (0, 0) == (blob.asum_data(), blob.asum_diff())
        blob.mutable_cpu_data()[:] = values
        expected = sum(abs(float(value)) for value in values.flat)
        for head in self._heads(device):
            settle(blob, head)
            blob.mutable_cpu_diff()[:] = 0
            assert expected == pytest.approx(blob.asum_data(), rel=1e-6)
            assert 0 == blob.asum_diff()
            blob.mutable_cpu_diff()[:] = values * 7
            settle(blob, head)
            assert expected * 7 == pytest.approx(blob.asum_diff(), rel=1e-6)
            assert head == blob.data.head

    def test_scale_data(self, device: Device, values: NDArray[np.floating]) -> None:
        for head in self._heads(device):
            blob = Blob(SHAPE, values.dtype, device=device)
            blob.mutable_cpu_data()[:] = values
            settle(blob, head)
            before = blob.asum_data()
            blob.scale_data(3)
            assert before * 3 == pytest.approx(blob.asum_data(), rel=1e-6)
            assert 0 == blob.asum_diff()
            blob.mutable_cpu_diff()[:] = values * 7
            settle(blob, head)
            blob.scale_diff(3)
            assert before * 21 == pytest.approx(blob.asum_diff(), rel=1e-6)
            assert before * 3 == pytest.approx(blob.asum_data(), rel=1e-6)

    @staticmethod
    def _heads(device: Device) -> list[Head]:
        if device.has_device_memory:
            return [Head.HEAD_AT_CPU, Head.HEAD_AT_GPU, Head.SYNCED]
        return [Head.HEAD_AT_CPU]


class TestUpdate:
    @pytest.mark.parametrize("diff", [Head.HEAD_AT_CPU, Head.HEAD_AT_GPU, Head.SYNCED])
    @pytest.mark.parametrize("head", [Head.HEAD_AT_CPU, Head.HEAD_AT_GPU, Head.SYNCED])
    def test_the_diff_is_subtracted_where_the_newest_data_is(
        self, second_memory: Device, dtype: type[np.floating], head: Head, diff: Head
    ) -> None:
        blob = Blob(SHAPE, dtype, device=second_memory)
        blob.mutable_cpu_data()[:] = 5
        blob.mutable_cpu_diff()[:] = 2
        settle(blob, diff)
        blob.mutable_cpu_data()
        if head is not Head.HEAD_AT_CPU:
            blob.gpu_data()
        if head is Head.HEAD_AT_GPU:
            blob.mutable_gpu_data()
        blob.update()
        where = Head.HEAD_AT_CPU if head is Head.HEAD_AT_CPU else Head.HEAD_AT_GPU
        assert where == blob.data.head
        assert {3} == set(blob.cpu_data().ravel().tolist())
        assert {2} == set(blob.cpu_diff().ravel().tolist())

    def test_a_diff_that_was_never_touched_counts_as_zeros(self, device: Device) -> None:
        blob = Blob(SHAPE, device=device)
        blob.mutable_cpu_data()[:] = 5
        blob.update()
        assert {5} == set(blob.cpu_data().ravel().tolist())

    def test_data_that_was_never_touched_cannot_be_updated(self, device: Device) -> None:
        blob = Blob(SHAPE, device=device)
        with pytest.raises(HeadError, match="found UNINITIALIZED"):
            blob.update()
        assert blob.diff.head is Head.UNINITIALIZED

    def test_a_blob_that_never_had_a_shape_cannot_be_updated(self) -> None:
        with pytest.raises(NoDataError):
            Blob().update()


@pytest.mark.parametrize(
    "compute",
    [
        lambda blob: blob.asum_data(),
        lambda blob: blob.asum_diff(),
        lambda blob: blob.sumsq_data(),
        lambda blob: blob.sumsq_diff(),
        lambda blob: blob.scale_data(2),
        lambda blob: blob.scale_diff(2),
    ],
)
class TestUntouched:
    def test_what_was_never_touched_counts_as_zeros_and_stays_unallocated(
        self, second_memory: Device, compute: Callable[[Blob], float | None]
    ) -> None:
        blob = Blob(SHAPE, device=second_memory)
        assert not compute(blob)
        assert blob.data.head is blob.diff.head is Head.UNINITIALIZED
        info = second_memory.memory_info()
        assert (0, 0) == (info.num_buffers, info.num_host_buffers)

    def test_so_does_a_blob_that_never_had_a_shape(
        self, compute: Callable[[Blob], float | None]
    ) -> None:
        assert not compute(Blob())


@pytest.mark.parametrize("dtype", [np.float16, np.uint8, np.int32, np.int64])
@pytest.mark.parametrize(
    "operation",
    [
        "asum_data",
        "asum_diff",
        "sumsq_data",
        "sumsq_diff",
        "scale_data",
        "scale_diff",
        "update",
    ],
)
def test_there_is_no_arithmetic_on_dtypes_for_storage(
    dtype: type[np.generic], operation: str
) -> None:
    blob = Blob(SHAPE, dtype)
    blob.mutable_cpu_data()
    arguments = [2.0] if operation.startswith("scale") else []
    with pytest.raises(DtypeError, match=f"{operation}: expected dtype float32 or float64"):
        getattr(blob, operation)(*arguments)


def test_only_the_elements_of_a_shrunk_shape_take_part(second_memory: Device) -> None:
    for on_device in (False, True):
        blob = Blob(4, device=second_memory)
        blob.mutable_cpu_data()[:] = 1
        blob.mutable_cpu_diff()[:] = 1
        blob.reshape(3)
        if on_device:
            settle(blob, Head.HEAD_AT_GPU)
        assert (3, 3) == (blob.asum_data(), blob.sumsq_diff())
        blob.scale_data(5)
        blob.update()
        blob.reshape(4)
        assert [4, 4, 4, 1] == blob.cpu_data().tolist()


def test_sums_of_many_values_are_as_exact_as_in_float64(device: Device) -> None:
    blob = Blob(1 << 20, device=device)
    # In float32, adding one by one would stop counting at 2**24 * 0.1.
    blob.mutable_cpu_data()[:] = 0.1
    tenth = float(np.float32(0.1))
    assert tenth * (1 << 20) == pytest.approx(blob.asum_data(), rel=1e-12)
    assert tenth**2 * (1 << 20) == pytest.approx(blob.sumsq_data(), rel=1e-12)


def test_overflow_is_infinity_without_a_warning_as_in_blas(
    second_memory: Device, dtype: type[np.floating]
) -> None:
    for on_device in (False, True):
        blob = Blob(4, dtype, device=second_memory)
        blob.mutable_cpu_data()[:] = np.finfo(dtype).max
        if on_device:
            blob.mutable_gpu_data()
        blob.scale_data(10)
        assert {np.inf} == set(blob.cpu_data().tolist())
        blob.scale_data(1e300)
        assert np.inf == blob.asum_data() == blob.sumsq_data()


def test_computing_on_the_device_moves_nothing_to_the_host(simulated: SimulatedDevice) -> None:
    blob = Blob(4, device=simulated)
    for memory in (blob.data, blob.diff):
        simulated.fill(memory.mutable_gpu_data(), 0, stream=simulated.current_stream())
    blob.update()
    blob.scale_data(2)
    assert 0 == blob.asum_data()
    assert 0 == simulated.stats().num_to_host
    assert [0] * 4 == peek(blob).tolist()
