"""Sums of images: the same bits from both kernels, in the order of the images."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from prefetch._kernels import _c, reference, selection, sums
from prefetch._record.wire import encode_datum
from prefetch.testing import encode_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.sums import SumKernels

RNG = np.random.default_rng(0)
TILE = 1 << 16  # pixels that the C kernel adds at a time

both = pytest.mark.parametrize("kernels", [_c, sums.NUMPY_KERNELS], ids=["c", "numpy"])


def one_by_one(images: list[NDArray[Any]], sums: NDArray[Any]) -> NDArray[Any]:
    """Return what Caffe's loop gives."""
    total = sums.copy()
    for image in images:
        total += image.ravel()
    return total


def bytes_of(size: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, size, np.uint8)


def floats_of(size: int) -> NDArray[np.float32]:
    return RNG.standard_normal(size).astype(np.float32)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("num", [0, 1, 7, 8, 9, 37])
@pytest.mark.parametrize("size", [1, 5, 3 * 17 * 19, TILE, TILE + 3])
def test_bytes_are_added_one_image_after_the_other(
    kernels: SumKernels, dtype: type[np.floating[Any]], num: int, size: int
) -> None:
    images: list[NDArray[Any]] = [bytes_of(size) for _ in range(num)]
    sums = np.full(size, 2.0**24 - 999, dtype)  # float32 rounds soon after
    expected = one_by_one(images, sums)
    kernels.add_up(images, 0, sums)
    np.testing.assert_array_equal(expected, sums)


@both
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_and_bytes_may_be_mixed(kernels: SumKernels, dtype: type[np.floating[Any]]) -> None:
    images: list[NDArray[Any]] = [
        floats_of(100) if number % 10 == 9 else bytes_of(100) for number in range(40)
    ]
    sums = floats_of(100).astype(dtype)
    expected = one_by_one(images, sums)
    kernels.add_up(images, 0, sums)
    np.testing.assert_array_equal(expected, sums)


@both
def test_a_part_of_the_pixels_is_added_wherever_it_begins(kernels: SumKernels) -> None:
    images: list[NDArray[Any]] = [bytes_of(60).reshape(3, 4, 5), floats_of(60)]
    whole, parts = np.zeros(60, np.float32), np.zeros(60, np.float32)
    kernels.add_up(images, 0, whole)
    for first, end in ((0, 7), (7, 59), (59, 60), (60, 60)):
        kernels.add_up(images, first, parts[first:end])
    np.testing.assert_array_equal(whole, parts)


@both
def test_views_of_records_are_added_like_arrays(kernels: SumKernels) -> None:
    image = bytes_of(24).reshape(2, 3, 4)
    record = encode_image(image, label=0)
    view = memoryview(record)[record.index(image.tobytes()) :][:24]
    sums = np.zeros(24, np.float32)
    kernels.add_up([view], 0, sums)
    np.testing.assert_array_equal(image.ravel(), sums)


def test_floats_of_any_alignment_are_added() -> None:
    values = floats_of(50)
    unaligned = np.frombuffer(b"x" + values.tobytes(), np.uint8)[1:].view(np.float32)
    sums = np.zeros(50, np.float32)
    _c.add_up([unaligned], 0, sums)
    np.testing.assert_array_equal(values, sums)


def test_pixels_are_found_of_sound_raw_records_of_the_shape() -> None:
    image = bytes_of(24).reshape(2, 3, 4)
    values = [
        encode_image(image, label=300),
        encode_datum(channels=2, height=3, width=4, floats=floats_of(24)),
        encode_datum(data=image.tobytes(), encoded=True),
        encode_image(image.reshape(2, 4, 3), label=0),
        encode_image(image[:1], label=0),
        encode_datum(channels=2, height=3, width=4, data=b"short"),
        b"\xff\xff",
        b"",
        encode_datum(label=-1, data=image.tobytes(), channels=2, height=3, width=4),
    ]
    found = _c.find_bytes([memoryview(value) for value in values], (2, 3, 4))
    assert [0, 8] == [place for place, pixels in enumerate(found) if pixels is not None]
    for place in (0, 8):
        pixels = found[place]
        assert pixels is not None
        assert image.tobytes() == pixels.tobytes()
        assert pixels.obj is values[place]  # no copy


def test_rows_that_look_like_height_width_channels_are_left_to_the_caller() -> None:
    value = encode_datum(channels=20, height=20, width=3, data=bytes(1200))
    assert [None] == _c.find_bytes([memoryview(value)], (20, 20, 3))


def test_without_the_extension_numpy_adds_and_finds_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert sums.sum_kernels() is _c
    monkeypatch.setattr(selection, "kernels", reference)
    monkeypatch.setattr(selection, "kernels_available", False)
    kernels = sums.sum_kernels()
    assert kernels is sums.NUMPY_KERNELS
    assert [None, None] == kernels.find_bytes([memoryview(b""), memoryview(b"")], (1, 1, 1))


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([], 0), TypeError, "takes 3 arguments, and 2 were given"),
        ((3, 0, np.zeros(1, np.float32)), TypeError, "not iterable"),
        (([3], 0, np.zeros(1, np.float32)), TypeError, "bytes-like"),
        (([], "0", np.zeros(1, np.float32)), TypeError, "integer"),
        (([], -1, np.zeros(1, np.float32)), ValueError, "first must be a pixel's number"),
        (([], 2**63 - 1, np.zeros(1, np.float32)), ValueError, "first must be a pixel's number"),
        (([], 0, np.zeros(1, np.int32)), TypeError, "sums must be float32 or float64"),
        (([], 0, np.zeros(1, ">f4")), TypeError, "sums must be float32 or float64"),
        (([], 0, np.zeros((1, 1), np.float32)), ValueError, "sums has 2 axes"),
        (([], 0, np.zeros(4, np.float32)[::2]), ValueError, "contiguous"),
        (([], 0, np.frombuffer(bytes(4), np.float32)), ValueError, "read-only"),
        (([bytes(3)], 2, np.zeros(2, np.float32)), ValueError, "image 0 has 3 pixels, and 4 are"),
        (([np.zeros(2)], 0, np.zeros(2, np.float32)), TypeError, "images must be uint8 or float"),
        (([np.zeros(4, np.uint8)[::2]], 0, np.zeros(2, np.float32)), ValueError, "contiguous"),
    ],
)
def test_what_cannot_be_added_is_refused_before_anything_is_written(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _c.add_up(*arguments)
    assert not np.asarray(arguments[-1]).any()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (([],), TypeError, "takes 2 arguments, and 1 were given"),
        ((3, (1, 1, 1)), TypeError, "not iterable"),
        (([3], (1, 1, 1)), TypeError, "bytes-like"),
        (([], [1, 1, 1]), TypeError, "shape must be a tuple"),
        (([], (1, 1)), TypeError, "3 arguments"),
    ],
)
def test_what_no_pixels_can_be_found_in_is_refused(
    arguments: tuple[Any, ...], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _c.find_bytes(*arguments)


def test_others_run_while_images_are_added() -> None:
    images = [np.zeros(1 << 20, np.uint8)] * 512  # a tenth of a second, or more
    sums = np.zeros(1 << 20, np.float32)
    began, steps, done = threading.Event(), 0, False

    def add() -> None:
        nonlocal done
        began.set()
        _c.add_up(images, 0, sums)
        done = True

    adding = threading.Thread(target=add)
    adding.start()
    began.wait()
    while not done:
        steps += 1
    adding.join()
    assert 1000 < steps
