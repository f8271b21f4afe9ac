"""The recipes of today through a whole feed, against Pillow and NumPy step by step."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from PIL import Image

import prefetch
from prefetch import ConfigError, FeedConfig
from prefetch._config.dump import dump_config
from prefetch._config.load import load_config
from prefetch._kernels.boxes import resized_box
from prefetch._kernels.contract import ResizeKind, Resizing
from prefetch._plan.draws import CounterDraws
from prefetch._plan.random_words import RESIZED_CROP_WORDS, blocks_of
from prefetch._record.wire import encode_datum
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

MEAN = np.array([0.485, 0.456, 0.406], np.float32)
STD = np.array([0.229, 0.224, 0.225], np.float64)
SEED = 5


def pictures(num: int) -> list[NDArray[np.uint8]]:
    """Return RGB images (height, width, 3) of different sizes."""
    rng = np.random.default_rng(1)
    sizes = rng.integers(40, 90, (num, 2)).tolist()
    return [
        np.asarray(cv2.resize(rng.integers(0, 256, (7, 7, 3), dtype=np.uint8), (width, height)))
        for height, width in sizes
    ]


@pytest.fixture
def encoded(tmp_path: Path) -> tuple[Path, list[NDArray[np.uint8]]]:
    """Return a database of JPEGs, and their pixels, RGB."""
    records: list[tuple[bytes, bytes]] = []
    decoded: list[NDArray[np.uint8]] = []
    for number, picture in enumerate(pictures(12)):
        _, file = cv2.imencode(".jpg", picture[:, :, ::-1])
        jpeg = encode_datum(data=file.tobytes(), encoded=True, label=number)
        records.append((b"%04d" % number, jpeg))
        pixels: Any = cv2.imdecode(file, cv2.IMREAD_COLOR)
        decoded.append(pixels[:, :, ::-1])
    return write_database(tmp_path / "jpegs", records), decoded


@pytest.fixture
def raw(tmp_path: Path) -> tuple[Path, list[NDArray[np.uint8]]]:
    """Return a database of raw records, blue first, and their pixels, RGB."""
    found = pictures(12)
    records = [
        (b"%04d" % number, encode_image(picture[:, :, ::-1].transpose(2, 0, 1), label=number))
        for number, picture in enumerate(found)
    ]
    return write_database(tmp_path / "raw", records), found


def served(source: Path, **options: Any) -> NDArray[Any]:
    """Return the first epoch of a feed in the order of the records."""
    with prefetch.open(source=source, batch_size=5, seed=SEED, device="cpu", **options) as feed:
        return np.concatenate([batch.data.numpy() for batch in feed])


def normalized(image: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return an RGB image (height, width, 3) as planes: three roundings to float32."""
    planes = image.transpose(2, 0, 1).astype(np.float32) * np.float32(1 / 255)
    planes = planes - MEAN[:, np.newaxis, np.newaxis]
    return planes * (1 / STD).astype(np.float32)[:, np.newaxis, np.newaxis]


def words(num: int, epoch: int = 0) -> list[list[int]]:
    source = CounterDraws(SEED, blocks=np.array(blocks_of(RESIZED_CROP_WORDS), np.int64))
    found: list[list[int]] = source.words_at(np.full(num, epoch), np.arange(num)).tolist()
    return found


@pytest.mark.parametrize("kind", ["encoded", "raw"])
def test_imagenet_train_is_pillows_resized_crop_mirrored_and_normalized(
    kind: str, request: pytest.FixtureRequest
) -> None:
    source, images = request.getfixturevalue(kind)
    transform: dict[str, Any] = {"preset": "imagenet-train", "random_resized_crop": {"size": 32}}
    if kind == "raw":
        transform["force_color"] = False
    found = served(source, transform=transform)

    resizing = Resizing(
        ResizeKind.RANDOM_CROP, 32, 32, False, 0.08, 1.0, 3 / 4, 4 / 3,
        math.log(3 / 4), math.log(4 / 3),
    )  # fmt: skip
    expected = []
    for image, drawn in zip(images, words(len(images)), strict=True):
        box = resized_box(drawn, image.shape[0], image.shape[1], resizing)
        cut = image[box.top : box.top + box.height, box.left : box.left + box.width]
        made = np.asarray(Image.fromarray(cut).resize((32, 32), Image.Resampling.BILINEAR))
        expected.append(normalized(made[:, ::-1] if drawn[0] >> 31 else made))
    assert found.dtype == np.float32
    assert found.tobytes() == np.stack(expected).tobytes()


