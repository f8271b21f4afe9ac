"""What is drawn for a mixed batch: frozen, and distributed as timm's and torchvision's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scalar_philox import scalar_philox

from prefetch._plan.mixing import Box, Mix, Mixing, cut_box, draw_lam, draw_mix, mixing_words

BOTH = Mixing(mixup=0.8, cutmix=1.0)

WORDS = [
    *(3676236428, 3828611172, 1851548121, 654000235),
    *(1385661978, 1000633110, 1443100649, 2667888696),
]
MIXUPS = [
    Mix(0.8220260143280029, None),
    Mix(0.03381466493010521, None),
    Mix(0.28436657786369324, None),
]
CUTMIXES = [
    Mix(0.7385044693946838, Box(top=30, bottom=162, left=0, right=71)),
    Mix(0.6183035969734192, Box(top=0, bottom=114, left=40, right=160)),
    Mix(0.7424665093421936, Box(top=0, bottom=130, left=89, right=160)),
]
FAR = Mix(0.2976495325565338, None)


def drawn(mixing: Mixing, number: int, *, seed: int = 1701, epoch: int = 0) -> Mix:
    return draw_mix(mixing, seed=seed, epoch=epoch, number=number, height=224, width=160)


def test_what_is_drawn_is_frozen() -> None:
    assert mixing_words(1701, 0, 0).tolist() == WORDS
    assert [drawn(Mixing(mixup=0.2), number) for number in range(3)] == MIXUPS
    assert [drawn(Mixing(cutmix=1.0), number) for number in range(3)] == CUTMIXES
    assert drawn(BOTH, 2**33 + 7, seed=2**64 - 1, epoch=2**40) == FAR


@pytest.mark.parametrize("seed", [0, 1701, 2**64 - 1])
@pytest.mark.parametrize("epoch", [0, 2**33 + 1])
@pytest.mark.parametrize("number", [0, 5, 2**32 + 3])
def test_words_are_blocks_of_philox_under_a_key_of_their_own(
    seed: int, epoch: int, number: int
) -> None:
    seed_words = (seed & 0xFFFFFFFF, seed >> 32)
    key = scalar_philox((epoch & 0xFFFFFFFF, epoch >> 32, 3, 0), seed_words)[:2]
    blocks = [
        scalar_philox((number & 0xFFFFFFFF, number >> 32, block, 0), key) for block in range(2)
    ]
    assert mixing_words(seed, epoch, number).tolist() == [*blocks[0], *blocks[1]]


# Of the difference between the empirical distributions of two samples of N, once in 100,000.
NUM = 20_000
CRITICAL = math.sqrt(-math.log(1e-5 / 2) / NUM)


@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.4, 0.5, 0.8, 1.0, 2.0, 32.0, 1e4])
def test_lam_follows_beta(alpha: float) -> None:
    words = np.random.default_rng(7).integers(0, 2**32, (NUM, 2)).tolist()
    ours = np.sort([draw_lam(alpha, *pair) for pair in words])
    theirs = np.sort(np.random.default_rng(8).beta(alpha, alpha, NUM))
    points = np.concatenate([ours, theirs, [0.0, 1.0]])
    points = points[points < 1]  # values so near to 1 that they are rounded to it stand in one heap
    ours_below = np.searchsorted(ours, points, side="right") / NUM
    theirs_below = np.searchsorted(theirs, points, side="right") / NUM
    assert np.abs(ours_below - theirs_below).max() < CRITICAL


@given(
    alpha=st.floats(5e-324, 1e300),
    words=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
)
def test_lam_is_a_share_for_any_alpha(alpha: float, words: tuple[int, int]) -> None:
    assert 0 <= draw_lam(alpha, *words) <= 1


def test_the_smallest_shares_are_not_lost_beside_1() -> None:
    assert 0 < draw_lam(0.05, 0, 2**31) < 1e-100


@given(
    lam=st.floats(0, 1),
    height=st.integers(1, 600),
    width=st.integers(1, 600),
    data=st.data(),
)
def test_a_box_is_that_of_timm_and_torchvision(
    lam: float, height: int, width: int, data: st.DataObject
) -> None:
    row, column = data.draw(st.integers(0, height - 1)), data.draw(st.integers(0, width - 1))
    found = cut_box(lam, row, column, height, width)
    # timm.data.mixup.rand_bbox, without a margin
    ratio = np.sqrt(1 - lam)
    high, wide = int(height * ratio), int(width * ratio)
    expected = Box(
        int(np.clip(row - high // 2, 0, height)),
        int(np.clip(row + high // 2, 0, height)),
        int(np.clip(column - wide // 2, 0, width)),
        int(np.clip(column + wide // 2, 0, width)),
    )
    assert found == expected
    # torchvision.transforms.v2.CutMix
    half = 0.5 * math.sqrt(1.0 - lam)
    assert found.top == max(row - int(half * height), 0)
    assert found.right == min(column + int(half * width), width)


@given(number=st.integers(0, 2**40), alpha=st.floats(0.01, 10))
def test_lam_of_cutmix_is_the_area_that_remains(number: int, alpha: float) -> None:
    lam, box = drawn(Mixing(cutmix=alpha), number)
    assert box is not None
    area = (box.bottom - box.top) * (box.right - box.left)
    assert lam == np.float32(1 - area / (224 * 160))
    assert 0 <= box.top <= box.bottom <= 224
    assert 0 <= box.left <= box.right <= 160


def test_of_mixup_and_cutmix_each_batch_has_one_by_an_even_chance() -> None:
    mixes = [drawn(BOTH, number) for number in range(1000)]
    num_cut = sum(mix.box is not None for mix in mixes)
    assert 430 < num_cut < 570
    for number, mix in enumerate(mixes[:50]):
        alone = Mixing(mixup=0.8) if mix.box is None else Mixing(cutmix=1.0)
        assert mix == drawn(alone, number)


def test_a_weight_is_a_float32_exactly() -> None:
    for number in range(100):
        for mixing in (Mixing(mixup=0.3), Mixing(cutmix=0.3)):
            lam = drawn(mixing, number).lam
            assert lam == float(np.float32(lam))
