"""Random erasing in NumPy: what it is, which the C kernel is compared with.

It is timm's ``RandomErasing``: of some images a box of a drawn share of the area and a drawn ratio
of its sides, at a drawn place, is written over, after all else was computed and before numbers are
rounded to 16 bits.

The normal numbers are the same on every machine, for they are looked up: the upper half of a random
word chooses one of 65,536 quantiles, from -4.2 to 4.2. Their words are those of a stream of Philox
of the record's own (`prefetch._plan.philox`): word i is word i % 4 of the block of counter
(i // 4, 0, 0, 0). Numbers are counted channel by channel, as delivered, each row by row, whatever
the layout of the batch is.
"""

from __future__ import annotations

import functools
import math
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._kernels.boxes import Box
from prefetch._kernels.contract import ErasingMode
from prefetch._plan.philox import philox4x32
from prefetch._plan.random_words import draw_between, reduce_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from prefetch._kernels.contract import Erasing

_TRIES: Final = 10
_WORDS_A_TRY: Final = 4
_GATE_WORD: Final = 0
_KEY_WORDS: Final = slice(1, 3)
_FIRST_TRY: Final = 4
_NUM_QUANTILES: Final = 1 << 16


def noise_key(words: Sequence[int]) -> tuple[int, int]:
    """Return the key of a record's noise, of its words as `choose_erased` takes them."""
    first, second = words[_KEY_WORDS]
    return first, second


def choose_erased(words: Sequence[int], height: int, width: int, options: Erasing) -> Box | None:
    """Choose which box of a record is erased.

    Args:
        words: The record's 44 raw words of random erasing: whether it is done at all, two of the
            noise's key, one that is not used, then four for each of ten tries: area, ratio, row,
            column.
        height: Of what is delivered, in pixels.
        width: Likewise.
        options: What to do.

    Returns:
        The box; None where none is erased: by the draw, or since no try gave a box that is smaller
        than the image.
    """
    if draw_between(words[_GATE_WORD], 0, 1) >= options.probability:
        return None
    for start in range(_FIRST_TRY, _FIRST_TRY + _TRIES * _WORDS_A_TRY, _WORDS_A_TRY):
        area_word, ratio_word, row_word, column_word = words[start : start + _WORDS_A_TRY]
        share = draw_between(area_word, options.least_scale, options.most_scale)
        area = share * height * width
        ratio = math.exp(draw_between(ratio_word, options.log_least_ratio, options.log_most_ratio))
        rows, columns = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < rows < height and 0 < columns < width:
            top = reduce_word(row_word, height - rows + 1, modulo=False)
            left = reduce_word(column_word, width - columns + 1, modulo=False)
            return Box(top, left, rows, columns)
    return None


def erase(planes: NDArray[np.float32], words: Sequence[int], options: Erasing) -> None:
    """Write over a box of a record, if it is drawn to be.

    Args:
        planes: float32 (channels, height, width), of any strides: what is delivered of the record,
            changed in place.
        words: As for `choose_erased`.
        options: What to do.
    """
    _, height, width = planes.shape
    box = choose_erased(words, height, width, options)
    if box is not None:
        write_over(planes, box, noise_key(words), options)


def write_over(
    planes: NDArray[np.float32], box: Box, key: tuple[int, int], options: Erasing
) -> None:
    """Write over a box of a record; the key is that of its noise. See `erase`."""
    erased = planes[:, box.top : box.top + box.height, box.left : box.left + box.width]
    if options.mode == ErasingMode.CONST:
        erased[...] = 0
    elif options.mode == ErasingMode.RAND:
        erased[...] = _noise(key, len(planes), options).reshape(-1, 1, 1)
    else:
        erased[...] = _noise(key, erased.size, options).reshape(erased.shape)


def _noise(key: Sequence[int], num: int, options: Erasing) -> NDArray[np.float32]:
    """Return the first normal numbers of the stream of a key of two words: float32 (num,)."""
    assert options.noise is not None
    counters = np.zeros((4, -(-num // 4)), np.uint64)
    counters[0] = np.arange(counters.shape[1])
    words = philox4x32(counters, np.array(key, np.uint64).reshape(2, 1))
    numbers: NDArray[np.float32] = options.noise[words.T.reshape(-1)[:num] >> 16]
    return numbers


@functools.cache
def noise_table() -> NDArray[Any]:
    """Return the quantiles of the normal distribution that noise is made of.

    Returns:
        float32 (65536,), read-only, rising: number i is the quantile of (i + 1/2) / 65536, rounded
        once. Its second half is the first one in reverse with the other sign.
    """
    quantile = NormalDist().inv_cdf
    half = _NUM_QUANTILES // 2
    lower = np.array([quantile((i + 0.5) / _NUM_QUANTILES) for i in range(half)], np.float32)
    table = np.concatenate([lower, -lower[::-1]])
    table.flags.writeable = False
    return table
