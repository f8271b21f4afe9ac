"""Resizing, to the bit as Pillow 13 does it: the definition, which `native/resize.c` follows.

Each axis is resampled by itself. A pixel of the result is a weighted sum of those pixels of a line
that the filter covers, its taps; where the image shrinks, the filter is as much wider. The weights
are computed in float64, in Pillow's order of operations, and rounded to 22 bits behind the point;
all else is whole numbers. Between the two passes pixels are uint8 again, so that it matters which
is done first: `resizes_rows_first`.

The reference is Pillow itself, at the version that the tests are pinned to
(tests/prefetch/kernels/test_resize.py).
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

FRACTION_BITS = 22
"""Of a coefficient. Eight bits of a pixel and one for the sign leave room for sums in int32."""


class Interpolation(IntEnum):
    """Which filter weighs the pixels. The C kernel knows them by these numbers."""

    BILINEAR = 0
    BICUBIC = 1


_RADIUS = {Interpolation.BILINEAR: 1.0, Interpolation.BICUBIC: 2.0}  # in pixels of the larger side


class Taps(NamedTuple):
    """What an axis is resampled by: pixel i becomes the sum over k of
    ``coefficients[i, k] * line[firsts[i] + k]``, rounded half up after division by 2^22.

    Attributes:
        firsts: int32 (num_out,); `firsts[i]` and as many as there are coefficients lie in the line.
        coefficients: int32 (num_out, num_taps), C-contiguous. All outputs have as many, the widest
            one's; those that an output does not need are 0.
    """  # noqa: D205 - the first sentence has a formula

    firsts: NDArray[np.int32]
    coefficients: NDArray[np.int32]


class ResizeKernels(Protocol):
    """What resizing there is in C, beside the feed's. Thread-safe; `resize` releases the GIL."""

    def resize(  # noqa: PLR0917 - as in C
        self,
        image: NDArray[np.uint8],
        box: tuple[int, int, int, int],
        size: tuple[int, int],
        part: tuple[int, int, int, int],
        interpolation: Interpolation,
        out: NDArray[np.uint8],
        /,
    ) -> None:
        """Resize a box of an image, and store a part of the result.

        Args:
            image: uint8 (channels, height, width): C-contiguous but for gaps between rows or
                channels, or a transposed view of one whose channels are the last axis.
            box: (top, left, height, width) in the image, in pixels; nothing around it counts.
            size: (height, width) of the resized box.
            part: (top, left, height, width) in the resized box; only this is computed.
            interpolation: The filter.
            out: uint8 (channels, height, width) of the part, C-contiguous: as `resize` has it.

        Raises:
            ValueError: A rectangle is empty or reaches out, or an array is of another layout.
        """

    def find_taps(
        self,
        sizes: tuple[int, int],
        interpolation: Interpolation,
        firsts: NDArray[np.int32],
        coefficients: NDArray[np.int32],
        /,
    ) -> int:
        """Store an axis's `Taps`, so that another kernel needs whole numbers only.

        Args:
            sizes: (num_in, num_out) of the axis.
            interpolation: The filter.
            firsts: (num_out,), C-contiguous, is written.
            coefficients: (num_out, room), C-contiguous, is written; 0 behind the taps there are.
                `most_taps` says how many need room.

        Returns:
            How many taps there are.

        Raises:
            ValueError: There is room for fewer.
        """


