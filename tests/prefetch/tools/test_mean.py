"""The mean image: Caffe's sums, in Caffe's order, for any number of threads."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from processes import DEADLINE_S

from prefetch._errors.classes import RecordError
from prefetch._record.wire import encode_datum
from prefetch._source.source import RecordSource
from prefetch._tools.mean import Mean, compute_mean
from prefetch._tools.mean_images import ThreadDecoders
from prefetch._transform.mean_file import load_mean
from prefetch.caffe import BlobProto
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

RNG = np.random.default_rng(0)


def mean_of(folder: Path, values: Sequence[bytes], **options: Any) -> Mean:
    path = folder / "db"
    if not path.exists():
        write_database(path, [(b"%08d" % index, value) for index, value in enumerate(values)])
    with RecordSource.open(path) as source:
        return compute_mean(source, **options)


def caffes(images: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """Return what compute_image_mean's loop gives."""
    total = np.zeros(images[0].shape, np.float32)
    for image in images:
        total += image.astype(np.float32)
    return total / np.float32(len(images))


def png(image: NDArray[np.uint8], label: int = 0) -> bytes:
    return encode_datum(data=cv2.imencode(".png", image)[1].tobytes(), label=label, encoded=True)


def test_the_mean_of_bytes_is_caffes_bit_for_bit(tmp_path: Path) -> None:
    images = list(RNG.integers(0, 256, (37, 3, 5, 7), np.uint8))
    found = mean_of(tmp_path, [encode_image(image, label=0) for image in images])
    np.testing.assert_array_equal(caffes(images), found.image)
    assert np.float32 == found.image.dtype
    assert 37 == found.num_records


def test_float_sums_round_in_the_order_of_the_keys(tmp_path: Path) -> None:
    images = [np.full((1, 1, 2), value, np.float32) for value in (2.0**24, 1, 1, -(2.0**24))]
    values = [encode_datum(channels=1, height=1, width=2, floats=image.ravel()) for image in images]
    assert [0.0, 0.0] == mean_of(tmp_path, values).image.ravel().tolist()
    assert [0.5, 0.5] == mean_of(tmp_path, values, exact=True).image.ravel().tolist()


@pytest.mark.parametrize("kind", ["raw", "float", "png"])
def test_any_number_of_threads_gives_the_same_bits(kind: str, tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (12, 3, 160, 200), np.uint8)
    if kind == "raw":
        values = [encode_image(image, label=0) for image in images]
    elif kind == "float":
        values = [
            encode_datum(channels=3, height=160, width=200, floats=image.ravel() / np.float32(3))
            for image in images
        ]
    else:
        values = [png(image.transpose(1, 2, 0)) for image in images]
    means = [mean_of(tmp_path, values, threads=threads) for threads in (1, 2, 8)]
    expected = images / np.float32(3) if kind == "float" else images
    np.testing.assert_array_equal(caffes(list(expected)), means[0].image)
    for other in means[1:]:
        np.testing.assert_array_equal(means[0].image, other.image)
        assert means[0].channels == other.channels


def test_channel_means_are_float32_sums_one_pixel_after_the_other(tmp_path: Path) -> None:
    images = list(RNG.integers(0, 256, (3, 2, 30, 40), np.uint8))
    found = mean_of(tmp_path, [encode_image(image, label=0) for image in images])
    for channel in (0, 1):
        total = np.float32(0)
        for pixel in caffes(images)[channel].ravel():
            total += pixel
        assert float(total / np.float32(1200)) == found.channels[channel]


def test_the_exact_mean_is_the_true_one_rounded_once(tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (7, 1, 4, 4), np.uint8)
    found = mean_of(tmp_path, [encode_image(one, label=0) for one in images], exact=True)
    true = images.sum(axis=0) / 7
    np.testing.assert_array_equal(true.astype(np.float32), found.image)
    assert true.mean() == pytest.approx(found.channels[0], rel=1e-15)


def test_encoded_images_are_decoded_as_they_are_stored(tmp_path: Path) -> None:
    gray = RNG.integers(0, 256, (2, 4, 5), np.uint8)
    found = mean_of(tmp_path, [png(image) for image in gray])
    np.testing.assert_array_equal(caffes(list(gray[:, np.newaxis])), found.image)
    colored = mean_of(tmp_path, [], force_color=True)
    np.testing.assert_array_equal(np.repeat(found.image, 3, axis=0), colored.image)


