"""Records found in the pages of a file are those that were written, and damage is no crash."""

from __future__ import annotations

import random
import re
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import lmdb_of

import prefetch
from prefetch._kernels import _c
from prefetch._source.lmdb.file import DatabaseFile
from prefetch._source.lmdb.mapped import MappedPages
from prefetch._source.lmdb.pread import FileSpans, PreadPages
from prefetch._source.packed_keys import PackedKeys
from prefetch._source.source import RecordSource
from prefetch._source.spans import Spans
from prefetch._transform.options import Transform
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt

    from prefetch._source.lmdb.index import RecordIndex
    from prefetch._source.records import Records

PAGE_BYTES = 4096


def _records(count: int, sizes: list[int]) -> list[tuple[bytes, bytes]]:
    draw = random.Random(5)
    keys = sorted({draw.randbytes(draw.randint(1, 511)) for _ in range(count)})
    return [(key, draw.randbytes(sizes[i % len(sizes)])) for i, key in enumerate(keys)]


@pytest.fixture(params=["mapped", "unmapped"])
def is_mapped(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Say whether files are mapped; where they are not, it is for want of address space."""
    if request.param == "unmapped":
        _refuse_mapping(monkeypatch)
    return bool(request.param == "mapped")


def _refuse_mapping(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(MappedPages, "__init__", refuse)


@pytest.mark.parametrize(
    "sizes",
    [[0], [1, 2, 3], [700], [1900, 2100], [4080, 4081], [50_000], [0, 5, 2000, 4064, 9000, 70_000]],
    ids=str,
)
def test_keys_and_values_are_those_that_were_written(
    tmp_path: Path, sizes: list[int], *, is_mapped: bool
) -> None:
    written = _records(300, sizes)
    order = np.random.default_rng(1).integers(0, len(written), 500)
    with RecordSource.open(write_database(tmp_path / "db", written)) as source:
        walker = source.walker()
        walked = [walker.take(start, 50) for start in range(0, 300, 50)]
        records = source.reader().fetch(order)
        assert isinstance(records.values, Spans if is_mapped else FileSpans)
        assert _pairs(records) == [written[place] for place in order]
        assert PackedKeys.pack(records.keys).unpack() == [key for key, _ in _pairs(records)]
        assert [pair for part in walked for pair in _pairs(part)] == written
        assert _pairs(records[3:7]) == [written[place] for place in order[3:7]]
        records.release()
        with pytest.raises(ValueError, match="released"):
            records.values[0]


def test_records_of_several_databases_are_those_that_were_written(
    tmp_path: Path, *, is_mapped: bool
) -> None:
    parts = [_records(count, [10, 3000, 9000]) for count in (40, 1, 25)]
    folders = [write_database(tmp_path / f"db{number}", part) for number, part in enumerate(parts)]
    written = [pair for part in parts for pair in part]
    order = np.random.default_rng(1).integers(0, len(written), 500)
    with RecordSource.open(folders) as source:
        walker = source.walker()
        walked = [_pairs(walker.take(start, 11)) for start in range(0, 66, 11)]
        assert [pair for part in walked for pair in part] == written
        records = source.reader().fetch(order)
        assert _pairs(records) == [written[place] for place in order]
        records.release()
        assert source.can_do_without_walker() == is_mapped


def _pairs(records: Records) -> list[tuple[bytes, bytes]]:
    return list(zip(map(bytes, records.keys), map(bytes, records.values), strict=True))


def test_a_feed_serves_the_same_bytes_walked_mapped_and_unmapped(
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
    _refuse_mapping(monkeypatch)
    assert served() == walked_then_mapped
    assert served(shuffle=True) == shuffled
    assert len({keys[0] for _, keys, _ in shuffled}) > 1


def test_the_walker_is_left_after_the_first_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefetch._source.source._MOST_INDEXING_S", 0)
    source = write_database(tmp_path / "db", fingerprinted_images(20))
    with prefetch.open({"source": source, "batch_size": 8}) as feed:
        prefetcher = feed._prefetcher
        assert prefetcher.coordinator.planner.walker is not None
        for _ in range(2):
            for batch in feed:
                assert (batch.data.numpy() == batch.label.numpy()[:, None, None, None]).all()
        assert prefetcher.coordinator.planner.walker is None


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
            bad = _c.locate(
                memoryview(damaged), PAGE_BYTES, pages[page : page + 1], np.array([slot]), spans
            )
            assert bad in (-1, 0)
            if bad == -1:
                found += 1
                key, key_size, value, value_size = spans[:, 0].tolist()
                assert 0 <= key <= key + key_size <= len(damaged)
                assert 0 <= value <= value + value_size <= len(damaged)
    assert found > 500


@pytest.mark.slow
def test_damaged_pages_are_refused_mapped_and_unmapped_for_the_same_reasons(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "db", _records(40, [10, 2000, 9000]))
    data = folder / "data.mdb"
    whole = data.read_bytes()
    draw = random.Random(17)
    told: dict[str, int] = {}
    for _ in range(400):
        damaged = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(2, len(whole) // PAGE_BYTES) * PAGE_BYTES + draw.choice(
                [draw.randrange(16), draw.randrange(80), draw.randrange(PAGE_BYTES)]
            )
            near = damaged[place] + draw.choice([-2, -1, 1, 2])
            damaged[place] = draw.choice([draw.randrange(256), near & 255])
        data.write_bytes(damaged)
        with closing(DatabaseFile(folder)) as file:
            meta = file.newest()
            finders = MappedPages(file, meta, _c, _no_index), PreadPages(file, meta)
            for page in range(2, meta.last_page + 2):
                for slot in (0, 1, draw.randrange(2, 200)):
                    mapped, unmapped = (_found(finder, page, slot) for finder in finders)
                    assert mapped == unmapped
                    reason = unmapped if isinstance(unmapped, str) else "found"
                    kind = re.sub(r"[0-9]+", "N", reason)
                    told[kind] = told.get(kind, 0) + 1
    assert told["found"] > 1000
    assert len(told) > 8, told


def _no_index(_: int) -> RecordIndex:
    raise AssertionError("records are found by page and slot here")


def _found(finder: MappedPages | PreadPages, page: int, slot: int) -> tuple[bytes, bytes] | str:
    """Return a record's key and value, or why there is none."""
    try:
        keys, values = finder.find(np.array([page]), np.array([slot]))
    except prefetch.CorruptDatabaseError as error:
        return str(error)
    return bytes(keys[0]), bytes(values[0])


@pytest.mark.parametrize(
    ("page", "slot"), [(-1, 0), (2**62, 0), (0, 0), (10**6, 0), (3, -1), (3, 2**40), (3, 5000)]
)
def test_a_place_that_is_none_is_reported(tmp_path: Path, page: int, slot: int) -> None:
    folder = write_database(tmp_path / "db", _records(40, [10]))
    memory = memoryview((folder / "data.mdb").read_bytes())
    spans = np.empty((4, 1), np.int64)
    assert _c.locate(memory, PAGE_BYTES, np.array([page]), np.array([slot]), spans) == 0


def _fill_records(
    memory: memoryview, index: RecordIndex, wanted: list[int], **changed: Any
) -> tuple[int, npt.NDArray[np.float32], bytes]:
    """Fill rows of 1x1x1; returns the first record not found, the rows and the keys."""
    data = np.zeros((len(wanted), 1, 1, 1), np.float32)
    arguments: dict[str, Any] = {
        "memory": memory,
        "page_bytes": PAGE_BYTES,
        "leaves": index.leaves,
        "firsts": index.firsts,
        "recipe": Transform(train=False).recipe,
        "records": np.array(wanted, np.int64),
        "spans": np.zeros((4, len(wanted)), np.int64),
        "words": np.zeros((len(wanted), 3), np.uint32),
        "data": data,
        "labels": None,
    } | changed
    arguments["parts"] = [
        tuple(map(arguments.pop, ("records", "spans", "words", "data", "labels")))
    ]
    ((bad, _, keys),) = _c.fill_records(*arguments.values())
    return bad, data, keys


@pytest.fixture
def small(tmp_path: Path) -> tuple[memoryview, RecordIndex]:
    """A database of 300 records 1x1x1 that hold their number modulo 256, in memory."""
    folder = write_database(
        tmp_path / "db",
        [
            (b"%03d" % i, encode_image(np.full((1, 1, 1), i % 256, np.uint8), label=0))
            for i in range(300)
        ],
    )
    with RecordSource.open(folder) as source:
        index = lmdb_of(source).index()
    return memoryview((folder / "data.mdb").read_bytes()), index


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_records_are_found_by_an_index_of_any_width(
    small: tuple[memoryview, RecordIndex], dtype: type[np.unsignedinteger[Any]]
) -> None:
    memory, index = small
    num_leaves = int((index.firsts <= np.iinfo(dtype).max).sum())
    leaves, firsts = index.leaves[:num_leaves].astype(dtype), index.firsts[:num_leaves]
    num = 300 if num_leaves == index.firsts.size else int(index.firsts[num_leaves])
    wanted = [*random.Random(3).choices(range(num), k=100), *range(num)]
    bad, rows, keys = _fill_records(
        memory, index, wanted, leaves=leaves, firsts=firsts.astype(dtype)
    )
    assert bad == -1
    assert rows.ravel().tolist() == [i % 256 for i in wanted]
    assert keys == b"".join(b"%03d" % i for i in wanted)


@pytest.mark.parametrize("record", [-1, 300, 10**6, 2**62, -(2**63)])
def test_a_record_that_is_none_is_reported_with_its_position(
    small: tuple[memoryview, RecordIndex], record: int
) -> None:
    memory, index = small
    assert _fill_records(memory, index, [5, 299, record])[0] == 2
    assert _c.raw_shape(memory, PAGE_BYTES, index.leaves, index.firsts, 299, False) == (
        1,
        1,
        1,
    )
    found = _c.raw_shape(memory, PAGE_BYTES, index.leaves, index.firsts, record, False)
    assert found is None


def test_an_index_of_other_pages_finds_records_or_none_and_never_crashes(
    small: tuple[memoryview, RecordIndex],
) -> None:
    memory, index = small
    draw = np.random.default_rng(4)
    for _ in range(500):
        leaves = draw.integers(0, draw.choice([12, 2**16, 2**63]), 9).astype(np.uint64)
        firsts = draw.integers(0, draw.choice([300, 2**63]), 9).astype(np.uint64)
        records = draw.integers(-5, 400, 40).tolist()
        bad, _, _ = _fill_records(memory, index, records, leaves=leaves, firsts=firsts)
        assert -1 <= bad < 40
    nothing = np.empty(0, np.uint8)
    assert _fill_records(memory, index, [0], leaves=nothing, firsts=nothing)[0] == 0


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"leaves": np.zeros(3, np.int64)}, "leaves must be of unsigned"),
        ({"firsts": np.zeros(3, np.float32)}, "firsts must be of unsigned"),
        ({"firsts": np.zeros(1, np.uint8)}, "differ in length"),
        ({"records": np.zeros(1, np.int32)}, "records must be int64"),
        ({"spans": np.zeros((4, 2), np.int64)}, "spans must be int64"),
        ({"page_bytes": 0}, "page_bytes must be"),
        ({"words": np.zeros((2, 3), np.uint32)}, "differ in length"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    small: tuple[memoryview, RecordIndex], changed: dict[str, Any], message: str
) -> None:
    memory, index = small
    with pytest.raises((TypeError, ValueError), match=message):
        _fill_records(memory, index, [0], **changed)


