"""What a blob knows of its shape: Caffe's questions about axes, counts and offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from memory._errors import OffsetError
from memory._shape import canonical_axis, count_between, element_offset, legacy_dims, shape_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memory._shape import Dims


class BlobShape:
    """A blob's shape, and Caffe's questions about it.

    A default-constructed blob has no axes and no elements; a scalar has no axes and one element.
    So the count is not always the product of the shape, and both are kept.
    """

    __slots__ = ("_count", "_shape")

    def __init__(self) -> None:
        self._shape: Dims = ()
        self._count = 0

    @property
    def shape(self) -> Dims:
        """The dimensions, outermost first."""
        return self._shape

    @property
    def shape_string(self) -> str:
        """The shape as Caffe logs it: ``2 3 4 (24)``."""
        return shape_text(self._shape, self._count)

    @property
    def num_axes(self) -> int:
        """The number of dimensions, 0 to 32."""
        return len(self._shape)

    def count(self, start: int | None = None, stop: int | None = None) -> int:
        """Count elements: all of them, or those of one index of the axes before ``start``.

        Args:
            start: First axis whose dimension is multiplied; None for all elements.
            stop: The axis to stop before; None for the number of axes.

        Raises:
            AxisError: Unless 0 <= start <= stop <= num_axes.
        """
        if start is None and stop is None:
            return self._count
        return count_between(
            self._shape,
            0 if start is None else start,
            self.num_axes if stop is None else stop,
        )

    def canonical_axis_index(self, axis: int) -> int:
        """Turn an axis that may count from the end (-1 is the last) into one that does not.

        Raises:
            AxisError: Unless -num_axes <= axis < num_axes.
        """
        return canonical_axis(self._shape, axis)

    @property
    def num(self) -> int:
        """The first of the legacy four dimensions; 1 if there is none.

        Raises:
            ShapeError: The blob has more than four axes. So for the other three.
        """
        return legacy_dims(self._shape)[0]

    @property
    def channels(self) -> int:
        """The second of the legacy four dimensions; 1 if there is none."""
        return legacy_dims(self._shape)[1]

    @property
    def height(self) -> int:
        """The third of the legacy four dimensions; 1 if there is none."""
        return legacy_dims(self._shape)[2]

    @property
    def width(self) -> int:
        """The last of the legacy four dimensions; 1 if there is none."""
        return legacy_dims(self._shape)[3]

    def offset(self, n: int | Sequence[int], c: int = 0, h: int = 0, w: int = 0) -> int:
        """Find the place of an element in row-major order.

        Unlike Caffe's, whose bounds are off by one and forget the lower ones, what is returned is
        always the place of an element that exists.

        Args:
            n: The first of the legacy four indices, or all indices as a sequence, whose missing
                ones at the end count as 0.
            c: The second legacy index; not with a sequence.
            h: The third legacy index; not with a sequence.
            w: The fourth legacy index; not with a sequence.

        Returns:
            Elements from the first one.

        Raises:
            OffsetError: There is no such element.
            ShapeError: Legacy indices for more than four axes.
        """
        index: tuple[int, ...]
        if isinstance(n, (int, np.integer)):
            dims, index = legacy_dims(self._shape), (int(n), c, h, w)
        elif (c, h, w) == (0, 0, 0):
            dims, index = self._shape, tuple(n)
        else:
            raise TypeError("offset: expected a sequence of indices or up to four, found both")
        place = element_offset(dims, index)
        if self._count == 0:
            # A default-constructed blob has no axis at which this could have shown.
            raise OffsetError(f"index {index}: the blob is empty", index=index, shape=self._shape)
        return place
