"""What an image is that nothing is wrong with, and that is seldom what was meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prefetch._record.jpeg_markers import JPEG_SIGNATURE, read_jpeg_header

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._record.datum_view import DatumView


def is_turned(datum: DatumView) -> bool:
    """Return whether a record is a JPEG that EXIF asks to turn."""
    if not (datum.encoded and datum.data and bytes(datum.data[:3]) == JPEG_SIGNATURE):
        return False
    header = read_jpeg_header(datum.data)
    return header is not None and header.is_turned


def is_grey_in_colour(planes: NDArray[Any]) -> bool:
    """Return whether an image has the same values in each of three channels, not all of them one.

    Args:
        planes: (channels, height, width).
    """
    if len(planes) != 3:
        return False
    first = planes[0]
    # An image of one colour, such as black, says nothing.
    if not (first != first.flat[0]).any():
        return False
    return bool((planes[1] == first).all() and (planes[2] == first).all())


def is_transparent(planes: NDArray[Any]) -> bool:
    """Return whether an image has a fourth channel, alpha, that hides some of its pixels.

    Args:
        planes: uint8 (channels, height, width).
    """
    return len(planes) == 4 and bool((planes[3] < 128).any())
