"""Blob: its shape, its offsets, its life; Caffe's own cases, and what is wrong in Caffe gone."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from blobs import counting

from memory import (
    AxisError,
    Blob,
    ClosedError,
    DtypeError,
    NoDataError,
    OffsetError,
    ShapeError,
)
from memory.testing import peek

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory import Device
    from memory._shape import Dims


class TestCaffesOwnCases:
    """The cases of Caffe's test_blob that are about shape and access."""

    @pytest.fixture(params=[np.float32, np.float64], ids=lambda dtype: dtype.__name__)
    def dtype(self, request: pytest.FixtureRequest) -> type[np.generic]:
        dtype: type[np.generic] = request.param
        return dtype

    def test_initialization(self, device: Device, dtype: type[np.generic]) -> None:
        blob = Blob((2, 3, 4, 5), dtype, device=device)
        assert (2, 3, 4, 5) == (blob.num, blob.channels, blob.height, blob.width)
        assert 120 == blob.count()
        default = Blob(dtype=dtype, device=device)
        assert (0, 0) == (default.num_axes, default.count())

    def test_pointers_on_both_sides(self, second_memory: Device, dtype: type[np.generic]) -> None:
        blob = Blob((2, 3, 4, 5), dtype, device=second_memory)
        assert 120 * blob.dtype.itemsize == blob.gpu_data().nbytes
        assert 120 * blob.dtype.itemsize == blob.mutable_gpu_data().nbytes
        assert (2, 3, 4, 5) == blob.cpu_data().shape == blob.mutable_cpu_data().shape

    def test_reshape(self, device: Device, dtype: type[np.generic]) -> None:
        blob = Blob(dtype=dtype, device=device)
        blob.reshape(2, 3, 4, 5)
        assert (2, 3, 4, 5) == (blob.num, blob.channels, blob.height, blob.width)
        assert 120 == blob.count()

    def test_reshape_zero(self, device: Device, dtype: type[np.generic]) -> None:
        blob = Blob((2, 3), dtype, device=device)
        blob.reshape(0, 5)
        assert 0 == blob.count()


class TestShape:
    @pytest.mark.parametrize(
        "shape",
        [(2, 3), [2, 3], np.array([2, 3]), SimpleNamespace(dim=[2, 3])],
        ids=["tuple", "list", "array", "message"],
    )
    def test_a_shape_is_taken_in_each_of_its_forms(self, shape: Any) -> None:
        by_constructor, by_reshape, by_numbers = Blob(shape), Blob(), Blob()
        by_reshape.reshape(shape)
        by_numbers.reshape(2, 3)
        assert [(2, 3)] * 3 == [b.shape for b in (by_constructor, by_reshape, by_numbers)]

    def test_one_number_is_one_axis(self) -> None:
        blob = Blob(7)
        blob.reshape(8)
        assert (8,) == blob.shape

    def test_reshape_takes_some_shape(self) -> None:
        with pytest.raises(TypeError, match=r"reshape\(\(\)\)"):
            Blob(3).reshape()

    @pytest.mark.parametrize(
        ("shape", "text"), [((2, 3, 4), "2 3 4 (24)"), ((), "(1)"), (None, "(0)")]
    )
    def test_the_shape_string_is_caffes(self, shape: Dims | None, text: str) -> None:
        assert text == Blob(shape).shape_string

    def test_counts_have_three_forms(self) -> None:
        blob = Blob((2, 3, 4))
        assert (24, 12, 3, 1) == (blob.count(), blob.count(1), blob.count(1, 2), blob.count(3))
        with pytest.raises(AxisError):
            blob.count(4)
        with pytest.raises(AxisError):
            blob.count(stop=-1)

    def test_axes_count_from_both_ends(self) -> None:
        blob = Blob((2, 3, 4))
        assert (2, 0) == (blob.canonical_axis_index(-1), blob.canonical_axis_index(0))
        with pytest.raises(AxisError, match="axis 3 is out of range"):
            blob.canonical_axis_index(3)

    def test_legacy_dimensions_are_padded_with_ones(self) -> None:
        blob = Blob((5, 6))
        assert (5, 6, 1, 1) == (blob.num, blob.channels, blob.height, blob.width)

    @pytest.mark.parametrize("name", ["num", "channels", "height", "width"])
    def test_five_axes_have_no_legacy_dimensions(self, name: str) -> None:
        with pytest.raises(ShapeError, match="at most 4 axes"):
            getattr(Blob((1,) * 5), name)

    def test_32_axes_are_the_most(self, dtype: type[np.generic]) -> None:
        assert 32 == Blob((1,) * 32, dtype).cpu_data().ndim
        with pytest.raises(ShapeError, match="at most 32 axes, found 33"):
            Blob((1,) * 33, dtype)

    def test_a_shape_that_overflows_is_refused_by_name_before_anything_is_allocated(
        self, device: Device
    ) -> None:
        blob = counting(Blob((2, 3), device=device))
        before = device.memory_info()
        with pytest.raises(ShapeError, match=f"{1 << 40}, {1 << 40}"):
            blob.reshape(1 << 40, 1 << 40)
        assert (2, 3) == blob.shape
        assert before == device.memory_info()
        assert 5 == blob.data_at((1, 2))

    def test_counts_go_beyond_caffes_int(self) -> None:
        blob = Blob((65536, 65536), np.uint8)
        assert 1 << 32 == blob.count()
        assert (1 << 32) - 1 == blob.offset((65535, 65535))

    def test_dimensions_behind_a_zero_may_be_as_large_as_in_caffe(
        self, dtype: type[np.generic]
    ) -> None:
        assert 0 == Blob((0, 1 << 30, 1 << 30), dtype).count()

    def test_a_shape_that_numpy_cannot_show_says_so(self) -> None:
        with pytest.raises(ShapeError, match="NumPy has no such array"):
            Blob((0, 1 << 40, 1 << 40)).cpu_data()

    @pytest.mark.parametrize("dtype", ["complex64", "bool", "int8", ">f4", "M8[s]", object])
    def test_other_dtypes_are_refused_with_those_there_are(self, dtype: Any) -> None:
        with pytest.raises(DtypeError, match=r"float32 or float64 or float16 .* or bfloat16"):
            Blob((2, 3), dtype)

    def test_reshape_like_takes_the_other_shape(self) -> None:
        blob = Blob()
        blob.reshape_like(Blob((4, 5)))
        assert (4, 5) == blob.shape

    def test_reshape_like_a_blob_without_a_shape_is_refused(self) -> None:
        blob = Blob((2, 3))
        with pytest.raises(NoDataError, match="reshape_like"):
            blob.reshape_like(Blob())
        assert (2, 3) == blob.shape


