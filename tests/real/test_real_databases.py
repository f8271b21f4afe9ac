"""Databases that other people's tools wrote hold what their makers counted."""

from __future__ import annotations

import hashlib
import os
import shutil
import struct
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pytest
from databases import lmdb_of

import prefetch
from prefetch._errors.classes import DatabaseTruncatedError
from prefetch._record.wire import parse_datum
from prefetch._source.source import RecordSource
from prefetch.caffe import BlobProto, BlobShape, Datum
from prefetch.testing import encode_image, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prefetch._record.datum_view import DatumView
    from prefetch._source.records import Records


@dataclass(frozen=True)
class Facts:
    """What is known of a database.

    Attributes:
        name: Its folder.
        shape: Channels, height and width of every record.
        labels: How many records each label has; of the letters, how many labels there are.
        pixel_sum: Sum of all pixels.
        digest: First 16 digits of the SHA-256 over key, label (int32) and pixels of every record.
    """

    name: str
    shape: tuple[int, int, int]
    num_records: int
    labels: dict[int, int] | int
    pixel_sum: int
    digest: str


DATABASES = [
    Facts("photos_3x256x256", (3, 256, 256), 8, {0: 4, 1: 4}, 210722816, "647b296541745cc5"),
    Facts("gray_as_3x32x32", (3, 32, 32), 380, {0: 55, 1: 325}, 4655694, "1a46c71286cc04b9"),
    Facts("old_writer_3x28x28", (3, 28, 28), 38, {0: 25, 1: 13}, 8609517, "66ffe73a9ba5e68e"),
    Facts("letters_1x16x16_n10000", (1, 16, 16), 10000, 26, 151253250, "1af97b9974291f99"),
    Facts("one_class_3x84x84", (3, 84, 84), 32, {1: 32}, 118450432, "4a3300eef798a1e4"),
]


@pytest.fixture(params=DATABASES, ids=lambda facts: facts.name)
def facts(request: pytest.FixtureRequest) -> Facts:
    found: Facts = request.param
    return found


@pytest.fixture
def source(real_data: Path, facts: Facts) -> Iterator[RecordSource]:
    with RecordSource.open(real_data / "lmdb" / facts.name) as source:
        yield source


def all_records(source: RecordSource) -> Iterator[Records]:
    """Yield the records in order, 256 at a time, and release them."""
    walker = source.walker()
    for start in range(0, source.num_records, 256):
        records = walker.take(start, min(256, source.num_records - start))
        yield records
        records.release()


def payload(datum: DatumView) -> bytes:
    assert datum.data is not None
    return bytes(datum.data)


def test_a_real_database_holds_what_was_counted(source: RecordSource, facts: Facts) -> None:
    labels: Counter[int] = Counter()
    pixel_sum = 0
    digest = hashlib.sha256()
    for records in all_records(source):
        for key, value in zip(records.keys, records.values, strict=True):
            datum = parse_datum(value)
            pixels = payload(datum)
            assert (datum.channels, datum.height, datum.width) == facts.shape
            assert not datum.encoded
            assert len(pixels) == np.prod(facts.shape)
            labels[datum.label] += 1
            pixel_sum += int(np.frombuffer(pixels, np.uint8).sum(dtype=np.int64))
            digest.update(bytes(key) + struct.pack("<i", datum.label) + pixels)
    assert source.num_records == facts.num_records
    assert (dict(labels) if isinstance(facts.labels, dict) else len(labels)) == facts.labels
    assert pixel_sum == facts.pixel_sum
    assert digest.hexdigest()[:16] == facts.digest


def test_a_real_record_is_read_as_protobuf_reads_it(source: RecordSource) -> None:
    for records in all_records(source):
        for value in records.values:
            ours, theirs = parse_datum(value), Datum.FromString(bytes(value))
            assert payload(ours) == theirs.data
            assert (ours.channels, ours.height, ours.width) == (
                *(theirs.channels, theirs.height, theirs.width),
            )
            assert (ours.label, ours.encoded) == (theirs.label, theirs.encoded)


def test_random_access_finds_what_walking_finds(source: RecordSource) -> None:
    walked = [
        (bytes(key), bytes(value))
        for records in all_records(source)
        for key, value in zip(records.keys, records.values, strict=True)
    ]
    numbers = np.random.default_rng(0).permutation(source.num_records)
    records = source.reader().fetch(numbers)
    fetched = [
        (bytes(key), bytes(value)) for key, value in zip(records.keys, records.values, strict=True)
    ]
    records.release()
    assert fetched == [walked[number] for number in numbers.tolist()]


