"""Colour jitter and random erasing through a whole feed, against Pillow and their definitions."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageEnhance

import prefetch
from prefetch import ConfigError, RecordError
from prefetch._kernels.contract import Erasing, ErasingMode
from prefetch._kernels.erasing import erase, noise_table
from prefetch._kernels.jitter import ORDERS
from prefetch._plan.draws import CounterDraws
from prefetch._plan.random_words import (
    ERASING_WORDS,
    JITTER_WORDS,
    RESIZED_CROP_WORDS,
    blocks_of,
)
from prefetch._record.wire import encode_datum
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

SEED = 7
SIZE = (20, 28)
JITTER = {"brightness": 0.4, "contrast": (0.5, 1.75), "saturation": 0.8}
FACTORS = ((0.6, 1.4), (0.5, 1.75), (1 - 0.8, 1.8))
OF_PILLOW: tuple[Any, ...] = (ImageEnhance.Brightness, ImageEnhance.Contrast, ImageEnhance.Color)


def pictures(num: int = 11) -> list[Pixels]:
    """Return images (height, width, 3) of soft colours."""
    rng = np.random.default_rng(2)
    noise = (rng.integers(0, 256, (5, 5, 3), dtype=np.uint8) for _ in range(num))
    return [np.asarray(cv2.resize(one, SIZE[::-1]), np.uint8) for one in noise]


@pytest.fixture
def raw(tmp_path: Path) -> Path:
    """Return a database of `pictures`, raw and blue first, as the usual tools store them."""
    records = [
        (b"%04d" % number, encode_image(picture[:, :, ::-1].transpose(2, 0, 1), label=number))
        for number, picture in enumerate(pictures())
    ]
    return write_database(tmp_path / "raw", records)


def served(source: Path, **options: Any) -> NDArray[Any]:
    """Return the first epoch of a feed in the order of the records."""
    options = {"device": "cpu", **options}
    with prefetch.open(source=source, batch_size=4, seed=SEED, **options) as feed:
        return np.concatenate([batch.data.numpy() for batch in feed])


def words(num: int, *drawn: range) -> list[list[list[int]]]:
    """Return some words of each record, range by range."""
    found = []
    for one in drawn:
        source = CounterDraws(SEED, blocks=np.array(blocks_of(one), np.int64))
        found.append(source.words_at(np.zeros(num, np.int64), np.arange(num))[:, 3:].tolist())
    return [list(own) for own in zip(*found, strict=True)]


def jittered(image: Pixels, drawn: list[int]) -> Pixels:
    """Return what Pillow makes of an RGB image (height, width, 3) by its record's words."""
    changed = Image.fromarray(image)
    for operation in ORDERS[drawn[0] * 6 >> 32]:
        low, high = FACTORS[operation]
        factor = low + drawn[1 + operation] / 2**32 * (high - low)
        changed = OF_PILLOW[operation](changed).enhance(factor)
    return np.asarray(changed)


def erasing(mode: str = "pixel", probability: float = 0.6) -> Erasing:
    """Return what random_erasing is with its default bounds."""
    return Erasing(
        probability,
        0.02,
        1 / 3,
        math.log(0.3),
        math.log(1 / 0.3),
        ErasingMode[mode.upper()],
        noise_table(),
    )


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_colours_are_changed_as_pillow_changes_them(raw: Path, layout: str) -> None:
    transform = {"color_jitter": JITTER, "channels": "rgb", "layout": layout, "dtype": "uint8"}
    found = served(raw, transform=transform)
    images = pictures()
    expected = np.stack(
        [
            jittered(image, drawn[0])
            for image, drawn in zip(images, words(11, JITTER_WORDS), strict=True)
        ]
    )
    assert np.array_equal(expected if layout == "nhwc" else expected.transpose(0, 3, 1, 2), found)
    assert not np.array_equal(expected, np.stack(images))


def test_records_that_a_file_beside_them_says_are_red_first_get_the_same_colours(
    tmp_path: Path, raw: Path
) -> None:
    records = [
        (b"%04d" % number, encode_image(picture.transpose(2, 0, 1), label=number))
        for number, picture in enumerate(pictures())
    ]
    red_first = write_database(tmp_path / "red", records)
    (red_first / "channels.txt").write_text("rgb\n")
    transform = {"color_jitter": JITTER, "channels": "rgb", "dtype": "uint8"}
    assert np.array_equal(served(raw, transform=transform), served(red_first, transform=transform))