def _part(wanted: list[int]) -> tuple[Any, ...]:
    num = len(wanted)
    data = np.zeros((num, 1, 1, 1), np.float32)
    spans, words = np.zeros((4, num), np.int64), np.zeros((num, 3), np.uint32)
    return np.array(wanted, np.int64), spans, words, data, np.zeros(num, np.int32)


def test_parts_that_are_filled_together_each_have_a_result_of_their_own(
    small: tuple[memoryview, RecordIndex],
) -> None:
    memory, index = small
    where = (memory, PAGE_BYTES, index.leaves, index.firsts, Transform(train=False).recipe)
    parts = [_part([7, 3]), _part([1, 300]), _part([]), _part([255, 256, 299])]
    results = _c.fill_records(*where, parts)
    assert results == [
        (-1, [], b"007003"),
        (1, [], b""),
        (-1, [], b""),
        (-1, [], b"255256299"),
    ]
    assert parts[0][3].ravel().tolist() == [7, 3]
    assert parts[3][3].ravel().tolist() == [255, 0, 43]
    assert _c.fill_records(*where, []) == []


@pytest.mark.parametrize("part", [None, 3, (), _part([1])[:4], [*_part([1])], (*_part([1]), 6)])
def test_a_part_that_is_none_is_refused_and_those_before_it_are_let_go(
    small: tuple[memoryview, RecordIndex], part: Any
) -> None:
    memory, index = small
    where = (memory, PAGE_BYTES, index.leaves, index.firsts, Transform(train=False).recipe)
    first = _part([5])
    before = [sys.getrefcount(array) for array in first]
    with pytest.raises(TypeError):
        _c.fill_records(*where, [first, part])
    assert [sys.getrefcount(array) for array in first] == before
    assert not first[3].any()