@pytest.mark.parametrize("kind", ["encoded", "raw"])
def test_imagenet_eval_is_pillows_resize_and_the_centre(
    kind: str, request: pytest.FixtureRequest
) -> None:
    source, images = request.getfixturevalue(kind)
    transform: dict[str, Any] = {
        "preset": "imagenet-eval",
        "resize": {"shorter": 30},
        "crop_size": 24,
    }
    if kind == "raw":
        transform["force_color"] = False
    found = served(source, phase="test", transform=transform)

    expected = []
    for image in images:
        height, width = image.shape[:2]
        size = (30, int(30 * height / width)) if width <= height else (int(30 * width / height), 30)
        made = np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BILINEAR))
        top, left = (made.shape[0] - 24) // 2, (made.shape[1] - 24) // 2
        expected.append(normalized(made[top : top + 24, left : left + 24]))
    assert found.tobytes() == np.stack(expected).tobytes()


def test_cifar_train_pads_with_black_and_crops(tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (9, 3, 32, 32), dtype=np.uint8)
    records = [(b"%d" % i, encode_image(one, label=i)) for i, one in enumerate(images)]
    source = write_database(tmp_path / "cifar", records)
    options = {"preset": "cifar-train", "normalize": None, "channels": "stored", "dtype": "uint8"}

    found = served(source, transform=options)

    drawn = CounterDraws(SEED).words_at(np.zeros(9, np.int64), np.arange(9)).tolist()
    for image, row, (mirror, top_word, left_word) in zip(images, found, drawn, strict=True):
        padded = np.pad(image, ((0, 0), (4, 4), (4, 4)))
        top, left = top_word * 9 >> 32, left_word * 9 >> 32
        window = padded[:, top : top + 32, left : left + 32]
        assert row.tobytes() == (window[:, :, ::-1] if mirror >> 31 else window).tobytes()
    # In phase test there is no mirror, and the centre of the padded image is the image.
    assert served(source, phase="test", transform=options).tobytes() == images.tobytes()


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "uint8"])
@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_both_sides_are_resized_for_every_type_and_layout(
    raw: tuple[Path, list[NDArray[np.uint8]]], interpolation: str, dtype: str, layout: str
) -> None:
    source, images = raw
    transform = {
        "resize": {"size": [20, 50], "interpolation": interpolation},
        "dtype": dtype,
        "layout": layout,
        "channels": "rgb",
    }
    found = served(source, transform=transform)

    method = Image.Resampling[interpolation.upper()]
    made = np.stack(
        [np.asarray(Image.fromarray(image).resize((50, 20), method)) for image in images]
    )
    expected = made if layout == "nhwc" else made.transpose(0, 3, 1, 2)
    assert found.tobytes() == np.ascontiguousarray(expected).astype(dtype).tobytes()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_batches_are_the_same_for_any_number_of_threads_and_after_a_resume(
    encoded: tuple[Path, list[NDArray[np.uint8]]], threads: int
) -> None:
    source, _ = encoded
    options: dict[str, Any] = {
        "source": source,
        "batch_size": 4,
        "shuffle": True,
        "seed": 3,
        "device": "cpu",
        "transform": {"preset": "imagenet-train", "random_resized_crop": {"size": 16}},
    }
    with prefetch.open(options, threads=1) as feed:
        expected = [batch.data.numpy().tobytes() for _ in range(2) for batch in feed]
    with prefetch.open(options, threads=threads) as feed:
        batches = iter(feed)
        found = [next(batches).data.numpy().tobytes()]
        state = feed.state_dict()
    with prefetch.open(options, threads=threads) as feed:
        feed.load_state_dict(state)
        found += [batch.data.numpy().tobytes() for _ in range(2) for batch in feed]
    assert found == expected


def test_where_device_gives_the_hosts_bytes(
    encoded: tuple[Path, list[NDArray[np.uint8]]],
) -> None:
    source, _ = encoded
    transform = {"preset": "imagenet-train", "random_resized_crop": {"size": 16}}
    host = served(source, transform=transform)
    options: dict[str, Any] = {"batch_size": 5, "seed": SEED, "device": "simulated"}
    options["transform"] = transform | {"where": "device"}
    with prefetch.open(source=source, **options) as feed:
        device = np.concatenate([batch.data.numpy() for batch in feed])
    assert device.tobytes() == host.tobytes()