def test_databases_of_both_orders_have_no_colours_to_change(tmp_path: Path, raw: Path) -> None:
    red_first = write_database(
        tmp_path / "red", [(b"0", encode_image(np.zeros((3, *SIZE), np.uint8), label=0))]
    )
    (red_first / "channels.txt").write_text("rgb\n")
    with pytest.raises(ConfigError, match="both orders"):
        served([raw, red_first], transform={"color_jitter": JITTER})  # type: ignore[arg-type]


def test_colours_are_those_of_the_crop_alone(raw: Path) -> None:
    transform = {"color_jitter": JITTER, "channels": "rgb", "layout": "nhwc", "dtype": "uint8"}
    found = served(raw, transform=transform | {"crop_size": [12, 9], "mirror": True, "pad": 3})
    first = CounterDraws(SEED).words_at(np.zeros(11, np.int64), np.arange(11)).tolist()
    for image, row, own, drawn in zip(
        pictures(), found, first, words(11, JITTER_WORDS), strict=True
    ):
        padded = np.pad(image, ((3, 3), (3, 3), (0, 0)))
        top, left = own[1] * (26 - 12 + 1) >> 32, own[2] * (34 - 9 + 1) >> 32
        made = jittered(padded[top : top + 12, left : left + 9], drawn[0])
        assert np.array_equal(made[:, ::-1] if own[0] >> 31 else made, row)


