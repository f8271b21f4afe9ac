"""Colour jitter: Pillow's to the bit, with torchvision's factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image, ImageEnhance

from prefetch._kernels.contract import UNCHANGED, Jitter
from prefetch._kernels.jitter import ORDERS, jitter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

OF_PILLOW: tuple[Any, ...] = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)
LATER = 2**32 - 1


def is_even(counts: NDArray[np.int64]) -> bool:
    """Return whether counts are as even as those of even chances: chi-squared, 4 deviations."""
    expected, freedom = counts.mean(), counts.size - 1
    squares = float(((counts - expected) ** 2).sum() / expected)
    return bool(abs(squares - freedom) < 4 * (2 * freedom) ** 0.5)


def word_of_order(order: int) -> int:
    """Return the least word that stands for one of the six orders."""
    return -(-order * 2**32 // 6)


def of_factors(*factors: float) -> Jitter:
    """Return what gives brightness, contrast and saturation these factors, whatever is drawn."""
    brightness, contrast, saturation = ((factor, factor) for factor in factors)
    return Jitter(brightness, contrast, saturation, red_first=True)


def by_pillow(image: Pixels, order: Sequence[int], factors: Sequence[float]) -> Pixels:
    """Return what Pillow makes of an image of (channels, height, width), red first."""
    changed = Image.fromarray(image[0] if len(image) == 1 else image.transpose(1, 2, 0))
    for operation in order:
        changed = OF_PILLOW[operation](changed).enhance(factors[operation])
    made = np.asarray(changed)
    return made[np.newaxis] if made.ndim == 2 else made.transpose(2, 0, 1)


def images(num: int, channels: int) -> list[Pixels]:
    """Return images of drawn sizes: some of all values, some dark, bright or nearly grey."""
    rng = np.random.default_rng(7)
    made = []
    for i in range(num):
        shape = (channels, *rng.integers(1, 40, 2))
        noise = rng.integers(0, 256, shape) if i % 2 else rng.normal(rng.integers(256), 20, shape)
        made.append(noise.clip(0, 255).astype(np.uint8))
    return made


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("factor", [0, 0.25, 0.6, 0.999, 1, 1.0001, 1.4, 3, 1000])
@pytest.mark.parametrize("operation", [0, 1, 2], ids=["brightness", "contrast", "saturation"])
def test_each_operation_is_pillows_to_the_bit(operation: int, factor: float, channels: int) -> None:
    factors = [1.0, 1.0, 1.0]
    factors[operation] = factor
    for image in images(20, channels):
        expected = by_pillow(image, [operation], factors)
        assert np.array_equal(expected, jitter(image, [0, 0, 0, 0], of_factors(*factors)))


@pytest.mark.parametrize("order", range(6))
def test_operations_are_done_in_the_drawn_order(order: int) -> None:
    factors = (1.3, 0.7, 1.9)
    for word in (word_of_order(order), word_of_order(order + 1) - 1):
        for image in images(10, 3):
            expected = by_pillow(image, ORDERS[order], factors)
            assert np.array_equal(expected, jitter(image, [word, 0, 0, 0], of_factors(*factors)))


def test_orders_are_those_of_brightness_contrast_saturation_counted_up() -> None:
    expected = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    assert expected == ORDERS


@pytest.mark.parametrize("operation", range(3))
def test_each_factor_has_a_word_that_goes_from_its_least_to_its_greatest(operation: int) -> None:
    (image,) = images(1, 3)
    options = Jitter(UNCHANGED, UNCHANGED, UNCHANGED, red_first=True)
    drawn: dict[str, Any] = {Jitter._fields[operation]: (0.5, 1.75)}
    options = options._replace(**drawn)
    for word, factor in ((0, 0.5), (2**31, 1.125), (3 * 2**30, 1.4375)):
        words = [0, LATER, LATER, LATER]
        words[1 + operation] = word
        factors = [1.0, 1.0, 1.0]
        factors[operation] = factor
        expected = by_pillow(image, [operation], factors)
        assert np.array_equal(expected, jitter(image, words, options))


def test_an_operation_that_is_left_out_draws_nothing() -> None:
    (image,) = images(1, 3)
    options = Jitter(UNCHANGED, UNCHANGED, UNCHANGED, red_first=True)
    assert np.array_equal(image, jitter(image, [LATER] * 4, options))


def test_channels_that_are_stored_blue_first_give_the_same_image() -> None:
    options = of_factors(0.8, 1.3, 1.7)
    for image in images(10, 3):
        expected = jitter(image, [LATER, 0, 0, 0], options)[::-1]
        actual = jitter(image[::-1], [LATER, 0, 0, 0], options._replace(red_first=False))
        assert np.array_equal(expected, actual)


def test_an_image_of_pixels_side_by_side_becomes_the_same_as_of_planes() -> None:
    options = of_factors(0.8, 1.3, 1.7)
    (image,) = images(1, 3)
    beside = np.ascontiguousarray(image.transpose(1, 2, 0)).transpose(2, 0, 1)
    assert beside.strides != image.strides
    expected = jitter(image, [0, 0, 0, 0], options)
    assert np.array_equal(expected, jitter(beside, [0, 0, 0, 0], options))


def test_the_image_itself_stays_as_it_is() -> None:
    (image,) = images(1, 3)
    before = image.copy()
    jitter(image, [0, 0, 0, 0], of_factors(0.5, 0.5, 0.5))
    assert np.array_equal(before, image)


def test_factors_are_spread_evenly_and_orders_are_equally_likely() -> None:
    rng = np.random.default_rng(11)
    white = np.full((1, 1, 1), 200, np.uint8)
    options = Jitter((0.6, 1.2), UNCHANGED, UNCHANGED, red_first=True)
    words = rng.integers(0, 2**32, (20_000, 4), dtype=np.uint32)
    made = np.array([jitter(white, row, options)[0, 0, 0] for row in words.tolist()])
    # 200 times a factor from 0.6 to 1.2: 120 to 239, each as often as any other.
    assert is_even(np.bincount(made, minlength=240)[120:240])
    assert made.min() == 120
    assert made.max() == 239
    orders = np.bincount([row[0] * 6 >> 32 for row in words.tolist()], minlength=6)
    assert is_even(orders)


def test_a_drawn_image_is_frozen() -> None:
    image = np.arange(0, 240, 8, dtype=np.uint8).reshape(3, 2, 5)
    options = Jitter((0.6, 1.4), (0.6, 1.4), (0.6, 1.4), red_first=False)
    words = [3818077128, 541936070, 3349419492, 771622534]
    expected = [
        [[0, 7, 13, 20, 27], [34, 41, 47, 54, 61]],
        [[50, 57, 64, 70, 77], [84, 91, 98, 105, 112]],
        [[101, 108, 115, 122, 129], [135, 142, 150, 157, 164]],
    ]
    assert expected == jitter(image, words, options).tolist()