class TestOffsets:
    def test_offsets_have_a_legacy_and_a_general_form(self) -> None:
        blob = Blob((2, 3, 4))
        assert (12, 20, 23) == (blob.offset((1,)), blob.offset([1, 2]), blob.offset((1, 2, 3)))
        assert (12, 20, 23) == (blob.offset(1), blob.offset(1, 2), blob.offset(1, 2, 3))
        assert 23 == blob.offset(n=1, c=2, h=3, w=0)

    @pytest.mark.parametrize(
        "index",
        [
            (2, 0, 0, 0),
            (0, 3, 0, 0),
            (0, 0, 4, 0),
            (0, 0, 0, 5),
            (-1, 0, 0, 0),
            (0, -1, 0, 0),
            (0, 0, -1, 0),
            (0, 0, 0, -1),
        ],
    )
    def test_caffes_loose_bounds_are_gone(self, index: tuple[int, int, int, int]) -> None:
        # Caffe takes an index that equals its dimension, and -1 for all but n.
        blob = Blob((2, 3, 4, 5))
        for form in (index, (index,)):
            with pytest.raises(OffsetError):
                blob.offset(*form)

    def test_mixing_both_forms_is_a_type_error(self) -> None:
        with pytest.raises(TypeError, match="found both"):
            Blob((2, 3)).offset((1,), 2)

    def test_a_blob_without_elements_has_no_offsets(self) -> None:
        for blob in (Blob(), Blob((0, 5))):
            with pytest.raises(OffsetError):
                blob.offset(())
            with pytest.raises(OffsetError):
                blob.offset(0)

    def test_elements_are_read_at_their_offset(self, dtype: type[np.generic]) -> None:
        blob = counting(Blob((2, 3, 4), dtype))
        assert (23, 123) == (blob.data_at(1, 2, 3), blob.diff_at((1, 2, 3)))
        assert (20, 112) == (blob.data_at((1, 2)), blob.diff_at(1))
        with pytest.raises(OffsetError):
            blob.data_at(2)

    def test_a_scalars_element_is_at_no_index(self) -> None:
        blob = counting(Blob(()))
        assert (0, 100) == (blob.data_at(()), blob.diff_at(0))


