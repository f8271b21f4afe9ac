"""Random erasing: timm's boxes, and normal numbers that are the same on every machine."""

from __future__ import annotations

import hashlib
import math
from statistics import NormalDist
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scalar_philox import scalar_philox

from prefetch._kernels.boxes import Box
from prefetch._kernels.contract import Erasing, ErasingMode
from prefetch._kernels.erasing import choose_erased, erase, noise_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

ALWAYS = Erasing(
    probability=1.0,
    least_scale=0.02,
    most_scale=1 / 3,
    log_least_ratio=math.log(0.3),
    log_most_ratio=math.log(1 / 0.3),
    mode=ErasingMode.CONST,
    noise=None,
)


def drawn_words(num: int) -> list[list[int]]:
    """Return the words of some records."""
    words: list[list[int]] = (
        np.random.default_rng(3).integers(0, 2**32, (num, 44), dtype=np.uint32).tolist()
    )
    return words


def is_even_between(values: NDArray[np.float64], low: float, high: float) -> bool:
    """Return whether values are spread evenly between two: Kolmogorov and Smirnov's, at 1 %."""
    shares = (np.sort(values) - low) / (high - low)
    apart = np.abs(shares - (np.arange(values.size) + 0.5) / values.size).max()
    return bool(apart * values.size**0.5 < 1.63)


def numbers(key: list[int], num: int) -> list[float]:
    """Return the first numbers of a key's noise, by the definition."""
    made = []
    for i in range(num):
        word = scalar_philox((i // 4, 0, 0, 0), (key[0], key[1]))[i % 4]
        made.append(float(np.float32(NormalDist().inv_cdf(((word >> 16) + 0.5) / 65536))))
    return made


def test_the_box_is_that_of_timms_formulas() -> None:
    for words in drawn_words(500):
        expected = None
        for attempt in range(10):
            area_u, ratio_u, _, _ = (
                word / 2**32 for word in words[4 + 4 * attempt : 8 + 4 * attempt]
            )
            area = (0.02 + area_u * (1 / 3 - 0.02)) * 40 * 60
            low, high = math.log(0.3), math.log(1 / 0.3)
            ratio = math.exp(low + ratio_u * (high - low))
            height, width = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
            if 0 < width < 60 and 0 < height < 40:
                top = words[6 + 4 * attempt] * (40 - height + 1) >> 32
                left = words[7 + 4 * attempt] * (60 - width + 1) >> 32
                expected = Box(top, left, height, width)
                break
        assert expected == choose_erased(words, 40, 60, ALWAYS)


@pytest.mark.parametrize("probability", [0.0, 0.25, 0.5, 1.0])
def test_as_many_records_are_erased_as_the_probability_says(probability: float) -> None:
    options = ALWAYS._replace(probability=probability)
    erased = sum(choose_erased(words, 224, 224, options) is not None for words in drawn_words(4000))
    deviation = (4000 * probability * (1 - probability)) ** 0.5
    assert abs(erased - 4000 * probability) <= 4 * deviation


def test_the_gate_is_below_the_probability() -> None:
    words = drawn_words(1)[0]
    options = ALWAYS._replace(probability=0.25)
    words[0] = 2**30
    assert choose_erased(words, 40, 60, options) is None
    words[0] = 2**30 - 1
    assert choose_erased(words, 40, 60, options) is not None


def test_areas_ratios_and_places_are_spread_evenly_as_timms_are() -> None:
    boxes = [choose_erased(words, 1000, 1000, ALWAYS) for words in drawn_words(4000)]
    found = np.array([box for box in boxes if box is not None], float)
    assert len(found) == 4000
    top, left, height, width = found.T
    # A box of less than a quarter of the area fits whatever its ratio is.
    assert is_even_between(height * width / 1e6, 0.02, 1 / 3)
    assert is_even_between(np.log(height / width)[height * width < 2.5e5], *np.log([0.3, 1 / 0.3]))
    assert is_even_between(top / (1001 - height), 0, 1)
    assert is_even_between(left / (1001 - width), 0, 1)


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 50), (50, 1)])
def test_an_image_that_no_box_is_smaller_than_is_not_erased(height: int, width: int) -> None:
    for words in drawn_words(50):
        assert choose_erased(words, height, width, ALWAYS) is None


@pytest.mark.parametrize("mode", ErasingMode)
def test_the_box_alone_is_written_over_by_the_numbers_of_the_records_key(mode: ErasingMode) -> None:
    options = ALWAYS._replace(mode=mode, noise=noise_table())
    words = drawn_words(1)[0]
    planes = np.full((3, 12, 20), 9, np.float32)
    box = choose_erased(words, 12, 20, options)
    assert box is not None
    size = 3 * box.height * box.width
    made = {
        ErasingMode.CONST: np.zeros((3, 1, 1)),
        ErasingMode.RAND: np.reshape(numbers(words[1:3], 3), (3, 1, 1)),
        ErasingMode.PIXEL: np.reshape(numbers(words[1:3], size), (3, box.height, box.width)),
    }
    expected = planes.copy()
    rows, columns = slice(box.top, box.top + box.height), slice(box.left, box.left + box.width)
    expected[:, rows, columns] = made[mode]

    erase(planes, words, options)

    assert np.array_equal(expected, planes)


def test_the_noise_is_a_normal_distribution_of_65536_quantiles() -> None:
    table = noise_table()
    assert table.shape == (65536,)
    assert table.dtype == np.float32
    for i in (0, 1, 777, 32767, 32768, 65535):
        assert table[i] == np.float32(NormalDist().inv_cdf((i + 0.5) / 65536))
    assert (np.diff(table) > 0).all()
    assert table.std(dtype=float) == pytest.approx(1, abs=2e-5)
    assert table.mean(dtype=float) == 0


def test_the_noise_is_frozen() -> None:
    found = hashlib.sha256(noise_table().astype("<f4").tobytes()).hexdigest()
    assert found == "1cfbba1e07e34386a57626f82aeb43e6ed54ba70a3ea6b7d964dc66a841074a8"


def test_a_drawn_box_is_frozen() -> None:
    words = [1701, 1, 2, 3, *(3818077128, 541936070, 3349419492, 771622534)] + [0] * 36
    options = ALWAYS._replace(mode=ErasingMode.RAND, noise=noise_table())
    planes = np.zeros((2, 32, 48), np.float32)
    erase(planes, words, options)
    assert choose_erased(words, 32, 48, options) == Box(14, 2, 14, 34)
    assert planes[:, 14, 2].tolist() == [-2.0167996883392334, 0.24549129605293274]
    assert np.count_nonzero(planes) == 2 * 14 * 34
