"""The random words of a record: what each is for, and how one becomes a choice.

Words are raw, 32 bits each, and drawn before a record is read. They are reduced once its size is
known.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Word(IntEnum):
    """What a record's random words are for: each the number of its column in an array of words.

    The number is also that of the word in the record's stream of Philox, and never changes, so that
    a seed gives the same words with or without the others. `native/kernels.h` and the table of the
    device's kernel have the same order. Operations that need more have words of their own, behind
    these: their numbers are below, and their columns are there where the operation draws, in the
    order of the numbers.
    """

    MIRROR = 0
    ROW = 1
    COLUMN = 2


NUM_WORDS: Final = len(Word)

RESIZED_CROP_WORDS: Final = range(16, 56)
"""Words of a random-resized crop's box: area, ratio, row and column of each of its ten tries."""

JITTER_WORDS: Final = range(64, 68)
"""Words of colour jitter: the order, and the factors of brightness, contrast and saturation."""

ERASING_WORDS: Final = range(128, 172)
"""Words of random erasing: whether, two of the noise's key, one that is free; then area, ratio, row
and column of each of ten tries."""


def blocks_of(words: range) -> tuple[int, ...]:
    """Return the blocks of Philox, of four words each, that a range of words is made of."""
    return tuple(range(words.start // 4, words.stop // 4))


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


def draw_between(word: int, low: float, high: float) -> float:
    """Return a number between two, evenly drawn by a raw word.

    Args:
        word: 0 to 2^32 - 1.
        low: What a word of 0 gives.
        high: What the largest word comes close to.
    """
    return low + word / 4294967296 * (high - low)
