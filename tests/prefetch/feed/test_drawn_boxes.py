"""Which box of a stored image became a row of a batch, and that it is shown."""

from __future__ import annotations

import re
from contextlib import closing
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

import prefetch
from prefetch._feed.display import show_feed
from prefetch._feed.drawn_boxes import box_tiles
from prefetch._feed.endless import endless
from prefetch._feed.shown_pixels import pixel_options, shown_pixels
from prefetch.caffe import Datum
from prefetch.cli import main
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from pathlib import Path

HEIGHT, WIDTH = 120, 160
BOXES = {"random_resized_crop": {"size": 16}, "mirror": True}
RED = (48, 48, 205)  # of a frame, as OpenCV takes it


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Images whose pixels say where they are: blue the column, green the row, red the record."""
    rows, columns = np.mgrid[:HEIGHT, :WIDTH]
    images = [np.stack([columns, rows, np.full_like(rows, record)]) for record in range(20)]
    return write_database(
        tmp_path / "db",
        [
            (b"%02d" % record, encode_image(image.astype(np.uint8), label=record))
            for record, image in enumerate(images)
        ],
    )


def opened(source: Path, **options: Any) -> prefetch.Feed:
    return prefetch.open(
        {"source": source, "batch_size": 8, "device": "cpu", "transform": BOXES, "seed": 3}
        | options
    )


def numbers(text: str) -> list[int]:
    return [int(found) for found in re.findall(r"\d+", text)]


def check_box(tile: Any, row: np.ndarray[Any, Any]) -> None:
    """Compare where a tile says that a row is from with what its pixels say."""
    height, width = numbers(tile.title)
    top, left, *whole = numbers(tile.caption)
    assert whole == [HEIGHT, WIDTH]
    assert row[0].mean() == pytest.approx(left + (width - 1) / 2, abs=1)
    assert row[1].mean() == pytest.approx(top + (height - 1) / 2, abs=1)
    assert tile.title.endswith("mirrored") == (row[0, 0, 0] > row[0, 0, -1])
    assert tile.frame == (top / HEIGHT, left / WIDTH, height / HEIGHT, width / WIDTH)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("last_batch", ["partial", "wrap"])
def test_the_boxes_are_those_that_the_rows_were_made_of(
    source: Path, last_batch: str, *, shuffle: bool
) -> None:
    """In every batch of two epochs, and in one that holds the end of one and the next's start."""
    with opened(source, shuffle=shuffle, last_batch=last_batch) as feed:
        components = feed._prefetcher.components
        for sequence, batch in zip(range(5), endless(feed), strict=False):
            tiles = box_tiles(components, batch, sequence=sequence, num=8)
            assert len(tiles) == len(batch)
            for tile, row in zip(tiles, batch.data.numpy(), strict=True):
                check_box(tile, row)
                assert tile.pixels is not None
                assert (tile.pixels[2] == row[2, 0, 0]).all()


def test_a_record_in_the_place_of_a_bad_one_has_its_own_box(source: Path) -> None:
    good = [(b"%02d" % key, value) for key, value in _records(source)]
    write_database(source.parent / "odd", [*good[:2], (b"02", b"\xff"), *good[3:]])
    with opened(source.parent / "odd", on_bad_record="skip") as feed:
        batch = next(iter(feed))
        tiles = box_tiles(feed._prefetcher.components, batch, sequence=0, num=8)
        for tile, row in zip(tiles, batch.data.numpy(), strict=True):
            check_box(tile, row)


def _records(source: Path) -> list[tuple[int, bytes]]:
    from prefetch._source.open_backend import open_database  # noqa: PLC0415 - for this alone

    with closing(open_database(source)) as database, closing(database.sample(100)) as found:
        return [(int(bytes(key)), bytes(value)) for _, key, value in found]


def test_boxes_of_images_that_the_cache_keeps_smaller_are_those_in_what_is_kept(
    source: Path, tmp_path: Path
) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)
    file = cv2.imencode(".png", pixels)[1].tobytes()
    datum = Datum(encoded=True, data=file, label=0)
    write_database(tmp_path / "png", [(b"a", datum.SerializeToString())])
    cache = {"decoded": {"memory": True, "bytes": 1 << 20, "shorter": 60}}
    with opened(tmp_path / "png", cache=cache) as feed:
        batch = next(iter(feed))
        (tile,) = box_tiles(feed._prefetcher.components, batch, sequence=0, num=8)
    assert numbers(tile.caption)[2:] == [60, 80]


