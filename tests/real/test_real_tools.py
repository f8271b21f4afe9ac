"""Means and conversions of files that other people's tools wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
import lmdb
import numpy as np
import pytest

from prefetch._source.source import RecordSource
from prefetch._tools.convert import InputOptions, Treatment, convert, open_input
from prefetch._tools.mean import compute_mean
from prefetch._transform.mean_file import load_mean
from prefetch.caffe import Datum

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_the_mean_file_that_was_published_with_a_database_comes_out_byte_for_byte(
    threads: int, real_data: Path, tmp_path: Path
) -> None:
    with RecordSource.open(real_data / "lmdb" / "gray_as_3x32x32") as source:
        compute_mean(source, threads=threads).save(tmp_path / "mean.binaryproto")
    published = real_data / "mean" / "gray_as_3x32x32_mean.binaryproto"
    assert published.read_bytes() == (tmp_path / "mean.binaryproto").read_bytes()
    np.testing.assert_array_equal(load_mean(published), load_mean(tmp_path / "mean.binaryproto"))


@pytest.mark.parametrize(
    "name",
    ["photos_3x256x256", "old_writer_3x28x28", "letters_1x16x16_n10000", "one_class_3x84x84"],
)
def test_the_mean_of_any_database_is_the_sum_in_key_order_divided(
    name: str, real_data: Path
) -> None:
    path = real_data / "lmdb" / name
    with RecordSource.open(path) as source:
        found = compute_mean(source)
    total: np.ndarray[tuple[int, ...], np.dtype[np.float32]] | None = None
    with (
        lmdb.open(str(path), readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        for _, value in transaction.cursor():
            pixels = np.frombuffer(Datum.FromString(value).data, np.uint8).astype(np.float32)
            total = pixels if total is None else total + pixels
    assert total is not None
    np.testing.assert_array_equal(
        (total / np.float32(found.num_records)).reshape(found.image.shape), found.image
    )


def test_photographs_with_a_space_in_a_name_convert_as_imread_and_resize_give(
    real_data: Path, tmp_path: Path
) -> None:
    names = ["cat.jpg", "cat gray.jpg", "fish-bike.jpg", "cat_gray.jpg"]
    listing = tmp_path / "list.txt"
    listing.write_text("".join(f"{name} {label}\n" for label, name in enumerate(names)))
    options = InputOptions(treatment=Treatment(resize_height=256, resize_width=200))
    opened = open_input([real_data / "images", listing], options)
    convert(opened.examples, tmp_path / "db")
    with (
        lmdb.open(str(tmp_path / "db"), readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        for label, name in enumerate(names):
            value = transaction.get(f"{label:08d}_{name}".encode())
            assert value is not None
            datum = Datum.FromString(value)
            image = cv2.imread(str(real_data / "images" / name))
            assert image is not None
            expected = cv2.resize(image, (200, 256)).transpose(2, 0, 1)
            assert (3, 256, 200, label) == (
                datum.channels,
                datum.height,
                datum.width,
                datum.label,
            )
            assert expected.tobytes() == datum.data


def test_an_encoded_photograph_is_the_file_itself(real_data: Path, tmp_path: Path) -> None:
    listing = tmp_path / "list.txt"
    listing.write_text("cat.jpg 3\n")
    options = InputOptions(treatment=Treatment(encoded=True))
    opened = open_input([real_data / "images", listing], options)
    convert(opened.examples, tmp_path / "db")
    with RecordSource.open(tmp_path / "db") as source:
        records = source.walker().take(0, 1)
        datum = Datum.FromString(bytes(records.values[0]))
        records.release()
    expected = (real_data / "images" / "cat.jpg").read_bytes()
    assert Datum(data=expected, label=3, encoded=True) == datum
    assert 140391 == len(expected)
