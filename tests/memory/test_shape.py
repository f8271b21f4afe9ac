"""Shapes: counts, axes, offsets, legacy dimensions."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import AxisError, OffsetError, ShapeError
from memory._shape import (
    Dims,
    ShapeLike,
    canonical_axis,
    count_between,
    count_elements,
    dims_of,
    element_offset,
    equals_legacy,
    legacy_dims,
    shape_text,
)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (5, (5,)),
        (np.int64(5), (5,)),
        ((), ()),
        ((2, 3), (2, 3)),
        ([2, 3], (2, 3)),
        (np.array([2, 3]), (2, 3)),
        (SimpleNamespace(dim=[2, 3]), (2, 3)),
    ],
    ids=["int", "numpy int", "nothing", "tuple", "list", "array", "message"],
)
def test_a_shape_is_taken_in_each_of_its_forms(shape: ShapeLike, expected: Dims) -> None:
    dims = dims_of(shape)
    assert expected == dims
    assert all(type(dim) is int for dim in dims)


@pytest.mark.parametrize("shape", [1.5, (2, 1.5), "23", None])
def test_a_shape_of_anything_but_integers_is_a_type_error(shape: object) -> None:
    with pytest.raises(TypeError):
        dims_of(shape)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("dims", "expected"), [((), 1), ((7,), 7), ((2, 3, 4), 24), ((0, 5), 0), ((1,) * 32, 1)]
)
def test_elements_are_the_product_of_the_dimensions(dims: Dims, expected: int) -> None:
    assert expected == count_elements(dims, 4)


def test_more_than_32_axes_are_refused() -> None:
    with pytest.raises(ShapeError, match="at most 32 axes, found 33") as caught:
        count_elements((1,) * 33, 4)
    assert (1,) * 33 == caught.value.shape


def test_a_negative_dimension_is_refused_by_axis_and_value() -> None:
    with pytest.raises(ShapeError, match="found -3 at axis 1"):
        count_elements((2, -3), 4)


@pytest.mark.parametrize("itemsize", [1, 4, 8])
def test_elements_are_counted_in_64_bits_up_to_the_last_addressable_byte(itemsize: int) -> None:
    most = sys.maxsize // itemsize
    assert most == count_elements((most,), itemsize)
    with pytest.raises(ShapeError, match=str(most + 1)):
        count_elements((most + 1,), itemsize)


def test_caffes_limit_of_int_max_elements_is_gone() -> None:
    assert 2**31 == count_elements((65536, 32768), 4)


def test_an_overflowing_product_is_refused_with_the_shape_named() -> None:
    dims = (1 << 40, 1 << 40)
    with pytest.raises(ShapeError, match=f"{1 << 40}, {1 << 40}") as caught:
        count_elements(dims, 4)
    assert dims == caught.value.shape


def test_dimensions_behind_a_zero_are_not_multiplied() -> None:
    assert 0 == count_elements((0, 1 << 30, 1 << 30, 1 << 30), 8)


def test_a_zero_behind_an_overflow_comes_too_late() -> None:
    with pytest.raises(ShapeError):
        count_elements((1 << 40, 1 << 40, 0), 4)


@pytest.mark.parametrize(
    ("start", "stop", "expected"), [(0, 3, 24), (1, 3, 12), (1, 2, 3), (2, 2, 1), (3, 3, 1)]
)
def test_a_count_between_axes_multiplies_theirs(start: int, stop: int, expected: int) -> None:
    assert expected == count_between((2, 3, 4), start, stop)


@pytest.mark.parametrize(("start", "stop"), [(2, 1), (-1, 2), (0, 4), (4, 4), (0, -1)])
def test_a_count_between_impossible_axes_is_refused(start: int, stop: int) -> None:
    with pytest.raises(AxisError, match=f"start {start} and stop {stop}"):
        count_between((2, 3, 4), start, stop)


def test_axes_count_from_both_ends() -> None:
    assert [0, 1, 2, 0, 1, 2] == [canonical_axis((2, 3, 4), axis) for axis in (0, 1, 2, -3, -2, -1)]


@pytest.mark.parametrize(("dims", "axis"), [((2, 3), 2), ((2, 3), -3), ((), 0), ((), -1)])
def test_an_axis_out_of_range_is_refused_with_the_shape(dims: Dims, axis: int) -> None:
    with pytest.raises(AxisError, match=f"axis {axis} is out of range") as caught:
        canonical_axis(dims, axis)
    assert (axis, dims) == (caught.value.axis, caught.value.shape)


def test_legacy_dimensions_are_padded_at_the_end() -> None:
    assert [(1, 1, 1, 1), (7, 1, 1, 1), (2, 3, 4, 5)] == [
        legacy_dims(dims) for dims in ((), (7,), (2, 3, 4, 5))
    ]


def test_five_axes_have_no_legacy_dimensions() -> None:
    with pytest.raises(ShapeError, match="at most 4 axes"):
        legacy_dims((1, 1, 1, 1, 1))


@pytest.mark.parametrize(
    ("dims", "legacy", "expected"),
    [
        ((3, 2), (1, 1, 3, 2), True),
        ((3, 2), (0, 1, 3, 2), False),
        ((3, 2), (3, 1, 3, 2), False),
        ((1, 3, 2), (1, 1, 3, 2), True),
        ((2, 3, 2), (1, 1, 3, 2), False),
        ((1, 1, 1, 3, 2), (1, 1, 3, 2), False),
        ((), (1, 1, 1, 1), True),
    ],
)
def test_legacy_shapes_are_compared_from_the_end(dims: Dims, legacy: Dims, expected: bool) -> None:  # noqa: FBT001 - a table's column
    assert expected == equals_legacy(dims, legacy)


def test_an_offset_counts_missing_indices_as_zero() -> None:
    assert [0, 12, 20, 23] == [
        element_offset((2, 3, 4), index) for index in ((), (1,), (1, 2), (1, 2, 3))
    ]


@pytest.mark.parametrize("index", [(2,), (-1,), (0, 3), (0, -1), (0, 0, 4), (0, 0, 0, 0)])
def test_an_offset_outside_of_the_shape_is_refused(index: Dims) -> None:
    with pytest.raises(OffsetError) as caught:
        element_offset((2, 3, 4), index)
    assert (index, (2, 3, 4)) == (caught.value.index, caught.value.shape)


def test_an_axis_of_no_elements_has_no_offset_even_if_its_index_is_left_out() -> None:
    with pytest.raises(OffsetError):
        element_offset((2, 0), (1,))


@given(st.lists(st.integers(1, 5), max_size=4).map(tuple))
def test_offsets_are_numpys_places_in_row_major_order(dims: Dims) -> None:
    places = np.arange(int(np.prod(dims))).reshape(dims)
    for index in itertools.product(*map(range, dims)):
        assert places[index] == element_offset(dims, index)


@pytest.mark.parametrize(
    ("dims", "count", "expected"), [((2, 3, 4), 24, "2 3 4 (24)"), ((), 1, "(1)"), ((), 0, "(0)")]
)
def test_a_shape_is_written_as_caffe_does(dims: Dims, count: int, expected: str) -> None:
    assert expected == shape_text(dims, count)