@pytest.mark.slow
@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("indexed_at_once", [False, True])
def test_a_feed_of_a_damaged_database_raises_or_serves_other_bytes_and_never_dies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    several: bool,
    shuffle: bool,
    indexed_at_once: bool,
    is_mapped: bool,
) -> None:
    """Walked, looked up and both: LMDB's own cursor ends the process on such pages."""
    if not indexed_at_once:
        monkeypatch.setattr("prefetch._source.source._MOST_INDEXING_S", 0)
    images = np.zeros((60, 3, 20, 20), np.uint8)
    folder = write_database(
        tmp_path / "db",
        [(b"%04d" % i, encode_image(image, label=i)) for i, image in enumerate(images)],
    )
    whole = write_database(tmp_path / "whole", fingerprinted_images(5, (3, 20, 20)))
    data = folder / "data.mdb"
    intact = data.read_bytes()
    draw = random.Random(11)
    failed = 0
    for _ in range(25):
        damaged = bytearray(intact)
        for page in range(2, len(intact) // PAGE_BYTES):
            if draw.random() < 0.3:
                place = page * PAGE_BYTES + draw.choice([draw.randrange(24), draw.randrange(4096)])
                damaged[place] = draw.randrange(256)
        data.write_bytes(damaged)
        source = [whole, folder] if several else folder
        options = {"source": source, "batch_size": 8, "threads": 1, "shuffle": shuffle}
        try:
            with prefetch.open(options, on_bad_record="skip", device="cpu") as feed:
                for _ in range(2):
                    for batch in feed:
                        del batch
        except (prefetch.SourceError, prefetch.TooManyBadRecordsError):
            failed += 1
    assert failed > 5
    del is_mapped


@pytest.mark.parametrize(
    ("offset", "content"), [(10, b"\x01"), (12, b"\x10\x00"), (0, b"\xff"), (16, b"\xff\x0f")]
)
def test_a_damaged_leaf_is_an_error_of_the_batch_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offset: int, content: bytes, *, is_mapped: bool
) -> None:
    """The walk had begun well: the error comes in its turn, with the path and the page."""
    monkeypatch.setattr("prefetch._source.source._MOST_INDEXING_S", 0)
    images = fingerprinted_images(60, (3, 20, 20))
    folder = write_database(tmp_path / "db", images)
    with RecordSource.open(folder) as opened:
        index = lmdb_of(opened).index()
        pages, _ = index.places(np.array([40]))
    with (folder / "data.mdb").open("r+b") as file:
        file.seek(int(pages[0]) * PAGE_BYTES + offset)
        file.write(content)
    served: list[int] = []
    with prefetch.open({"source": folder, "batch_size": 4, "threads": 1}) as feed:
        loop = (batch.label.numpy().tolist() for batch in feed)
        with pytest.raises(prefetch.CorruptDatabaseError, match=rf"page {pages[0]} ") as caught:
            served.extend(label for labels in loop for label in labels)
    assert caught.value.path == str(folder)
    assert served == list(range(len(served)))
    assert 30 <= len(served) <= 40
    del is_mapped
