"""Resizing: Pillow's to the bit, by its definition and by the C kernel, wholly and in parts."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import PIL
import pytest
from PIL import Image
from processes import run_code

from prefetch._kernels import _c
from prefetch._kernels.resize import (
    Interpolation,
    find_taps,
    most_taps,
    resize,
    resizes_rows_first,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]
    Box = tuple[int, int, int, int]

RNG = np.random.default_rng(0)
OF_PILLOW = {
    Interpolation.BILINEAR: Image.Resampling.BILINEAR,
    Interpolation.BICUBIC: Image.Resampling.BICUBIC,
}
MODES = {1: "L", 3: "RGB", 4: "CMYK"}  # CMYK: four channels, each by itself

filters = pytest.mark.parametrize("interpolation", Interpolation)
channels_of_each_mode = pytest.mark.parametrize("channels", MODES)
sizes = pytest.mark.parametrize(
    ("old", "new"),
    [
        ((30, 30), (22, 22)),  # columns first, as nearly always
        ((50, 30), (22, 22)),  # tall: rows first
        ((36, 30), (30, 27)),  # twice as many pixels less is not enough for that
        ((37, 30), (30, 27)),  # one more is
        ((12, 17), (40, 41)),  # up
        ((40, 9), (13, 33)),  # down and up
        ((9, 40), (33, 13)),
        ((20, 31), (20, 17)),  # one axis as it was
        ((31, 20), (17, 20)),
        ((19, 35), (19, 35)),  # both
        ((1, 1), (7, 5)),
        ((1, 40), (3, 40)),
        ((40, 1), (17, 1)),
        ((2, 2), (1, 1)),
        ((64, 3), (1, 2)),  # more taps than the loops are unrolled for
        ((3, 200), (2, 5)),
        ((200, 3), (5, 9)),
        ((70, 81), (33, 47)),
    ],
)


def pixels_of(channels: int, height: int, width: int) -> Pixels:
    """Draw an image of extremes, where the filters overshoot, in one half of its rows."""
    image = RNG.integers(0, 256, (channels, height, width), np.uint8)
    image[:, ::2] = np.where(image[:, ::2] < 128, 0, 255)
    return image


def by_pillow(image: Pixels, size: tuple[int, int], interpolation: Interpolation) -> Pixels:
    channels, height, width = image.shape
    data = np.ascontiguousarray(image.transpose(1, 2, 0)).tobytes()
    opened = Image.frombytes(MODES[channels], (width, height), data)
    resized = opened.resize((size[1], size[0]), OF_PILLOW[interpolation])
    return np.asarray(resized).reshape(*size, channels).transpose(2, 0, 1)


def by_c(
    image: Pixels,
    size: tuple[int, int],
    interpolation: Interpolation,
    *,
    box: Box | None = None,
    part: Box | None = None,
) -> Pixels:
    box = box or (0, 0, image.shape[1], image.shape[2])
    part = part or (0, 0, *size)
    out = np.full((image.shape[0], part[2], part[3]), 0xA5, np.uint8)
    _c.resize(image, box, size, part, interpolation, out)
    return out


def arrangements(image: Pixels) -> Iterator[Pixels]:
    """Give the image planar, with gaps too, and with its channels side by side."""
    yield image
    with_gaps = np.full((image.shape[0], image.shape[1] + 1, image.shape[2] + 3), 0xA5, np.uint8)
    with_gaps[:, :-1, :-3] = image
    yield with_gaps[:, :-1, :-3]
    yield np.ascontiguousarray(image.transpose(1, 2, 0)).transpose(2, 0, 1)


def test_pillow_is_the_version_that_resizing_is_defined_by() -> None:
    assert PIL.__version__ == "13.0.0"


@filters
@channels_of_each_mode
@sizes
def test_the_definition_is_pillows_to_the_bit(
    old: tuple[int, int], new: tuple[int, int], channels: int, interpolation: Interpolation
) -> None:
    image = pixels_of(channels, *old)
    expected = by_pillow(image, new, interpolation)
    np.testing.assert_array_equal(expected, resize(image, *new, interpolation))


@filters
def test_the_definition_is_pillows_for_drawn_sizes(interpolation: Interpolation) -> None:
    for _ in range(300):
        height, width, new_height, new_width = RNG.integers(1, 60, 4).tolist()
        image = pixels_of(1, height, width)
        expected = by_pillow(image, (new_height, new_width), interpolation)
        found = resize(image, new_height, new_width, interpolation)
        np.testing.assert_array_equal(expected, found)


@filters
def test_photograph_sized_crops_are_pillows(interpolation: Interpolation) -> None:
    image = pixels_of(3, 375, 500)
    for top, left, height, width in [(0, 0, 375, 500), (31, 70, 300, 300), (0, 7, 375, 300)]:
        expected = by_pillow(
            image[:, top : top + height, left : left + width], (224, 224), interpolation
        )
        box = (top, left, height, width)
        np.testing.assert_array_equal(expected, by_c(image, (224, 224), interpolation, box=box))


def test_both_orders_of_the_passes_occur_and_matter() -> None:
    image = pixels_of(1, 37, 30)
    assert resizes_rows_first(37, 30, 30, 27)
    assert not resizes_rows_first(36, 30, 30, 27)
    rows = resize(image, 30, 30, Interpolation.BICUBIC)
    columns = resize(image, 37, 27, Interpolation.BICUBIC)
    assert (
        resize(rows, 30, 27, Interpolation.BICUBIC).tobytes()
        != resize(columns, 30, 27, Interpolation.BICUBIC).tobytes()
    )


@filters
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5])
@sizes
def test_c_gives_the_definitions_bytes_in_any_arrangement(
    old: tuple[int, int], new: tuple[int, int], channels: int, interpolation: Interpolation
) -> None:
    image = pixels_of(channels, *old)
    expected = resize(image, *new, interpolation)
    for arranged in arrangements(image):
        np.testing.assert_array_equal(expected, by_c(arranged, new, interpolation))


@filters
@pytest.mark.parametrize("size", [(22, 22), (50, 33), (11, 60)])
def test_a_box_is_resized_as_if_nothing_were_around_it(
    size: tuple[int, int], interpolation: Interpolation
) -> None:
    image = pixels_of(3, 60, 50)
    for top, left, height, width in [(5, 3, 40, 31), (0, 0, 60, 20), (59, 49, 1, 1), (9, 0, 9, 50)]:
        cut_out = image[:, top : top + height, left : left + width]
        expected = resize(cut_out, *size, interpolation)
        for arranged in arrangements(image):
            box = (top, left, height, width)
            np.testing.assert_array_equal(expected, by_c(arranged, size, interpolation, box=box))


@filters
@pytest.mark.parametrize("old", [(40, 41), (90, 41), (12, 9)])
def test_a_part_is_the_same_as_of_the_whole(
    old: tuple[int, int], interpolation: Interpolation
) -> None:
    image = pixels_of(3, *old)
    whole = resize(image, 30, 40, interpolation)
    for top, left, height, width in [(0, 0, 30, 40), (3, 4, 20, 33), (29, 39, 1, 1), (7, 0, 2, 17)]:
        expected = whole[:, top : top + height, left : left + width]
        for arranged in arrangements(image):
            part = (top, left, height, width)
            np.testing.assert_array_equal(
                expected, by_c(arranged, (30, 40), interpolation, part=part)
            )


def taps_by_c(num_in: int, num_out: int, interpolation: Interpolation) -> tuple[Any, Any]:
    room = most_taps(num_in, num_out, interpolation)
    firsts = np.full(num_out, -1, np.int32)
    coefficients = np.full((num_out, room), -1, np.int32)
    num_taps = _c.find_taps((num_in, num_out), interpolation, firsts, coefficients)
    assert not coefficients[:, num_taps:].any()
    return firsts, coefficients[:, :num_taps]


@filters
def test_c_and_the_definition_have_the_same_taps(interpolation: Interpolation) -> None:
    drawn = RNG.integers(1, 900, (40, 2)).tolist()
    for num_in, num_out in [(i, j) for i in range(1, 17) for j in range(1, 17)] + drawn:
        expected = find_taps(num_in, num_out, interpolation)
        firsts, coefficients = taps_by_c(num_in, num_out, interpolation)
        np.testing.assert_array_equal(expected.firsts, firsts)
        np.testing.assert_array_equal(expected.coefficients, coefficients)


@filters
def test_taps_lie_in_the_line_and_fit_into_the_halves_that_c_multiplies(
    interpolation: Interpolation,
) -> None:
    for num_in in range(1, 65):
        for num_out in range(1, 65):
            firsts, coefficients = find_taps(num_in, num_out, interpolation)
            num_taps = coefficients.shape[1]
            assert firsts.min() >= 0
            assert firsts.max() + num_taps <= num_in
            assert (np.diff(firsts) >= 0).all()
            highs = np.abs((coefficients + 2**15) >> 16)
            assert highs.sum(1).max() <= 128  # 255 times as much fits into 16 bits


def test_the_coefficients_of_bilinear_are_frozen() -> None:
    firsts, coefficients = find_taps(5, 3, Interpolation.BILINEAR)
    assert [0, 1, 2] == firsts.tolist()
    assert [
        [2396745, 1797559, 0],
        [932068, 2330169, 932068],
        [0, 1797559, 2396745],
    ] == coefficients.tolist()


def refused(**changed: Any) -> tuple[Any, ...]:
    right: dict[str, Any] = {
        "image": np.zeros((3, 8, 9), np.uint8),
        "box": (0, 0, 8, 9),
        "size": (4, 5),
        "part": (0, 0, 4, 5),
        "interpolation": Interpolation.BILINEAR,
        "out": np.zeros((3, 4, 5), np.uint8),
    }
    return tuple((right | changed).values())


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"image": np.zeros((8, 9), np.uint8)}, ValueError, "image has 2 axes"),
        ({"image": np.zeros((3, 8, 9), np.int8)}, TypeError, "image must be uint8"),
        ({"image": np.zeros((3, 8, 18), np.uint8)[..., ::2]}, ValueError, "copy it first"),
        ({"image": np.zeros((3, 8, 9), np.uint8)[..., ::-1]}, ValueError, "copy it first"),
        ({"image": np.zeros((3, 8, 9), np.uint8)[:, ::-1]}, ValueError, "copy it first"),
        ({"image": np.zeros((3, 8, 9), np.uint8)[::-1]}, ValueError, "copy it first"),
        ({"image": np.zeros((8, 9, 4), np.uint8)[..., :3].T}, ValueError, "copy it first"),
        ({"box": [0, 0, 8, 9]}, TypeError, "box must be a tuple"),
        ({"box": (0, 0, 8)}, TypeError, "4 arguments"),
        ({"box": (0, 0, 9, 9)}, ValueError, r"box \(0, 0, 9, 9\) is not a rectangle .* 8 x 9"),
        ({"box": (1, 0, 8, 9)}, ValueError, "box .* is not a rectangle"),
        ({"box": (0, 1, 8, 9)}, ValueError, "box .* is not a rectangle"),
        ({"box": (-1, 0, 8, 9)}, ValueError, "box .* is not a rectangle"),
        ({"box": (0, 0, 0, 9)}, ValueError, "box .* is not a rectangle"),
        ({"box": (0, 2**62, 1, 2**62)}, ValueError, "box .* is not a rectangle"),
        ({"size": 4}, TypeError, "sizes must be a tuple"),
        ({"size": (0, 5)}, ValueError, r"sizes \(0, 5\) must be from 1"),
        ({"size": (4, 2**31)}, ValueError, "must be from 1"),
        ({"part": (0, 0, 5, 5)}, ValueError, r"part \(0, 0, 5, 5\) is not a rectangle .* 4 x 5"),
        ({"part": (4, 0, 1, 5)}, ValueError, "part .* is not a rectangle"),
        ({"interpolation": 2}, ValueError, "interpolation is 2"),
        ({"interpolation": "0"}, TypeError, "integer"),
        ({"out": np.zeros((3, 5, 4), np.uint8)}, ValueError, "part's size"),
        ({"out": np.zeros((1, 4, 5), np.uint8)}, ValueError, "image's channels"),
        ({"out": np.zeros((3, 4, 5), np.int8)}, TypeError, "out must be uint8"),
        ({"out": np.zeros((3, 4, 10), np.uint8)[..., ::2]}, ValueError, "contiguous"),
        ({"out": np.frombuffer(bytes(60), np.uint8).reshape(3, 4, 5)}, ValueError, "read-only"),
    ],
)
def test_what_cannot_be_resized_is_refused_before_anything_is_written(
    changed: dict[str, Any], error: type[Exception], message: str
) -> None:
    given = refused(**changed)
    with pytest.raises(error, match=message):
        _c.resize(*given)
    assert not given[-1].any()


def test_fewer_or_more_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match="resize\\(\\) takes 6 arguments, and 5 were given"):
        _c.resize(*refused()[:5])
    with pytest.raises(TypeError, match="find_taps\\(\\) takes 4 arguments, and 1 were given"):
        _c.find_taps((1, 2))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("firsts", "coefficients", "error", "message"),
    [
        (np.zeros(3, np.int64), np.zeros((3, 9), np.int32), TypeError, "must be int32"),
        (np.zeros(3, np.int32), np.zeros((3, 9), np.float32), TypeError, "must be int32"),
        (np.zeros(2, np.int32), np.zeros((3, 9), np.int32), ValueError, "of 3 outputs"),
        (np.zeros(3, np.int32), np.zeros((2, 9), np.int32), ValueError, "of 3 outputs"),
        (np.zeros(3, np.int32), np.zeros((3, 2), np.int32), ValueError, "room for 2 taps, and"),
    ],
)
def test_tables_that_hold_no_taps_are_refused(
    firsts: Any, coefficients: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        _c.find_taps((5, 3), Interpolation.BILINEAR, firsts, coefficients)
    assert not firsts.any()
    assert not coefficients.any()


def test_images_that_find_no_memory_are_refused_and_the_next_one_is_resized() -> None:
    """A row of 2^27 pixels would take 128 MiB; the process may have 32 more than it has."""
    program = """
        import resource
        from pathlib import Path
        import numpy as np
        from prefetch._kernels import _c
        image, out = np.full((1, 3, 2), 7, np.uint8), np.zeros((1, 1, 1), np.uint8)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 2**25
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        for size in ((1, 2**27), (2**27, 1)):
            try:
                _c.resize(image, (0, 0, 3, 2), size, (0, 0, 1, 1), 0, out)
            except MemoryError:
                pass
            else:
                raise AssertionError(size)
        _c.resize(image, (0, 0, 3, 2), (1, 1), (0, 0, 1, 1), 0, out)
        assert out.tolist() == [[[7]]]
    """
    ended = run_code(program)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_others_run_while_an_image_is_resized() -> None:
    image = np.zeros((1, 300, 300), np.uint8)
    out = np.zeros((1, 200, 200), np.uint8)
    began, stop = threading.Event(), threading.Event()
    whole, part = (0, 0, 300, 300), (0, 0, 200, 200)
    stopped = []

    def work() -> None:
        began.set()
        for _ in range(20_000):  # some seconds, and a few calls where others run
            _c.resize(image, whole, (200, 200), part, Interpolation.BICUBIC, out)
            if stop.is_set():
                stopped.append(True)
                return

    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)  # nobody has to give the GIL up who does not want to
    try:
        working = threading.Thread(target=work)
        working.start()
        began.wait()
        stop.set()
        working.join()
    finally:
        sys.setswitchinterval(interval)
    assert stopped