def test_a_walker_may_begin_at_any_record(source: RecordSource) -> None:
    start = source.num_records - 3
    walked = source.walker().take(start, 5)
    fetched = source.reader().fetch(np.arange(start, start + 5) % source.num_records)
    assert [bytes(key) for key in walked.keys] == [bytes(key) for key in fetched.keys]
    assert [bytes(value) for value in walked.values] == [bytes(value) for value in fetched.values]
    walked.release()
    fetched.release()


@pytest.mark.parametrize("lock", [False, True])
def test_a_lock_file_of_another_machine_is_no_hindrance(
    real_data: Path, tmp_path: Path, *, lock: bool
) -> None:
    """Copied, because a lock writes to it; the original folder must not be written to."""
    folder = shutil.copytree(real_data / "lmdb" / "photos_3x256x256", tmp_path / "db")
    folder.chmod(0o755)
    for path in folder.iterdir():
        path.chmod(0o644)
    assert (folder / "lock.mdb").exists()
    with RecordSource.open(folder, lock=lock) as source:
        source.walker().take(0, 8).release()
        source.check()


def test_a_real_database_in_a_folder_of_others_is_left_as_it_is(
    real_data: Path, source: RecordSource, facts: Facts
) -> None:
    folder = real_data / "lmdb" / facts.name
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    source.reader().fetch(np.array([0])).release()
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before


def test_a_real_database_that_was_cut_is_truncated(
    real_data: Path, facts: Facts, tmp_path: Path
) -> None:
    original = real_data / "lmdb" / facts.name / "data.mdb"
    cut = tmp_path / "data.mdb"
    with RecordSource.open(original) as source:
        needed = lmdb_of(source).snapshot.meta.size_bytes
    with original.open("rb") as whole, cut.open("wb") as part:
        part.write(whole.read(needed - os.sysconf("SC_PAGE_SIZE")))
    with pytest.raises(DatabaseTruncatedError):
        RecordSource.open(cut)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gray_as_3x32x32_mean", (3, 32, 32)),
        ("cifar10_train_3x32x32", (3, 32, 32)),
        ("legacy_dims_3x64x64", (3, 64, 64)),
        ("legacy_dims_3x96x96", (3, 96, 96)),
    ],
)
def test_a_real_mean_file_is_read(real_data: Path, name: str, shape: tuple[int, int, int]) -> None:
    blob = BlobProto.FromString((real_data / "mean" / f"{name}.binaryproto").read_bytes())
    assert blob.HasField("num")
    assert (blob.channels, blob.height, blob.width) == shape
    assert len(blob.data) == np.prod(shape)


@pytest.mark.parametrize("form", ["as it is", "shape only", "npy"])
@pytest.mark.parametrize(
    "name",
    [
        "gray_as_3x32x32_mean",
        "cifar10_train_3x32x32",
        "legacy_dims_3x64x64",
        "legacy_dims_3x96x96",
    ],
)
def test_a_feed_subtracts_any_real_mean_file(
    real_data: Path, tmp_path: Path, name: str, form: str
) -> None:
    path = real_data / "mean" / f"{name}.binaryproto"
    blob = BlobProto.FromString(path.read_bytes())
    shape = blob.channels, blob.height, blob.width
    mean = np.array(blob.data, np.float32).reshape(shape)
    if form == "shape only":
        path = tmp_path / "mean.binaryproto"
        path.write_bytes(BlobProto(shape=BlobShape(dim=shape), data=blob.data).SerializeToString())
    elif form == "npy":
        path = tmp_path / "mean.npy"
        np.save(path, mean)
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    source = write_database(tmp_path / "db", [(b"0", encode_image(image, label=0))])
    config = {"source": source, "device": "cpu", "transform": {"mean_file": path}}
    with prefetch.open(config) as feed:
        (batch,) = list(feed)
        np.testing.assert_array_equal(image.astype(np.float32) - mean, batch.data.numpy()[0])


def test_a_real_mean_is_the_mean_of_its_database(real_data: Path) -> None:
    """The sum in key order in float32, as Caffe's tool makes it, bit for bit."""
    blob = BlobProto.FromString((real_data / "mean/gray_as_3x32x32_mean.binaryproto").read_bytes())
    total = np.zeros(3 * 32 * 32, np.float32)
    with RecordSource.open(real_data / "lmdb" / "gray_as_3x32x32") as source:
        for records in all_records(source):
            for value in records.values:
                total += np.frombuffer(payload(parse_datum(value)), np.uint8)
        mean = total / np.float32(source.num_records)
    np.testing.assert_array_equal(mean, np.array(blob.data, np.float32))