def _weigh(distances: NDArray[np.float64], interpolation: Interpolation) -> NDArray[np.float64]:
    """Return the filter's values at distances from its centre, as float64."""
    x = np.abs(distances)
    if interpolation == Interpolation.BILINEAR:
        return np.where(x < 1.0, 1.0 - x, 0.0)
    near = (1.5 * x - 2.5) * x * x + 1.0
    far = (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5
    return np.where(x < 1.0, near, np.where(x < 2.0, far, 0.0))


def most_taps(num_in: int, num_out: int, interpolation: Interpolation) -> int:
    """Return a number of taps that an axis does not exceed; it grows with ``num_in / num_out``."""
    reach = _RADIUS[interpolation] * max(num_in / num_out, 1.0)
    return min(2 * math.ceil(reach) + 1, num_in)


def find_taps(num_in: int, num_out: int, interpolation: Interpolation) -> Taps:
    """Compute which pixels of a line, and how much of each, make those of a resized one.

    Args:
        num_in: Pixels of the line, from 1.
        num_out: Pixels of the resized line, from 1.
        interpolation: The filter.
    """
    scale = num_in / num_out
    stretch = max(scale, 1.0)
    reach = _RADIUS[interpolation] * stretch
    centers = (np.arange(num_out) + 0.5) * scale
    firsts = np.maximum((centers - reach + 0.5).astype(np.int64), 0)
    ends = np.minimum((centers + reach + 0.5).astype(np.int64), num_in)
    num_taps = int((ends - firsts).max())
    starts = np.minimum(firsts, num_in - num_taps)  # so that as many pixels are there for each
    weights = np.zeros((num_out, num_taps))
    total = np.zeros(num_out)
    for tap in range(num_taps):  # sums are formed from left to right, as Pillow does
        pixels = starts + tap
        weight = _weigh((pixels - centers + 0.5) * (1.0 / stretch), interpolation)
        weights[:, tap] = np.where((firsts <= pixels) & (pixels < ends), weight, 0.0)
        total += weights[:, tap]
    scaled = weights / total[:, None] * (1 << FRACTION_BITS)
    rounded = np.where(scaled < 0, scaled - 0.5, scaled + 0.5).astype(np.int32)  # cuts off
    return Taps(starts.astype(np.int32), rounded)


def resizes_rows_first(height: int, width: int, new_height: int, new_width: int) -> bool:
    """Tell whether the height is changed before the width, as Pillow 13 chooses.

    Found by comparing both orders with what Pillow returns: the height comes first where it
    shrinks, and by more than twice as many pixels as the width does.
    """
    return new_height < height and height - new_height > 2 * (width - new_width)


def resample_rows(pixels: NDArray[np.uint8], taps: Taps) -> NDArray[np.uint8]:
    """Resample the axis before the last one of (channels, height, width)."""
    num_out, num_taps = taps.coefficients.shape
    half = 1 << (FRACTION_BITS - 1)
    sums = np.full((pixels.shape[0], num_out, pixels.shape[2]), half, np.int32)
    for tap in range(num_taps):
        sums += pixels[:, taps.firsts + tap] * taps.coefficients[:, tap, None]
    resampled: NDArray[np.uint8] = np.clip(sums >> FRACTION_BITS, 0, 255).astype(np.uint8)
    return resampled


def resample_columns(pixels: NDArray[np.uint8], taps: Taps) -> NDArray[np.uint8]:
    """Resample the last axis of (channels, height, width)."""
    return resample_rows(pixels.transpose(0, 2, 1), taps).transpose(0, 2, 1)


def _resize_rows(
    pixels: NDArray[np.uint8], num_out: int, interpolation: Interpolation
) -> NDArray[np.uint8]:
    """Resize the axis before the last one of (channels, height, width)."""
    if num_out == pixels.shape[1]:
        return pixels
    return resample_rows(pixels, find_taps(pixels.shape[1], num_out, interpolation))


def _resize_columns(
    pixels: NDArray[np.uint8], num_out: int, interpolation: Interpolation
) -> NDArray[np.uint8]:
    """Resize the last axis of (channels, height, width)."""
    turned = _resize_rows(pixels.transpose(0, 2, 1), num_out, interpolation)
    return turned.transpose(0, 2, 1)


def resize(
    pixels: NDArray[np.uint8], height: int, width: int, interpolation: Interpolation
) -> NDArray[np.uint8]:
    """Resize an image, each channel by itself.

    Args:
        pixels: uint8 (channels, height, width) of any strides, none of them 0. A crop is cut out
            before; nothing around it counts.
        height: Rows of the result, from 1.
        width: Columns of the result, from 1.
        interpolation: The filter.

    Returns:
        uint8 (channels, height, width).
    """
    if resizes_rows_first(pixels.shape[1], pixels.shape[2], height, width):
        return _resize_columns(_resize_rows(pixels, height, interpolation), width, interpolation)
    return _resize_rows(_resize_columns(pixels, width, interpolation), height, interpolation)
