"""Colour jitter in NumPy: what it is, which the C kernel is compared with.

Brightness, contrast and saturation of uint8 pixels, each times a drawn factor, in a drawn order.
The arithmetic is that of Pillow's ``ImageEnhance``, bit for bit, by which torchvision changes
Pillow's images; the factors are drawn as its ``ColorJitter`` draws them. Each of the three moves
every pixel to or from a base::

    moved = base + factor * (pixel - base)    in float32, with a rounding after each operation
    pixel = moved, at least 0 and at most 255, without its fraction

The base is 0 for brightness; for contrast the mean of the image's grey, rounded; and for saturation
each pixel's own grey, ``(19595 red + 38470 green + 7471 blue + 32768) >> 16``.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._kernels.contract import UNCHANGED
from prefetch._plan.random_words import draw_between, reduce_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from prefetch._kernels.contract import Jitter

_BRIGHTNESS, _CONTRAST, _SATURATION = range(3)

ORDERS: Final = tuple(permutations((_BRIGHTNESS, _CONTRAST, _SATURATION)))
"""The orders in which the operations may be done; the first word of a record says which."""


def jitter(pixels: NDArray[np.uint8], words: Sequence[int], options: Jitter) -> NDArray[np.uint8]:
    """Change an image's brightness, contrast and saturation.

    Args:
        pixels: uint8 (channels, height, width), of any strides; of three channels, or of one, whose
            saturation cannot change.
        words: The record's four raw words: of the order, and of the factors of brightness, contrast
            and saturation.
        options: What to do.

    Returns:
        uint8, of the same shape, in memory of its own.
    """
    planes = pixels.astype(np.float32)
    ranges = options.brightness, options.contrast, options.saturation
    for operation in ORDERS[reduce_word(words[0], len(ORDERS), modulo=False)]:
        if ranges[operation] == UNCHANGED:
            continue
        factor = np.float32(draw_between(words[1 + operation], *ranges[operation]))
        base = _base(operation, planes, red_first=options.red_first)
        moved = base + factor * (planes - base)
        planes = np.trunc(moved.clip(np.float32(0), np.float32(255)))
    return planes.astype(np.uint8)


def _base(
    operation: int, planes: NDArray[np.float32], *, red_first: bool
) -> np.float32 | NDArray[np.float32]:
    """Return what an operation moves the pixels to or from: one number, or one a pixel."""
    if operation == _BRIGHTNESS:
        return np.float32(0)
    grey = _grey(planes, red_first=red_first)
    if operation == _SATURATION:
        return grey
    return np.float32(int(float(grey.sum(dtype=np.float64)) / grey.size + 0.5))


def _grey(planes: NDArray[np.float32], *, red_first: bool) -> NDArray[np.float32]:
    """Return the grey of planes of whole numbers: float32 (height, width), whole numbers too."""
    grey: NDArray[np.float32] = planes[0]
    if len(planes) == 3:
        red, green, blue = planes if red_first else planes[::-1]
        # Whole numbers below 2^24, of which float32 holds each one.
        weighted = np.float32(19595) * red + np.float32(38470) * green + np.float32(7471) * blue
        grey = np.trunc((weighted + np.float32(32768)) * np.float32(2**-16))
    return grey
