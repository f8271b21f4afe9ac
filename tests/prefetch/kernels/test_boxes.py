"""Which box of an image a row is made of: the definition, its frozen values, its distribution."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from prefetch._kernels.boxes import Box, needed_box, resized_box
from prefetch._kernels.contract import ResizeKind, Resizing
from prefetch._plan.draws import CounterDraws
from prefetch._plan.random_words import RESIZED_CROP_WORDS, blocks_of
from prefetch._transform.options import Transform

FIRST = np.zeros(1, np.int64)
FROZEN = [
    Box(0, 59, 373, 302),
    Box(51, 233, 155, 161),
    Box(184, 1, 162, 200),
    Box(105, 11, 267, 312),
]


def resizing(
    *, scale: tuple[float, float] = (0.08, 1.0), ratio: tuple[float, float] = (3 / 4, 4 / 3)
) -> Resizing:
    logs = math.log(ratio[0]), math.log(ratio[1])
    return Resizing(ResizeKind.RANDOM_CROP, 224, 224, False, *scale, *ratio, *logs)


def draws(seed: int, num: int, epoch: int = 0) -> list[list[int]]:
    """Return the words of the first records of an epoch."""
    source = CounterDraws(seed, blocks=np.array(blocks_of(RESIZED_CROP_WORDS), np.int64))
    words: list[list[int]] = source.words_at(np.full(num, epoch), np.arange(num)).tolist()
    return words


def test_a_random_resized_crop_has_forty_words_behind_the_first_three() -> None:
    assert len(draws(3, 1)[0]) == 3 + 40
    whole = CounterDraws(3, blocks=np.arange(1, 14)).words_at(FIRST, FIRST).tolist()[0]
    words = draws(3, 1)[0]
    # Word i is in column i - 1 where all blocks are drawn: the fourth word has no column.
    assert words[:3] == whole[:3]
    assert words[3:] == whole[16 - 1 : 56 - 1]


def test_the_boxes_of_a_seed_are_frozen() -> None:
    boxes = [resized_box(words, 375, 500, resizing()) for words in draws(7, 4)]
    assert boxes == FROZEN


def test_a_box_is_that_of_the_formula_in_doubles() -> None:
    for words in draws(11, 200):
        box = resized_box(words, 375, 500, resizing())
        tries = [words[3 + 4 * t : 7 + 4 * t] for t in range(10)]
        for area_word, ratio_word, top_word, left_word in tries:
            area = (0.08 + area_word / 2**32 * (1 - 0.08)) * 375 * 500
            low, high = math.log(3 / 4), math.log(4 / 3)
            ratio = math.exp(low + ratio_word / 2**32 * (high - low))
            width, height = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if width <= 500 and height <= 375:
                top = top_word * (375 - height + 1) >> 32
                left = left_word * (500 - width + 1) >> 32
                assert box == Box(top, left, height, width)
                break
        else:
            pytest.fail("none of these images is so narrow that all tries fail")


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [(1000, 10, Box(493, 0, 13, 10)), (10, 1000, Box(0, 493, 10, 13)), (1, 1, Box(0, 0, 1, 1))],
)
def test_where_no_try_fits_the_largest_box_in_the_middle_is_taken(
    height: int, width: int, expected: Box
) -> None:
    never = [0, 0, 0] + 40 * [2**32 - 1]  # the whole area, at the widest ratio
    assert resized_box(never, height, width, resizing()) == expected


def torchvision_box(height: int, width: int, rng: random.Random) -> tuple[int, int]:
    """Return height and width as torchvision draws them, from another generator."""
    for _ in range(10):
        area = height * width * rng.uniform(0.08, 1.0)
        ratio = math.exp(rng.uniform(math.log(3 / 4), math.log(4 / 3)))
        w, h = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < w <= width and 0 < h <= height:
            return h, w
    ratio = width / height
    if ratio < 3 / 4:
        return round(width / (3 / 4)), width
    if ratio > 4 / 3:
        return height, round(height * 4 / 3)
    return height, width


@pytest.mark.parametrize(("height", "width"), [(375, 500), (600, 90)])
def test_sizes_are_distributed_as_torchvisions(height: int, width: int) -> None:
    num = 4000
    ours = np.array([resized_box(w, height, width, resizing())[2:] for w in draws(1, num)])
    rng = random.Random(1)
    theirs = np.array([torchvision_box(height, width, rng) for _ in range(num)])
    for column in range(2):
        # Two samples of 4,000 of one distribution are farther apart than this once in 10,000.
        assert greatest_distance(ours[:, column], theirs[:, column]) < 2.2 * math.sqrt(2 / num)


def greatest_distance(one: np.ndarray, other: np.ndarray) -> float:
    """Return Kolmogorov's and Smirnov's distance of two samples."""
    places = np.unique(np.concatenate([one, other]))
    shares = [np.searchsorted(np.sort(x), places, side="right") / x.size for x in (one, other)]
    return float(np.abs(shares[0] - shares[1]).max())


def test_places_are_drawn_evenly() -> None:
    boxes = [resized_box(words, 375, 500, resizing()) for words in draws(5, 4000)]
    shares = [box.left / (500 - box.width) for box in boxes if box.width < 400]
    assert abs(float(np.mean(shares)) - 0.5) < 0.03
    assert abs(float(np.std(shares)) - 1 / math.sqrt(12)) < 0.02


def test_what_a_row_needs_is_the_box_or_the_crop_or_all() -> None:
    words = draws(2, 1)[0]
    random_crop = Transform(train=True, resizing=resizing(), crop_size=100).recipe
    assert needed_box(words, 375, 500, random_crop) == resized_box(words, 375, 500, resizing())
    cropped = Transform(train=False, crop_size=(100, 200)).recipe
    assert needed_box(words, 375, 500, cropped) == Box(137, 150, 100, 200)
    padded = Transform(train=False, crop_size=100, pad=4).recipe
    assert needed_box(words, 375, 500, padded) == Box(0, 0, 375, 500)