def test_float_records_are_not_resized(tmp_path: Path) -> None:
    record = encode_datum(floats=[1.0] * 12, channels=3, height=2, width=2)
    source = write_database(tmp_path / "floats", [(b"a", record)])
    with pytest.raises(ConfigError, match=r"transform\.resize: .*only images of uint8 are resized"):
        prefetch.open(source=source, transform={"resize": [4, 4]})


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a drawn crop in phase test": (
        {"phase": "test", "transform": {"preset": "imagenet-train"}},
        "random_resized_crop is for training.* imagenet-eval",
    ),
    "a drawn crop with Caffe's numbers": (
        {"rng": "caffe", "transform": {"random_resized_crop": {"size": 8}}},
        "draws more numbers than rng caffe",
    ),
    "two ways to a size": (
        {"transform": {"preset": "imagenet-train", "resize": [8, 8]}},
        "leave one of them out",
    ),
    "no size": ({"transform": {"resize": {}}}, "expected either shorter or size"),
    "two sizes": (
        {"transform": {"resize": {"shorter": 3, "size": 3}}},
        "expected either shorter or size",
    ),
    "a crop that does not fit": (
        {"transform": {"resize": {"shorter": 20}, "crop_size": 24}},
        "does not fit into images whose shorter side is 20",
    ),
    "a crop larger than both sides": (
        {"transform": {"resize": [8, 30], "pad": 1, "crop_size": [11, 5]}},
        "a crop of 11 x 5 .* resize.size makes 8 x 30",
    ),
    "two means": (
        {"transform": {"normalize": {"mean": 0.5, "std": 0.5}, "mean_value": 3}},
        "mean_value for pixels from 0 to 255",
    ),
    "values of uint8": (
        {"transform": {"normalize": {"mean": 0.5, "std": 0.5}, "dtype": "uint8"}},
        "normalize contradicts dtype uint8",
    ),
    "a deviation of 0": (
        {"transform": {"normalize": {"mean": 0.5, "std": [1, 0]}}},
        "expected numbers above 0, found 0.0",
    ),
    "a deviation that makes pixels infinite": (
        {"transform": {"normalize": {"mean": 0.5, "std": 1e-39}}},
        "expected numbers of 1e-30 and more",
    ),
    "a preset that is none": (
        {"transform": {"preset": "imagenet_train"}},
        "expected one of imagenet-train, imagenet-eval, cifar-train; .* did you mean",
    ),
    "a filter that is none": (
        {"transform": {"resize": {"size": 8, "interpolation": "bicubik"}}},
        r"transform\.resize\.interpolation: expected one of bilinear, bicubic; .* did you mean",
    ),
    "a filter of a drawn crop that is none": (
        {"transform": {"random_resized_crop": {"size": 8, "interpolation": "area"}}},
        "expected one of bilinear, bicubic; found 'area'",
    ),
    "a member of a group that is none": (
        {"transform": {"resize": {"sohrter": 8}}},
        r"resize\.sohrter: is not an option; did you mean transform\.resize\.shorter",
    ),
    "a number where there are members": (
        {"transform": {"resize": 256}},
        r"expected \[height, width\], or a mapping of options or null, found 256",
    ),
    "means and deviations of other numbers": (
        {"transform": {"normalize": {"mean": [1, 2], "std": [1, 2, 3]}}},
        "std has 3 numbers and mean 2",
    ),
    "bounds that are none": (
        {"transform": {"random_resized_crop": {"size": 8, "scale": [1, 0.5]}}},
        r"expected \[least, most\] from 1e-06 to 1; found",
    ),
    "a size that is none": (
        {"transform": {"random_resized_crop": {"size": [8, 0]}}},
        r"expected a number of pixels from 1 to 65535, or \[height, width\]",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_recipes_that_cannot_be_are_refused_at_opening(tmp_path: Path, case: str) -> None:
    options, message = REFUSED[case]
    with pytest.raises(ConfigError, match=message):
        prefetch.open(source=tmp_path, **options)


def test_a_size_takes_the_place_of_a_presets_shorter_side(tmp_path: Path) -> None:
    own: Any = {"preset": "imagenet-eval", "resize": {"size": 300, "interpolation": "bicubic"}}
    resize = FeedConfig(source=tmp_path, phase="test", transform=own).transform.resize
    assert resize is not None
    assert (resize.size, resize.shorter, resize.interpolation) == (300, None, "bicubic")


def test_all_contradictions_are_told_at_once(tmp_path: Path) -> None:
    transform = {"preset": "imagenet-train", "resize": [3, 3], "mean_value": 3, "dtype": "uint8"}
    with pytest.raises(ConfigError) as caught:
        prefetch.open(source=tmp_path, phase="test", transform=transform)
    keys = [fault.key for fault in caught.value.faults]
    assert {"phase", "transform.resize", "transform.mean_value", "transform.dtype"} <= set(keys)


def test_a_preset_is_written_out_so_that_what_replaces_its_options_stays(tmp_path: Path) -> None:
    (tmp_path / "db").mkdir()
    transform: Any = {"preset": "imagenet-train", "normalize": None, "mirror": False}
    config = FeedConfig(source=tmp_path / "db", transform=transform)
    path = tmp_path / "feed.yaml"
    path.write_text(dump_config(config), encoding="utf-8")

    loaded = load_config(path).transform

    assert loaded == config.transform.model_copy(update={"preset": None})
    assert loaded.random_resized_crop is not None
    assert loaded.normalize is None
