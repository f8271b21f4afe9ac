"""NVIDIA DALI's Caffe reader, which knows nothing of us, reads what is converted here.

It is in the extra ``peers``; ``make test-peers`` runs this where the wheel can be installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest

import prefetch
from prefetch.cli import main

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

dali = pytest.importorskip(
    "nvidia.dali", reason="nvidia-dali-cuda130 is not installed: make test-peers does so"
)

RNG = np.random.default_rng(0)
NAMES = [f"{number} of the caf\N{LATIN SMALL LETTER E WITH ACUTE}" for number in range(7)]
LABELS = [3, 0, 2**31 - 1, 5, 128, 70000, 1]


def read_with_dali(
    database: Path, num_records: int, *, decode: str | None = None
) -> tuple[list[NDArray[np.uint8]], list[int]]:
    """Return records and labels in the order in which DALI reads them.

    Args:
        database: The database.
        num_records: How many records to read.
        decode: DALI's type of decoded images; None: the bytes of the records' data.
    """

    def graph() -> tuple[Any, Any]:
        record, label = dali.fn.readers.caffe(path=str(database))
        if decode is not None:
            record = dali.fn.decoders.image(record, output_type=getattr(dali.types, decode))
        return record, label

    pipeline = dali.pipeline_def(graph)(batch_size=num_records, device_id=None, num_threads=1)
    pipeline.build()
    records, labels = pipeline.run()
    assert num_records == pipeline.epoch_size().popitem()[1]
    return (
        [np.array(records.at(place)) for place in range(num_records)],
        [int(np.asarray(labels.at(place)).item()) for place in range(num_records)],
    )


def read_with_us(database: Path, **transform: Any) -> tuple[NDArray[np.uint8], list[int]]:
    """Return pixels, uint8 (n, channels, height, width), and labels."""
    config = {
        "source": database,
        "batch_size": 100,
        "device": "cpu",
        "transform": {"dtype": "uint8", **transform},
    }
    with prefetch.open(config) as feed:
        (batch,) = list(feed)
        return batch.data.numpy().copy(), batch.label.numpy().tolist()


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Return a folder of PNGs and a list of them, whose names have spaces and other letters."""
    folder = tmp_path / "images"
    folder.mkdir()
    for number, name in enumerate(NAMES):
        size = (30, 40, 3) if number % 2 else (30, 40)
        cv2.imwrite(str(folder / f"{name}.png"), RNG.integers(0, 256, size, np.uint8))
    lines = (f"{name}.png {label}\n" for name, label in zip(NAMES, LABELS, strict=True))
    (folder / "list.txt").write_text("".join(lines), encoding="utf-8")
    return folder


def convert(images: Path, *options: str) -> Path:
    database = images.parent / "db"
    arguments = [str(images), str(images / "list.txt"), str(database)]
    assert 0 == main(["convert", *arguments, *options])
    return database


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ((), (3, 30, 40)),
        (("--gray",), (1, 30, 40)),
        (("--resize-height", "16", "--resize-width", "20", "--shuffle"), (3, 16, 20)),
    ],
)
def test_raw_records_are_read_alike(
    options: tuple[str, ...], shape: tuple[int, int, int], images: Path
) -> None:
    database = convert(images, *options)
    pixels, labels = read_with_us(database)
    theirs, their_labels = read_with_dali(database, len(NAMES))
    assert (len(NAMES), *shape) == pixels.shape
    assert labels == their_labels
    assert sorted(LABELS) == sorted(labels)
    for ours, other in zip(pixels, theirs, strict=True):
        # DALI calls Caffe's planes height x width x channels; the bytes are what it has read.
        np.testing.assert_array_equal(ours.ravel(), other.ravel())


@pytest.mark.parametrize("options", [("--encoded",), ("--encode-type", "png")])
def test_encoded_images_are_decoded_alike(options: tuple[str, ...], images: Path) -> None:
    database = convert(images, *options)
    pixels, labels = read_with_us(database, force_color=True)
    theirs, their_labels = read_with_dali(database, len(NAMES), decode="BGR")
    assert LABELS == labels == their_labels
    for ours, other in zip(pixels, theirs, strict=True):
        np.testing.assert_array_equal(ours.transpose(1, 2, 0), other)


def test_image_files_come_out_as_they_went_in(images: Path) -> None:
    theirs, _ = read_with_dali(convert(images, "--encoded"), len(NAMES))
    for name, file in zip(NAMES, theirs, strict=True):
        assert (images / f"{name}.png").read_bytes() == file.tobytes()


def test_jpegs_are_decoded_to_the_same_pixels(images: Path) -> None:
    database = convert(images, "--encode-type", "jpg")
    pixels, labels = read_with_us(database)
    theirs, their_labels = read_with_dali(database, len(NAMES), decode="BGR")
    assert LABELS == labels == their_labels
    for ours, other in zip(pixels, theirs, strict=True):
        np.testing.assert_array_equal(ours.transpose(1, 2, 0), other)


def test_arrays_are_read_alike(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (5, 3, 6, 8), np.uint8)
    np.save(tmp_path / "images.npy", pixels)
    np.save(tmp_path / "labels.npy", np.arange(5))
    paths = [str(tmp_path / name) for name in ("images.npy", "labels.npy", "db")]
    assert 0 == main(["convert", *paths])
    theirs, labels = read_with_dali(tmp_path / "db", 5)
    assert [0, 1, 2, 3, 4] == labels
    np.testing.assert_array_equal(pixels.reshape(5, -1), [image.ravel() for image in theirs])