class TestWithoutElements:
    """In Caffe, the data of an empty blob is a null pointer, and touching it aborts."""

    @pytest.mark.parametrize("shape", [(0,), (0, 5), (3, 0, 4), ()])
    def test_zero_sized_and_scalar_blobs_are_blobs_like_others(
        self, second_memory: Device, dtype: type[np.generic], shape: Dims
    ) -> None:
        blob = Blob(shape, dtype, device=second_memory)
        blob.mutable_cpu_data()[...] = 1
        assert shape == blob.cpu_data().shape == blob.cpu_diff().shape
        assert blob.nbytes == blob.gpu_data().nbytes == blob.mutable_gpu_diff().nbytes
        second_memory.current_stream().synchronize()
        assert shape == peek(blob).shape
        blob.set_cpu_data(np.zeros(shape, dtype))
        blob.set_gpu_data(second_memory.alloc_device(blob.nbytes))
        blob.copy_from(Blob(shape, dtype, device=second_memory))

    @pytest.mark.parametrize(
        "call",
        [
            lambda blob: blob.data,
            lambda blob: blob.diff,
            lambda blob: blob.cpu_data(),
            lambda blob: blob.mutable_cpu_diff(),
            lambda blob: blob.set_cpu_data(np.zeros(1, np.float32)),
            lambda blob: blob.set_gpu_data(None),
            lambda blob: blob.update(),
            lambda blob: blob.numpy(),
            lambda blob: blob.share_data(Blob(3)),
            lambda blob: Blob(3).share_data(blob),
            lambda blob: Blob(3).copy_from(blob, reshape=True),
        ],
    )
    def test_the_data_of_a_blob_that_never_had_a_shape_is_an_error_not_a_crash(
        self, call: Callable[[Blob], object]
    ) -> None:
        with pytest.raises(NoDataError, match="reshape it first"):
            call(Blob())


class TestClosing:
    @pytest.mark.parametrize(
        "call",
        [
            lambda blob: blob.data,
            lambda blob: blob.reshape(3),
            lambda blob: blob.cpu_data(),
            lambda blob: blob.gpu_shape(),
            lambda blob: blob.asum_data(),
            lambda blob: blob.scale_diff(2.0),
            lambda blob: blob.set_cpu_data(np.zeros(6, np.float32)),
            lambda blob: blob.copy_from(Blob(6)),
            lambda blob: Blob(6).reshape_like(blob),
        ],
    )
    def test_a_closed_blob_refuses_every_access(self, call: Callable[[Blob], object]) -> None:
        with Blob(6) as blob:
            blob.mutable_cpu_data()
        blob.close()
        with pytest.raises(ClosedError, match="closed"):
            call(blob)

    def test_closing_frees_both_memories(self, second_memory: Device) -> None:
        blob = counting(Blob(6, device=second_memory))
        blob.gpu_data()
        blob.gpu_shape()
        blob.close()
        info = second_memory.memory_info()
        assert (0, 0) == (info.num_buffers, info.num_host_buffers)


def test_a_new_blob_allocates_nothing(second_memory: Device) -> None:
    blob = Blob((1 << 30, 1 << 10), device=second_memory)
    info = second_memory.memory_info()
    assert (0, 0) == (info.num_buffers, info.num_host_buffers)
    assert 1 << 42 == blob.nbytes < sys.maxsize


def test_the_repr_shows_live_state_on_a_line(device: Device) -> None:
    blob = Blob((2, 3), np.float16, device=device)
    assert f"<Blob (2, 3) float16 on {device.name}, not filled yet>" == repr(blob)
    blob.cpu_data()
    assert f"<Blob (2, 3) float16 on {device.name}, newest on the host>" == repr(blob)
    assert "2 3 (6) float16, data HEAD_AT_CPU, diff UNINITIALIZED" == blob.state_string
    blob.diff.cpu_data()
    assert blob.state_string.endswith(", diff HEAD_AT_CPU")
    blob.close()
    assert f"<Blob (2, 3) float16 on {device.name}, closed>" == repr(blob)
    assert "<Blob () float32 on cpu, no data>" == repr(Blob())


def test_the_repr_says_on_which_side_the_newest_bytes_are(second_memory: Device) -> None:
    blob = Blob((2,), device=second_memory)
    blob.mutable_gpu_data()
    assert repr(blob).endswith(", newest on the device>")
    blob.cpu_data()
    assert repr(blob).endswith(", the same on host and device>")
