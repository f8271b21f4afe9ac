"""Records found in the mapping of the file are those that LMDB finds, and damage is no crash."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import prefetch
from prefetch import _kernels
from prefetch._batch import PackedKeys
from prefetch._database import Database
from prefetch._source import RecordSource
from prefetch._spans import Spans
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

PAGE_BYTES = 4096


def _records(count: int, sizes: list[int]) -> list[tuple[bytes, bytes]]:
    draw = random.Random(5)
    keys = sorted({draw.randbytes(draw.randint(1, 511)) for _ in range(count)})
    return [(key, draw.randbytes(sizes[i % len(sizes)])) for i, key in enumerate(keys)]


@pytest.mark.parametrize(
    "sizes",
    [[0], [1, 2, 3], [700], [1900, 2100], [4080, 4081], [50_000], [0, 5, 2000, 4064, 9000, 70_000]],
    ids=str,
)
def test_keys_and_values_are_those_that_were_written(tmp_path: Path, sizes: list[int]) -> None:
    written = _records(300, sizes)
    order = np.random.default_rng(1).integers(0, len(written), 500)
    with RecordSource.open(write_database(tmp_path / "db", written)) as source:
        records = source.reader().fetch(order)
        assert isinstance(records.values, Spans)
        found = list(zip(map(bytes, records.keys), map(bytes, records.values), strict=True))
        assert found == [written[place] for place in order]
        assert PackedKeys.pack(records.keys).unpack() == [key for key, _ in found]
        records.release()


def test_a_feed_serves_the_same_bytes_walked_mapped_and_through_lmdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = np.random.default_rng(2).integers(0, 256, (50, 3, 40, 40), dtype=np.uint8)
    source = write_database(
        tmp_path / "db",
        [(b"%d" % i, encode_image(image, label=i)) for i, image in enumerate(images)],
    )

    def served(**options: Any) -> list[tuple[bytes, list[bytes], list[int]]]:
        transform = {"crop_size": 33, "mirror": True, "scale": 0.5}
        with prefetch.open(
            {"source": source, "batch_size": 16, "transform": transform, **options}
        ) as feed:
            return [
                (batch.data.numpy().tobytes(), batch.keys, batch.label.numpy().tolist())
                for _ in range(3)
                for batch in feed
            ]

    walked_then_mapped = served()
    shuffled = served(shuffle=True)
    monkeypatch.setattr(Database, "is_mapped", False)
    assert served() == walked_then_mapped
    assert served(shuffle=True) == shuffled
    assert len({keys[0] for _, keys, _ in shuffled}) > 1


def test_the_walker_is_left_after_the_first_epoch(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(20))
    with prefetch.open({"source": source, "batch_size": 8}) as feed:
        prefetcher = feed._prefetcher
        assert prefetcher._walker is not None
        for _ in range(2):
            for batch in feed:
                assert (batch.data.numpy() == batch.label.numpy()[:, None, None, None]).all()
        assert prefetcher._walker is None


def test_damaged_pages_are_an_error_or_other_bytes_and_never_a_crash(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "db", _records(40, [10, 2000, 9000]))
    whole = (folder / "data.mdb").read_bytes()
    pages = np.arange(len(whole) // PAGE_BYTES, dtype=np.int64)
    draw = random.Random(9)
    spans = np.empty((4, 1), np.int64)
    found = 0
    for _ in range(3000):
        damaged = bytearray(whole)
        page = draw.randrange(2, len(pages))
        for _ in range(draw.randint(1, 6)):
            place = page * PAGE_BYTES + draw.choice(
                [draw.randrange(80), draw.randrange(PAGE_BYTES)]
            )
            damaged[place] = draw.randrange(256)
        for slot in range(4):
            bad = _kernels.locate(
                memoryview(damaged), PAGE_BYTES, pages[page : page + 1], np.array([slot]), spans
            )
            assert bad in (-1, 0)
            if bad == -1:
                found += 1
                key, key_size, value, value_size = spans[:, 0].tolist()
                assert 0 <= key <= key + key_size <= len(damaged)
                assert 0 <= value <= value + value_size <= len(damaged)
    assert found > 500


@pytest.mark.parametrize(
    ("page", "slot"), [(-1, 0), (2**62, 0), (0, 0), (10**6, 0), (3, -1), (3, 2**40), (3, 5000)]
)
def test_a_place_that_is_none_is_reported(tmp_path: Path, page: int, slot: int) -> None:
    folder = write_database(tmp_path / "db", _records(40, [10]))
    memory = memoryview((folder / "data.mdb").read_bytes())
    spans = np.empty((4, 1), np.int64)
    assert _kernels.locate(memory, PAGE_BYTES, np.array([page]), np.array([slot]), spans) == 0


def _call(memory: memoryview, begins: list[int], sizes: list[int]) -> npt.NDArray[np.float32]:
    from prefetch._transform import Transform  # noqa: PLC0415

    data = np.zeros((len(begins), 1, 1, 1), np.float32)
    _kernels.fill_spans(
        memory,
        np.array(begins, np.int64),
        np.array(sizes, np.int64),
        np.zeros((len(begins), 3), np.uint32),
        data,
        None,
        Transform(train=False).recipe,
    )
    return data


def test_spans_outside_of_the_memory_are_refused() -> None:
    record = encode_image(np.full((1, 1, 1), 7, np.uint8), label=0)
    size = len(record)
    memory = memoryview(record + record)
    assert _call(memory, [0, size], [size, size]).ravel().tolist() == [7, 7]
    for begins, sizes in (
        ([-1, 0], [size, size]),
        ([0, size + 1], [size, size]),
        ([0, 0], [size, 2 * size + 1]),
        ([0, 2**62], [size, 2**62]),
        ([0, 0], [size, -1]),
    ):
        with pytest.raises(ValueError, match="outside of the memory"):
            _call(memory, begins, sizes)
        with pytest.raises(ValueError, match="outside of the memory"):
            _kernels.gather(memory, np.array(begins), np.array(sizes))


def test_a_file_that_cannot_be_mapped_is_read_through_lmdb(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    source = write_database(tmp_path / "db", fingerprinted_images(20))
    monkeypatch.setattr("prefetch._mapping.mmap.mmap", refuse)
    with RecordSource.open(source) as opened:
        assert not opened._databases[0].is_mapped
