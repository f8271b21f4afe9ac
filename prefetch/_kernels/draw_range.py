"""Random words reduced to a range."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Draw = Callable[[int, int, NDArray[np.int64], NDArray[np.uint32]], None]

_LOW_WORD: Final = 0xFFFFFFFF


def reduce_word(word: int, extent: int, *, modulo: bool) -> int:
    """Reduce a raw word to one of `extent` values.

    Args:
        word: 0 to 2^32 - 1.
        extent: How many values there are, 1 to 2^32.
        modulo: Whether to take the remainder, as Caffe's ``DataTransformer::Rand`` does;
            otherwise the upper half of word * extent.

    Returns:
        0 to extent - 1.

    Raises:
        ValueError: `extent` is below 1.
    """
    if extent < 1:
        raise ValueError(f"extent is {extent}: expected 1 or more values to draw from")
    # A NumPy scalar would overflow in the product.
    word = int(word)
    return word % extent if modulo else word * extent >> 32


def reduce_words(
    words: NDArray[np.uint32], extents: int | NDArray[np.int64], *, modulo: bool
) -> NDArray[np.int64]:
    """Reduce raw words as `reduce_word` does.

    Args:
        words: Any shape.
        extents: How many values there are for each, 1 to 2^32 - 1; broadcasts with `words`.
        modulo: See `reduce_word`.

    Returns:
        int64, each from 0 to its extent - 1.

    Raises:
        ValueError: An extent is below 1.
    """
    if np.any(np.less(extents, 1)):
        raise ValueError(f"extents reach {np.min(extents)}: expected 1 or more values to draw from")
    wide = words.astype(np.uint64)
    ranges = np.asarray(extents).astype(np.uint64)
    reduced = wide % ranges if modulo else wide * ranges >> 32
    return reduced.astype(np.int64)
