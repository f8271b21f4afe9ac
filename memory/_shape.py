"""The arithmetic of shapes: counts, axes, offsets and Caffe's legacy four dimensions. Pure.

A shape is a tuple of Python integers. Caffe counts elements in a 32-bit int; here a shape is good
as long as its bytes can be addressed, and a larger one is refused before anything is allocated.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from memory._errors import AxisError, OffsetError, ShapeError

MAX_AXES: Final = 32
"""The most axes that a blob may have (Caffe's kMaxBlobAxes)."""

NUM_LEGACY_AXES: Final = 4
"""Axes of the legacy shape: num, channels, height, width."""

Dims: TypeAlias = tuple[int, ...]
"""A shape in its one canonical form."""


class HasDim(Protocol):
    """Anything with a shape in a field ``dim``, such as Caffe's BlobShape message."""

    @property
    def dim(self) -> Iterable[int]:
        """The dimensions, outermost first."""
        ...


ShapeLike: TypeAlias = int | Sequence[int] | HasDim
"""What is taken for a shape: one dimension, a sequence of them, or a message with ``dim``."""


def dims_of(shape: ShapeLike) -> Dims:
    """Bring a shape into its canonical form.

    Args:
        shape: One integer (one axis), a sequence of integers, or a message with ``dim``.

    Returns:
        The dimensions, unchecked.

    Raises:
        TypeError: Something in it is no integer.
    """
    if isinstance(shape, (int, np.integer)):
        return (int(shape),)
    dims: Any = getattr(shape, "dim", shape)
    return tuple(map(operator.index, dims))


def count_elements(dims: Dims, itemsize: int) -> int:
    """Count the elements of a shape and check that they can be held.

    As in Caffe, the running product is what is checked, so that the dimensions behind a 0 may be as
    large as they like.

    Args:
        dims: The shape.
        itemsize: Bytes of one element.

    Returns:
        The number of elements; 1 for no dimensions at all.

    Raises:
        ShapeError: More than 32 axes, a negative dimension, or more bytes than can be addressed.
    """
    if len(dims) > MAX_AXES:
        raise ShapeError(
            f"shape {dims}: expected at most {MAX_AXES} axes, found {len(dims)}", shape=dims
        )
    count = 1
    for axis, dim in enumerate(dims):
        if dim < 0:
            raise ShapeError(
                f"shape {dims}: expected no negative dimension, found {dim} at axis {axis}; "
                f"for an array of another shape, as of NumPy's reshape, write blob.numpy().reshape",
                shape=dims,
            )
        count *= dim
        if count * itemsize > sys.maxsize or dim > sys.maxsize:
            raise ShapeError(
                f"shape {dims}: expected at most {sys.maxsize} bytes, found {count} elements of "
                f"{itemsize} bytes up to axis {axis}",
                shape=dims,
            )
    return count


def count_between(dims: Dims, start: int, stop: int) -> int:
    """Multiply the dimensions of the axes from ``start`` up to, but without, ``stop``.

    Raises:
        AxisError: Unless 0 <= start <= stop <= number of axes; here, negative ones do not count
            from the end.
    """
    if not 0 <= start <= stop <= len(dims):
        raise AxisError(
            f"count of shape {dims}: expected 0 <= start <= stop <= {len(dims)}, "
            f"found start {start} and stop {stop}",
            axis=stop if 0 <= start <= len(dims) else start,
            shape=dims,
        )
    return math.prod(dims[start:stop])


def canonical_axis(dims: Dims, axis: int) -> int:
    """Turn an axis that may count from the end (-1 is the last) into one that does not.

    Raises:
        AxisError: The shape has no such axis.
    """
    if not -len(dims) <= axis < len(dims):
        raise AxisError(
            f"axis {axis} is out of range: expected {-len(dims)} <= axis < {len(dims)} "
            f"for shape {dims}",
            axis=axis,
            shape=dims,
        )
    return axis % len(dims)


def legacy_dims(dims: Dims) -> Dims:
    """Pad a shape with ones at its end to num, channels, height, width.

    Raises:
        ShapeError: The shape has more than four axes.
    """
    if len(dims) > NUM_LEGACY_AXES:
        raise ShapeError(
            f"shape {dims}: expected at most {NUM_LEGACY_AXES} axes for num, channels, height and "
            f"width, found {len(dims)}; use shape and offset((...)) instead",
            shape=dims,
        )
    return dims + (1,) * (NUM_LEGACY_AXES - len(dims))


def equals_legacy(dims: Dims, legacy: Dims) -> bool:
    """Say whether a shape is the legacy one, aligned at the end: (3, 2) equals (1, 1, 3, 2)."""
    padding = NUM_LEGACY_AXES - len(dims)
    return padding >= 0 and (1,) * padding + dims == legacy


def element_offset(dims: Dims, index: Sequence[int]) -> int:
    """Find the place of an element in row-major order.

    Stricter than Caffe, whose legacy form lets an index equal its dimension or be -1: the place is
    always that of an element that exists.

    Args:
        dims: The shape.
        index: One number an axis; those missing at the end count as 0.

    Returns:
        Elements from the first one of the blob.

    Raises:
        OffsetError: More numbers than axes, or one outside of 0 <= number < dimension.
    """
    index = tuple(map(operator.index, index))
    if len(index) > len(dims):
        raise OffsetError(
            f"index {index}: expected at most {len(dims)} numbers for shape {dims}, "
            f"found {len(index)}",
            index=index,
            shape=dims,
        )
    offset = 0
    for axis, (dim, place) in enumerate(zip(dims, index + (0,) * len(dims), strict=False)):
        if not 0 <= place < dim:
            raise OffsetError(
                f"index {index}: expected 0 <= number < {dim} at axis {axis} of shape {dims}, "
                f"found {place}",
                index=index,
                shape=dims,
            )
        offset = offset * dim + place
    return offset


def shape_text(dims: Dims, count: int) -> str:
    """Write a shape as Caffe does: ``2 3 4 (24)``."""
    return "".join(f"{dim} " for dim in dims) + f"({count})"
