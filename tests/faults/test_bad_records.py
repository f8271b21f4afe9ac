"""Bad records: the right error, once, in order, naming the record; or the next good one instead."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import cv2
import lmdb
import numpy as np
import pytest

import prefetch
from prefetch._transform.host import RecordTransformer
from prefetch.caffe import Datum
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path


def _with_bad(
    folder: Path,
    bad: dict[int, bytes],
    *,
    num_records: int = 12,
    shape: Any = (3, 8, 8),
    good: str = "raw",
) -> Path:
    records = dict(enumerate(fingerprinted_images(num_records, shape)))
    if good == "png":
        for index, (key, value) in records.items():
            image = np.full((*shape[1:], shape[0]), index, np.uint8)
            datum = Datum(data=_file(".png", image), encoded=True)
            datum.label = Datum.FromString(value).label
            records[index] = (key, datum.SerializeToString())
    for index, value in bad.items():
        records[index] = (records[index][0], value)
    return write_database(folder, records.values())


def _image(height: int, width: int, channels: int = 3) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(7).integers(0, 256, (height, width, channels), dtype=np.uint8)


def _file(extension: str, image: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    return bytes(cv2.imencode(extension, image)[1].tobytes())


def _encoded(extension: str, image: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    return Datum(data=_file(extension, image), encoded=True, label=1).SerializeToString()


def _cut_jpeg(part: float) -> bytes:
    data = cv2.imencode(".jpg", _image(64, 64))[1].tobytes()
    return Datum(data=data[: int(len(data) * part)], encoded=True).SerializeToString()


def _damaged_jpeg() -> bytes:
    data = bytearray(_file(".jpg", _image(64, 64)))
    data[len(data) // 2 : len(data) // 2 + 2] = b"\xff\xd5"  # a restart marker where none is due
    return Datum(data=bytes(data), encoded=True).SerializeToString()


def _huge_png() -> bytes:
    data = bytearray(_file(".png", _image(8, 8)))
    data[16:24] = bytes.fromhex("7fffffff7fffffff")  # width and height in its header
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4)
    return Datum(data=bytes(data), encoded=True).SerializeToString()


def _png_in_pieces() -> bytes:
    data = _file(".png", _image(8, 8))
    return Datum(data=data[: len(data) // 2], encoded=True).SerializeToString()


GARBAGE = {
    "foreign bytes": b"<html>this is not a Datum</html>",
    "empty value": b"",
    "truncated": encode_image(np.zeros((3, 8, 8), np.uint8), label=1)[:-40],
    "too few bytes": Datum(channels=3, height=8, width=8, data=b"x" * 191).SerializeToString(),
    "no pixels": Datum(channels=3, height=8, width=8, label=3).SerializeToString(),
    "lying dimensions": Datum(
        channels=3, height=2**31 - 1, width=2**31 - 1, data=b"x" * 192
    ).SerializeToString(),
    "negative dimensions": Datum(channels=3, height=-8, width=8, data=b"x").SerializeToString(),
    "2 GB claim in 20 bytes": b"\x08\x03\x10\x08\x18\x08\x22\xff\xff\xff\xff\x07" + b"x" * 8,
    "empty encoded data": Datum(encoded=True, data=b"").SerializeToString(),
    "undecodable image": Datum(encoded=True, data=b"\x89PNG nonsense").SerializeToString(),
    "another channel count": encode_image(np.zeros((1, 8, 8), np.uint8), label=1),
    "another size": encode_image(np.zeros((3, 9, 8), np.uint8), label=1),
    "jpeg cut at half": _cut_jpeg(0.5),
    "jpeg cut at nine tenths": _cut_jpeg(0.9),
    "jpeg damaged in its scan": _damaged_jpeg(),
    "png cut at half": _png_in_pieces(),
    "png of 2^31 x 2^31": _huge_png(),
    "HWC under a CHW header": Datum(
        channels=8, height=8, width=3, data=b"x" * 192
    ).SerializeToString(),
    "16-bit image": Datum(
        data=cv2.imencode(".png", np.zeros((8, 8, 3), np.uint16))[1].tobytes(), encoded=True
    ).SerializeToString(),
}


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("good", ["raw", "png"])
@pytest.mark.parametrize("kind", GARBAGE)
def test_a_bad_record_is_an_error_at_its_batch_that_names_it(
    tmp_path: Path, kind: str, good: str, threads: int
) -> None:
    source = _with_bad(tmp_path / "db", {5: GARBAGE[kind]}, good=good)
    feed = prefetch.open({"source": source, "batch_size": 2, "threads": threads})
    iterator = iter(feed)
    assert next(iterator).label.numpy().tolist() == [0, 1]
    assert next(iterator).label.numpy().tolist() == [2, 3]
    with pytest.raises(prefetch.RecordError) as caught:
        next(iterator)
    error = caught.value
    assert error.database == str(source)
    assert (error.record, error.key, error.batch) == (5, b"00000005", 2)
    assert error.stage in {"parse", "validate", "decode", "transform"}
    for part in (str(source), "record 5", "00000005", "batch 2", error.stage, error.reason):
        assert part in str(error)
    assert feed.closed
    with pytest.raises(prefetch.FeedClosedError):
        next(iterator)


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("good", ["raw", "png"])
@pytest.mark.parametrize("kind", GARBAGE)
def test_quarantine_keeps_the_bytes_of_a_bad_record_and_serves_the_next(
    tmp_path: Path, kind: str, good: str, threads: int
) -> None:
    source = _with_bad(tmp_path / "db", {5: GARBAGE[kind]}, good=good)
    aside = tmp_path / "aside"
    options = {"source": source, "on_bad_record": "quarantine", "quarantine": aside}
    with prefetch.open(options, batch_size=4, threads=threads) as feed:
        indices = [index for batch in feed for index in batch.indices.tolist()]
    assert indices == [0, 1, 2, 3, 4, 6, 6, 7, 8, 9, 10, 11]
    with lmdb.open(str(aside), readonly=True, lock=False) as environment, environment.begin() as t:
        assert dict(t.cursor()) == {b"00000005": GARBAGE[kind]}


@pytest.mark.parametrize("threads", [1, 2, 8])
@pytest.mark.parametrize("good", ["raw", "png"])
@pytest.mark.parametrize("kind", GARBAGE)
def test_skip_puts_the_next_good_record_in_a_bad_ones_place(
    tmp_path: Path, kind: str, good: str, threads: int
) -> None:
    bad = dict.fromkeys((3, 7, 9, 11), GARBAGE[kind])
    source = _with_bad(tmp_path / "db", bad, good=good)
    with prefetch.open(
        {"source": source, "batch_size": 4, "threads": threads, "on_bad_record": "skip"}
    ) as feed:
        for _ in range(2):
            indices = []
            for batch in feed:
                assert (batch.data.numpy() == batch.label.numpy()[:, None, None, None]).all()
                assert batch.label.numpy().tolist() == batch.indices.tolist()
                assert batch.keys == [b"%08d" % index for index in batch.indices]
                indices += batch.indices.tolist()
            assert indices == [0, 1, 2, 4, 4, 5, 6, 8, 8, 10, 10, 0]
        assert feed.stats().bad_records == 4


def test_all_batches_have_the_shape_of_the_first_record_that_can_be_used(tmp_path: Path) -> None:
    source = _with_bad(tmp_path / "db", {0: b"\xff", 1: b"", 2: GARBAGE["another size"]})
    with prefetch.open({"source": source, "batch_size": 3, "on_bad_record": "skip"}) as feed:
        batch = next(iter(feed))
        assert batch.data.shape == (3, 3, 9, 8)
        assert batch.indices.tolist() == [2, 2, 2]


def test_substitutes_keep_their_own_draws_under_counter(tmp_path: Path) -> None:
    images = np.random.default_rng(3).integers(0, 256, (12, 3, 9, 9), dtype=np.uint8)
    good = [(b"%08d" % i, encode_image(image, label=i)) for i, image in enumerate(images)]
    bad = [(key, b"\xff" if i == 4 else value) for i, (key, value) in enumerate(good)]
    options: dict[str, Any] = {
        "batch_size": 12,
        "seed": 11,
        "transform": {"crop_size": 5, "mirror": True},
        "on_bad_record": "skip",
    }
    with prefetch.open(options, source=write_database(tmp_path / "good", good)) as feed:
        whole = next(iter(feed)).data.numpy().copy()
    with prefetch.open(options, source=write_database(tmp_path / "bad", bad)) as feed:
        batch = next(iter(feed))
        assert batch.indices.tolist() == [0, 1, 2, 3, 5, 5, 6, 7, 8, 9, 10, 11]
        assert (batch.data.numpy() == whole[batch.indices]).all()


@pytest.mark.parametrize("threads", [1, 8])
def test_substitutes_take_the_places_draws_under_caffe(tmp_path: Path, threads: int) -> None:
    images = np.random.default_rng(3).integers(0, 256, (12, 3, 9, 9), dtype=np.uint8)
    good = [(b"%08d" % i, encode_image(image, label=i)) for i, image in enumerate(images)]
    moved = [(key, good[5][1] if i == 4 else value) for i, (key, value) in enumerate(good)]
    bad = [(key, b"\xff" if i == 4 else value) for i, (key, value) in enumerate(good)]
    options: dict[str, Any] = {
        "batch_size": 6,
        "rng": "caffe",
        "seed": 11,
        "threads": threads,
        "transform": {"crop_size": 5, "mirror": True},
        "on_bad_record": "skip",
    }
    with prefetch.open(options, source=write_database(tmp_path / "moved", moved)) as feed:
        expected = [batch.data.numpy().copy() for batch in feed]
    with prefetch.open(options, source=write_database(tmp_path / "bad", bad)) as feed:
        for batch, wanted in zip(feed, expected, strict=True):
            assert (batch.data.numpy() == wanted).all()


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_one_bad_record_too_many_is_an_error_at_its_batch_for_any_number_of_threads(
    tmp_path: Path, threads: int
) -> None:
    source = _with_bad(tmp_path / "db", {1: b"\xff", 2: b"\xff", 9: b"\xff"})
    options = {"source": source, "batch_size": 4, "threads": threads, "on_bad_record": "skip"}
    with prefetch.open(options, max_bad_records=3) as feed:
        for _ in range(3):
            assert sum(len(batch) for batch in feed) == 12
    for _ in range(10):
        with prefetch.open(options, max_bad_records=2) as feed:
            iterator = iter(feed)
            assert len(next(iterator)) == 4
            assert len(next(iterator)) == 4
            with pytest.raises(prefetch.TooManyBadRecordsError, match="3 bad records") as caught:
                next(iterator)
            assert caught.value.last.record == 9


def test_bad_records_that_are_too_many_come_before_another_error_behind_them_in_the_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _with_bad(tmp_path / "db", {1: b"\xff", 4: b"\xff"})
    monkeypatch.setattr("prefetch._pipeline.reader_jobs._MIN_BYTES_TO_SPLIT", 0)
    monkeypatch.setattr("prefetch._pipeline.light_batches._MIN_RAW_BYTES_TO_SPLIT", 0)
    real = RecordTransformer.fill

    def fill(self: RecordTransformer, records: Any, *arguments: Any) -> Any:
        if len(records) == 1 and bytes(records.keys[0]) == b"00000007":
            raise ValueError("on command")
        return real(self, records, *arguments)

    monkeypatch.setattr(RecordTransformer, "fill", fill)
    options = {"source": source, "batch_size": 4, "threads": 2, "on_bad_record": "skip"}
    with prefetch.open(options, max_bad_records=1) as feed:
        iterator = iter(feed)
        assert next(iterator).indices.tolist() == [0, 2, 2, 3]
        with pytest.raises(prefetch.TooManyBadRecordsError, match="2 bad records"):
            next(iterator)


def test_others_of_a_kind_are_counted_and_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    source = _with_bad(tmp_path / "db", {1: b"\xff", 2: b"\xff", 9: GARBAGE["too few bytes"]})
    with prefetch.open(
        {"source": source, "batch_size": 4, "on_bad_record": "skip", "threads": 1}
    ) as feed:
        list(feed)
        list(feed)
    skipped = [record for record in caplog.records if "skipped" in record.message]
    assert len(skipped) == 2
    assert "00000001" in skipped[0].message


def test_errors_come_in_the_order_of_the_batches_whatever_the_threads_do(tmp_path: Path) -> None:
    bad = dict.fromkeys((30, 41, 52), b"\xff")
    source = _with_bad(tmp_path / "db", bad, num_records=60, shape=(3, 64, 64))
    for _ in range(10):
        with prefetch.open(
            {"source": source, "batch_size": 30, "threads": 8, "prefetch": 4}
        ) as feed:
            iterator = iter(feed)
            assert len(next(iterator)) == 30
            with pytest.raises(prefetch.RecordError) as caught:
                next(iterator)
            assert caught.value.record == 30


def test_a_value_that_is_an_image_file_is_said_to_be_one(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", [(b"image-000000001", _file(".jpg", _image(8, 8)))])
    with (
        pytest.raises(prefetch.RecordError, match=r"the value is a JPEG file itself; in a Datum"),
        prefetch.open({"source": source}) as feed,
    ):
        next(iter(feed))


def test_a_harmless_remark_of_libjpegs_is_logged_once_a_feed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = _file(".jpg", _image(40, 40))
    value = Datum(encoded=True, data=file[:-2] + bytes(20) + file[-2:]).SerializeToString()
    source = write_database(tmp_path / "db", [(b"%d" % number, value) for number in range(6)])
    options = {"source": source, "batch_size": 2, "threads": 2, "device": "cpu"}
    with prefetch.open(options) as feed:
        images = [batch.data.numpy().copy() for batch in feed]
    expected = cv2.imdecode(np.frombuffer(file, np.uint8), cv2.IMREAD_UNCHANGED)
    assert expected is not None
    assert all(np.array_equal(expected.transpose(2, 0, 1), image[0]) for image in images)
    said = [one.getMessage() for one in caplog.records if "libjpeg says" in one.getMessage()]
    assert len(said) == 1
    assert "extraneous bytes before marker 0xd9" in said[0]