def test_raw_and_encoded_records_may_be_mixed(tmp_path: Path) -> None:
    images = RNG.integers(0, 256, (2, 3, 4, 5), np.uint8)
    values = [encode_image(images[0], label=0), png(images[1].transpose(1, 2, 0))]
    np.testing.assert_array_equal(caffes(list(images)), mean_of(tmp_path, values).image)


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ((3, 5, 4), r"3 x 5 x 4 .*first record is 3 x 4 x 5.*--resize-height"),
        ((1, 4, 5), r"1 x 4 x 5 .*first record is 3 x 4 x 5.*--force-color"),
        ((1, 12, 5), r"1 x 12 x 5 .*first record is 3 x 4 x 5"),  # as many pixels
    ],
)
def test_another_shape_is_refused_with_its_key_and_both_shapes(
    other: tuple[int, int, int], words: str, tmp_path: Path
) -> None:
    shapes = [(3, 4, 5), (3, 4, 5), other, (3, 4, 5)]
    values = [encode_image(np.zeros(shape, np.uint8), label=0) for shape in shapes]
    with pytest.raises(RecordError, match=words) as caught:
        mean_of(tmp_path, values)
    assert (2, b"00000002", "validate") == (
        caught.value.record,
        caught.value.key,
        caught.value.stage,
    )


@pytest.mark.parametrize(
    ("bad", "stage"),
    [
        (b"\xff\xff", "parse"),
        (encode_datum(channels=3, height=4, width=5, data=b"short"), "validate"),
        (encode_datum(data=b"no image", encoded=True), "decode"),
        (encode_datum(data=b"", encoded=True), "decode"),
    ],
)
def test_the_first_bad_record_is_named(bad: bytes, stage: str, tmp_path: Path) -> None:
    good = encode_image(np.zeros((3, 4, 5), np.uint8), label=0)
    with pytest.raises(RecordError) as caught:
        mean_of(tmp_path, [good, good, bad, b"\xff", good])
    assert (2, b"00000002", stage) == (
        caught.value.record,
        caught.value.key,
        caught.value.stage,
    )


def test_a_binaryproto_has_caffes_legacy_dimensions(tmp_path: Path) -> None:
    mean = Mean(np.arange(24, dtype=np.float32).reshape(2, 3, 4), (0.0, 0.0), 1)
    mean.save(tmp_path / "mean.binaryproto")
    blob = BlobProto.FromString((tmp_path / "mean.binaryproto").read_bytes())
    assert (1, 2, 3, 4) == (blob.num, blob.channels, blob.height, blob.width)
    assert not blob.HasField("shape")
    assert list(range(24)) == list(blob.data)
    assert ["mean.binaryproto"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("name", ["mean.binaryproto", "mean.npy"])
def test_what_is_written_loads_as_a_mean_file(name: str, tmp_path: Path) -> None:
    image = RNG.standard_normal((3, 4, 5)).astype(np.float32)
    Mean(image, (0.0,) * 3, 1).save(tmp_path / name)
    np.testing.assert_array_equal(image, load_mean(tmp_path / name))


@pytest.mark.parametrize("name", ["mean.npy", "mean.binaryproto"])
def test_a_mean_that_cannot_be_written_leaves_the_old_one(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / name
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match=f"{name}: cannot be written: No space left.*make room"):
        Mean(np.zeros((1, 1, 1), np.float32), (0.0,), 1).save(path)
    assert b"old" == path.read_bytes()
    assert [name] == [one.name for one in tmp_path.iterdir()]


def test_all_cores_decode_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planes, together = ThreadDecoders.planes, threading.Barrier(4, timeout=DEADLINE_S)
    first = threading.Event()  # the first record is decoded alone, for the shape

    def decoded_together(self: ThreadDecoders, data: memoryview) -> NDArray[np.uint8]:
        if first.is_set():
            together.wait()  # broken, and an error, where fewer than four decode
        first.set()
        return planes(self, data)

    monkeypatch.setattr(ThreadDecoders, "planes", decoded_together)
    monkeypatch.setattr("prefetch._tools.mean.num_cores", lambda: 4)
    images = RNG.integers(0, 256, (9, 4, 5), np.uint8)
    found = mean_of(tmp_path, [png(image) for image in images])
    np.testing.assert_array_equal(caffes(list(images[:, np.newaxis])), found.image)


def test_progress_ends_with_all_records(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    values = [encode_image(np.zeros((1, 2, 2), np.uint8), label=0)] * 5
    mean_of(tmp_path, values, progress=lambda done, total: seen.append((done, total)))
    assert (5, 5) == seen[-1]
    assert seen == sorted(seen)