@pytest.mark.parametrize("mode", ["const", "rand", "pixel"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_box_is_written_over_after_all_else(
    raw: Path, mode: str, layout: str, dtype: str
) -> None:
    transform = {"mean_value": 100.0, "scale": 0.02, "channels": "rgb", "dtype": "float32"}
    plain = served(raw, transform=transform)
    options = {"probability": 0.6, "mode": mode}
    own = {"random_erasing": options, "layout": layout, "dtype": dtype}
    found = served(raw, transform=transform | own)
    expected = plain.copy()
    for row, drawn in zip(expected, words(11, ERASING_WORDS), strict=True):
        erase(row, drawn[0], erasing(mode))
    assert not np.array_equal(plain, expected)
    if layout == "nhwc":
        expected = expected.transpose(0, 2, 3, 1)
    assert np.ascontiguousarray(expected.astype(dtype)).tobytes() == found.tobytes()


def test_all_of_the_recipe_at_once_draws_each_words_of_its_own(tmp_path: Path) -> None:
    records = []
    for number, picture in enumerate(pictures()):
        _, file = cv2.imencode(".png", picture[:, :, ::-1])
        records.append((b"%d" % number, encode_datum(data=file.tobytes(), encoded=True)))
    source = write_database(tmp_path / "png", sorted(records))
    order = sorted(range(11), key=lambda number: b"%d" % number)
    crop = {"size": [16, 12], "interpolation": "bicubic"}
    base: dict[str, Any] = {"random_resized_crop": crop, "channels": "rgb", "mirror": "train"}
    cropped = served(source, transform=base | {"dtype": "uint8", "layout": "nhwc"})
    normalize = {"mean": [0.5, 0.4, 0.3], "std": 0.25}
    effects = {"color_jitter": JITTER, "random_erasing": {"probability": 0.6, "mode": "pixel"}}
    found = served(source, transform=base | effects | {"normalize": normalize})
    drawn = words(11, RESIZED_CROP_WORDS, JITTER_WORDS, ERASING_WORDS)
    assert len(order) == len(found)
    for image, row, (_, colours, box) in zip(cropped, found, drawn, strict=True):
        planes = jittered(image, colours).transpose(2, 0, 1) * np.float32(1 / 255)
        planes -= np.array([0.5, 0.4, 0.3], np.float32).reshape(3, 1, 1)
        expected = np.ascontiguousarray(planes * np.float32(4))
        erase(expected, box, erasing())
        assert expected.tobytes() == row.tobytes()


def test_a_function_sees_the_colours_and_not_the_box(raw: Path) -> None:
    seen: list[Pixels] = []

    def keep(image: Pixels, _label: int, _rng: np.random.Generator) -> Pixels:
        seen.append(image.copy())
        return image

    transform = {
        "random_resized_crop": {"size": 12},
        "color_jitter": JITTER,
        "random_erasing": {"probability": 0.6, "mode": "rand"},
        "channels": "rgb",
    }
    expected = served(raw, transform=transform)
    found = served(raw, transform=transform, per_record=keep, threads=1)
    assert np.array_equal(expected, found)
    without = {**transform, "random_erasing": None, "dtype": "uint8", "layout": "nhwc"}
    assert np.array_equal(served(raw, transform=without), np.stack(seen[:11]))


def test_the_host_changes_the_colours_of_windows_for_the_device(raw: Path) -> None:
    transform = {"color_jitter": JITTER, "mirror": True, "crop_size": 16, "channels": "rgb"}
    expected = served(raw, transform=transform)
    found = served(raw, transform=transform | {"where": "device"}, device="simulated")
    assert np.array_equal(expected, found)


@pytest.mark.parametrize("num_threads", [2, 3])
def test_the_rows_are_the_same_with_any_number_of_threads(raw: Path, num_threads: int) -> None:
    transform = {"color_jitter": JITTER, "random_erasing": {"mode": "pixel"}}
    expected = served(raw, transform=transform, threads=1)
    assert np.array_equal(expected, served(raw, transform=transform, threads=num_threads))


@pytest.mark.parametrize(
    ("options", "words_of_error"),
    [
        ({"color_jitter": {"brightness": -0.1}}, "color_jitter.brightness"),
        ({"color_jitter": {"contrast": (1.5, 0.5)}}, "color_jitter.contrast"),
        ({"color_jitter": {"saturation": (-1, 0.5)}}, "color_jitter.saturation"),
        ({"random_erasing": {"probability": 1.5}}, "random_erasing.probability"),
        ({"random_erasing": {"scale": (0.5, 1.5)}}, "random_erasing.scale"),
        ({"random_erasing": {"ratio": (0, 1)}}, "random_erasing.ratio"),
        ({"random_erasing": {"mode": "noise"}}, "random_erasing.mode"),
        ({"random_erasing": {}, "dtype": "uint8"}, "holds stored bytes"),
        (
            {"random_erasing": {}, "where": "device", "mean_file": "mean.npy"},
            "the device does not do random_erasing and mean_file together",
        ),
        ({"color_jitter": {}, "mean_file": "/nowhere.npy"}, "color_jitter makes other images"),
    ],
)
def test_options_that_cannot_hold_are_refused(
    raw: Path, options: dict[str, Any], words_of_error: str
) -> None:
    with pytest.raises(ConfigError, match=words_of_error):
        served(raw, transform=options)


@pytest.mark.parametrize("option", ["color_jitter", "random_erasing"])
def test_the_test_phase_and_caffes_generator_have_neither(raw: Path, option: str) -> None:
    with pytest.raises(ConfigError, match=f"{option} is for training.*imagenet-eval"):
        served(raw, transform={option: {}}, phase="test")
    with pytest.raises(ConfigError, match=f"{option} draws more numbers"):
        served(raw, transform={option: {}}, rng="caffe")


def test_jitter_that_changes_nothing_is_left_out(raw: Path) -> None:
    transform = {"color_jitter": {"brightness": 0, "contrast": (1, 1)}}
    assert np.array_equal(served(raw), served(raw, transform=transform))


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (encode_datum(channels=3, height=2, width=2, floats=np.ones(12, np.float32)), "float_data"),
        (
            encode_image(np.ones((2, 5, 5), np.uint8), label=0),
            "number of channels of the record is 2",
        ),
    ],
    ids=["floats", "channels"],
)
def test_a_record_without_colours_is_refused_with_the_option(
    tmp_path: Path, record: bytes, said: str
) -> None:
    source = write_database(tmp_path / "other", [(b"0", record)])
    with pytest.raises((RecordError, ConfigError), match=said) as caught:
        served(source, transform={"color_jitter": JITTER})
    assert "color_jitter" in str(caught.value)