def test_a_feed_shows_the_boxes_beneath_its_images(source: Path, tmp_path: Path) -> None:
    with opened(source) as feed:
        show_feed(feed, 4).save(tmp_path / "with.png")
    with opened(source, transform={"crop_size": 16}) as feed:
        show_feed(feed, 4).save(tmp_path / "without.png")
    framed, plain = (cv2.imread(str(tmp_path / f"{name}.png")) for name in ("with", "without"))
    assert framed is not None
    assert plain is not None
    assert len(framed) > 1.5 * len(plain)
    assert (framed[: len(plain)] == RED).all(axis=2).sum() == 0
    assert (framed[len(plain) :] == RED).all(axis=2).sum() > 4 * 100


def test_the_command_draws_the_boxes_too_and_says_what_the_recipe_is(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prefetch.cli.commands import show  # noqa: PLC0415 - the module, not the function

    config = tmp_path / "c.yaml"
    config.write_text(
        f"source: {source}\nbatch_size: 4\n"
        "transform: {random_resized_crop: {size: [16, 24]}, mirror: train, color_jitter: "
        "{brightness: 0.4}, random_erasing: {mode: rand}}\n"
    )
    said: list[str] = []
    describe = show._describe

    def note(*arguments: Any) -> str:
        said.append(describe(*arguments))
        return said[-1]

    monkeypatch.setattr(show, "_describe", note)
    assert main(["show", str(config), str(tmp_path / "a.png")]) == 0
    picture = cv2.imread(str(tmp_path / "a.png"))
    assert picture is not None
    assert (picture == RED).all(axis=2).sum() > 4 * 100
    done = (
        "random-resized crop to 16 x 24, mirrored at random, colours jittered, erased in at random"
    )
    assert said == [f"c.yaml: phase train, {done}"]


NORMALIZE = {"mean": [0.5, 0.25, 0.125], "std": [0.2, 0.3, 0.4]}


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
def test_normalised_images_are_shown_as_the_pixels_that_they_were(
    source: Path, layout: str
) -> None:
    with (
        opened(source, transform=BOXES) as plain,
        opened(source, transform={**BOXES, "normalize": NORMALIZE, "layout": layout}) as feed,
    ):
        pixels = next(iter(plain)).data.numpy()
        batch = next(iter(feed))
        images = batch.data.numpy()
        if layout == "nhwc":
            images = images.transpose(0, 3, 1, 2)
        assert np.abs(shown_pixels(images, feed.config.transform) - pixels).max() < 0.01


@pytest.mark.parametrize(
    "values", [{"normalize": NORMALIZE}, {"mean_value": [104, 117, 123], "scale": 0.5}]
)
def test_an_erased_box_is_shown_as_what_the_network_sees(
    source: Path, values: dict[str, Any]
) -> None:
    """Zeros that were written over normalised values are the mean, and not black."""
    erasing = {"random_erasing": {"probability": 1.0}, **values}
    with opened(source, transform={**BOXES, **erasing}) as feed:
        transform = pixel_options(feed.config.transform)
        batch = next(iter(feed))
        erased = (batch.data.numpy() == 0).all(axis=1)
        assert erased.any(axis=(1, 2)).all()
        images = shown_pixels(batch.data.numpy(), feed.config.transform)
    mean = [127.5, 63.75, 31.875] if "normalize" in values else [104, 117, 123]
    assert np.abs(images.transpose(0, 2, 3, 1)[erased] - mean).max() < 0.01
    assert transform == {"where": "host", "dtype": "float32"}


def test_what_only_mean_and_scale_were_applied_to_is_shown_as_it_is(source: Path) -> None:
    with opened(source, transform={"mean_value": [104], "scale": 0.5}) as feed:
        images = next(iter(feed)).data.numpy()
        assert shown_pixels(images, feed.config.transform) is images
        assert pixel_options(feed.config.transform) == {
            "where": "host",
            "dtype": "float32",
            "mean_value": (),
            "mean_file": None,
            "scale": 1.0,
            "normalize": None,
        }
