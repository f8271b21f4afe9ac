"""Views of bytes: as an array of a dtype and shape, and without the right to write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from memory._errors import ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory._shape import Dims


def typed_view(data: NDArray[np.uint8], dtype: np.dtype[Any], shape: Dims) -> NDArray[Any]:
    """View the start of some bytes as an array.

    Args:
        data: uint8, at least as many bytes as the array needs.
        dtype: Of the array.
        shape: Of the array.

    Returns:
        A view, read-only where ``data`` is.

    Raises:
        ShapeError: NumPy cannot express the shape, which happens to shapes with a 0 in them whose
            other dimensions multiply to more bytes than can be addressed.
    """
    try:
        # One call instead of a slice, a view and a reshape, which cost three times as much.
        return np.ndarray(shape, dtype, data)
    except ValueError as error:
        raise ShapeError(f"shape {shape}: NumPy has no such array: {error}", shape=shape) from error


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """View an array without the right to write."""
    view = array.view()
    view.flags.writeable = False
    return view
