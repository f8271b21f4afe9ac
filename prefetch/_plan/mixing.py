"""How a batch is mixed with itself: what is drawn for mixup and cutmix.

Each sample is mixed with that at the same place from the batch's end, as timm has it. How much
remains of it, lam, follows Beta(alpha, alpha), and is one number for the whole batch.

The words of a batch are numbered, four to a block of Philox4x32, of a stream of their own:
the counter is (number low, number high, number of the block, 0) of the batch's number in the order
of all ranks. Words 0 and 1 give lam, 2 and 3 the centre of cutmix's box, 4 which of the two it is
where both are asked for.

lam is Bailey's: with u = (word 0 + 0.5) / 2^32 and v = (word 1 + 0.5) / 2^32, the number
sqrt(2a (u^(-1/a) - 1)) cos(2 pi v) has Student's distribution of 2a degrees of freedom, and is
turned into one of Beta(a, a) (Bailey, "Polar generation of random variates with the
t-distribution", 1994; Devroye, "Random variate generation in one line of code", 1996). It takes two
words for any alpha and rejects none, so that it needs nothing of NumPy's, whose own way to a beta
may change with its version. All of this is frozen by test vectors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from prefetch._plan.philox import Domain, philox4x32, stream_key

if TYPE_CHECKING:
    from numpy.typing import NDArray

_NUM_BLOCKS = 2
_LOW_WORD = 0xFFFFFFFF


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixing:
    """How batches are mixed: by the one that is given, or by either with a chance of one half.

    Attributes:
        mixup: Alpha of mixup, a weighted sum of both samples; None for no mixup.
        cutmix: Alpha of cutmix, a box cut from the other sample; None for no cutmix.
    """

    mixup: float | None = None
    cutmix: float | None = None


class Box(NamedTuple):
    """A box of pixels; it may be empty."""

    top: int
    bottom: int
    left: int
    right: int


class Mix(NamedTuple):
    """How one batch is mixed.

    Attributes:
        lam: What remains of each sample, 0 to 1: a float32, exactly.
        box: What each sample takes from the other, by cutmix; None for mixup.
    """

    lam: float
    box: Box | None


def draw_mix(mixing: Mixing, *, seed: int, epoch: int, number: int, height: int, width: int) -> Mix:
    """Draw how a batch is mixed.

    Args:
        mixing: What is asked for; at least one of the two.
        seed: The run's.
        epoch: The batch's.
        number: The batch's in the order of all ranks.
        height: Of its samples, in pixels.
        width: Likewise.
    """
    words = mixing_words(seed, epoch, number).tolist()
    alpha = mixing.mixup
    if mixing.cutmix is not None and (alpha is None or words[4] >> 31):
        lam = draw_lam(mixing.cutmix, words[0], words[1])
        box = cut_box(lam, words[2] * height >> 32, words[3] * width >> 32, height, width)
        area = (box.bottom - box.top) * (box.right - box.left)
        # At an edge less is cut than was drawn: what remains of the sample is counted.
        return Mix(float(np.float32(1 - area / (height * width))), box)
    assert alpha is not None
    return Mix(float(np.float32(draw_lam(alpha, words[0], words[1]))), None)


def mixing_words(seed: int, epoch: int, number: int) -> NDArray[np.uint32]:
    """Return the random words of a batch: uint32 (8,), of which five are used."""
    counters = np.zeros((4, _NUM_BLOCKS), np.uint64)
    counters[0] = number & _LOW_WORD
    counters[1] = number >> 32
    counters[2] = range(_NUM_BLOCKS)
    return philox4x32(counters, stream_key(seed, epoch, Domain.MIXING)).T.reshape(-1)


def draw_lam(alpha: float, word0: int, word1: int) -> float:
    """Turn two random words into a number that follows Beta(alpha, alpha).

    Args:
        alpha: Above 0.
        word0: 0 to 2^32 - 1.
        word1: Likewise.

    Returns:
        0 to 1.
    """
    u, v = (word0 + 0.5) / 2**32, (word1 + 0.5) / 2**32
    cosine = math.cos(2 * math.pi * v)
    power = math.pow(u, 1 / alpha)  # may become 0, for which u^(-1/alpha) would be too large
    # 1 less the square of t / sqrt(2 alpha + t^2), of which the nearer end's distance is made:
    # a difference from 1 would lose the small ones.
    rest = power / (power + (1 - power) * cosine * cosine)
    least = rest / (2 * (1 + math.sqrt(1 - rest)))
    return least if cosine < 0 else 1 - least


def cut_box(lam: float, row: int, column: int, height: int, width: int) -> Box:
    """Return the box that cutmix cuts: sqrt(1 - lam) of each side, as far as it is in the image.

    Args:
        lam: 0 to 1.
        row: Of the centre.
        column: Of the centre.
        height: Of the image, in pixels.
        width: Likewise.
    """
    share = math.sqrt(1 - lam)
    half_height, half_width = int(height * share) // 2, int(width * share) // 2
    return Box(
        max(row - half_height, 0),
        min(row + half_height, height),
        max(column - half_width, 0),
        min(column + half_width, width),
    )
