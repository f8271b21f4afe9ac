"""What is read ahead are the pages of the records that were named, and nothing outside the file."""

from __future__ import annotations

import mmap
import random
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from prefetch._errors.classes import CorruptDatabaseError
from prefetch._kernels import _c
from prefetch._source.lmdb.database import LmdbDatabase
from prefetch._source.lmdb.mapped import MappedPages
from prefetch._source.lmdb.pages import TreePages
from prefetch._source.source import RecordSource
from prefetch.testing import write_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import numpy.typing as npt

PAGE_BYTES = 4096


class NotedAdvice:
    """The kernels, but that advice is noted, and not given.

    Attributes:
        runs: Of each call the runs of pages: first, and the one behind the last.
    """

    def __init__(self) -> None:
        self.runs: list[list[tuple[int, int]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(_c, name)

    def advise(
        self, memory: memoryview, begins: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
    ) -> None:
        assert (begins % PAGE_BYTES == 0).all()
        assert (sizes > 0).all()
        assert (begins >= 0).all()
        assert (begins + sizes <= len(memory)).all()
        ends = (begins + sizes) // PAGE_BYTES
        self.runs.append(list(zip((begins // PAGE_BYTES).tolist(), ends.tolist(), strict=True)))

    @property
    def pages(self) -> set[int]:
        return {page for runs in self.runs for first, end in runs for page in range(first, end)}


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> NotedAdvice:
    kernels = NotedAdvice()
    monkeypatch.setattr("prefetch._kernels.selection.native", kernels)
    return kernels


def pages_of(path: Path, places: Iterable[int]) -> Iterator[int]:
    """Yield the pages that hold records, found by the twin."""
    with closing(LmdbDatabase.open(path)) as database:
        index = database.index()
        tree = TreePages(database.snapshot.file, database.snapshot.meta)
        for page, slot in np.stack(index.places(np.array(list(places)))).T.tolist():
            yield page
            _, _, begin, size = tree.locate(page, slot)
            yield from range(begin // PAGE_BYTES, (begin + max(size, 1) - 1) // PAGE_BYTES + 1)


@pytest.mark.parametrize(
    "sizes", [[10], [700], [4080, 4081], [9000], [200_000], [0, 5, 2000, 4064, 9000]], ids=str
)
def test_the_pages_of_just_those_records_are_read_ahead(
    tmp_path: Path, noted: NotedAdvice, sizes: list[int]
) -> None:
    draw = random.Random(4)
    records = [(b"%05d" % i, draw.randbytes(sizes[i % len(sizes)])) for i in range(200)]
    path = write_database(tmp_path / "db", records)
    places = [190, 3, 4, 5, 77, 3, 199, 0]
    with RecordSource.open(path) as source:
        source.reader().advise(np.array(places))
    assert noted.pages == set(pages_of(path, places))


def test_successive_records_are_asked_for_together(tmp_path: Path, noted: NotedAdvice) -> None:
    path = write_database(tmp_path / "db", [(b"%03d" % i, bytes(9000)) for i in range(100)])
    with RecordSource.open(path) as source:
        source.reader().advise(np.arange(10, 60))
    leaves, values = noted.runs
    assert len(leaves) == 1
    assert len(values) == 1
    assert values[0][1] - values[0][0] == 50 * 3


def test_records_of_several_databases_are_asked_for_in_each(
    tmp_path: Path, noted: NotedAdvice
) -> None:
    paths = [
        write_database(tmp_path / f"db{size}", [(b"%03d" % i, bytes(size)) for i in range(20)])
        for size in (100, 5000)
    ]
    with RecordSource.open(paths) as source:
        source.reader().advise(np.array([35, 3, 21]))
    assert noted.pages == {*pages_of(paths[0], [3]), *pages_of(paths[1], [15, 1])}
    assert len(noted.runs) == 3  # leaves of both, and long values of the second


def test_an_index_that_is_not_whole_grows_for_it(tmp_path: Path, noted: NotedAdvice) -> None:
    path = write_database(tmp_path / "db", [(b"%04d" % i, bytes(1500)) for i in range(2000)])
    with RecordSource.open(path) as source:
        assert source.walker().cover(0, 9)
        source.reader().advise(np.array([1999]))
    assert noted.pages == set(pages_of(path, [1999]))


def test_where_a_file_is_not_mapped_nothing_is_asked_for(
    tmp_path: Path, noted: NotedAdvice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(MappedPages, "__init__", refuse)
    path = write_database(tmp_path / "db", [(b"%04d" % i, bytes(1500)) for i in range(20)])
    with RecordSource.open(path) as source:
        source.reader().advise(np.arange(20))
    assert noted.runs == []


def test_what_is_wrong_with_the_database_is_not_told_to_who_asks_ahead(
    tmp_path: Path, noted: NotedAdvice
) -> None:
    path = write_database(tmp_path / "db", [(b"%04d" % i, bytes(1500)) for i in range(2000)])
    with closing(LmdbDatabase.open(path)) as database:
        leaf = int(database.index().leaves[500])
    with (path / "data.mdb").open("r+b") as file:
        file.seek(leaf * PAGE_BYTES)
        file.write(b"\xff")
    with RecordSource.open(path) as source:
        source.reader().advise(np.array([1999]))
        assert noted.runs == []
        with pytest.raises(CorruptDatabaseError):
            source.reader().fetch(np.array([1999]))


def test_a_leaf_page_says_where_a_value_will_be_and_damage_leads_nowhere_else(
    tmp_path: Path,
) -> None:
    draw = random.Random(6)
    sizes = [10, 2000, 9000]
    records = [(b"%05d" % i, draw.randbytes(sizes[i % 3])) for i in range(40)]
    whole = (write_database(tmp_path / "db", records) / "data.mdb").read_bytes()
    num_pages = len(whole) // PAGE_BYTES
    spans = np.empty((4, 1), np.int64)
    begins, ahead = np.empty(1, np.int64), np.empty(1, np.int64)
    found = 0
    for attempt in range(2000):
        damaged = bytearray(whole)
        page = draw.randrange(2, num_pages)
        if attempt:
            place = page * PAGE_BYTES + draw.choice([draw.randrange(80), draw.randrange(4096)])
            damaged[place] = draw.randrange(256)
        for slot in range(-1, 4):
            where = np.array([page]), np.array([slot])
            memory = memoryview(damaged)
            _c.locate_ahead(memory, PAGE_BYTES, *where, begins, ahead)
            begin, end = int(begins[0]), int(begins[0] + ahead[0])
            assert 0 <= begin <= end <= len(damaged)
            if _c.locate(memory, PAGE_BYTES, *where, spans) == -1:
                found += 1
                value, size = spans[2:, 0].tolist()
                assert begin <= value
                assert value + size <= end
                assert value - begin in (0, 16)  # behind the header of a long value's first page
    assert found > 500


def test_advice_of_any_numbers_is_taken_and_changes_no_byte(tmp_path: Path) -> None:
    path = tmp_path / "file"
    content = random.Random(2).randbytes(600_000)
    path.write_bytes(content)
    extremes = [-(2**63), -1, 0, 1, 4095, 4096, 599_999, 600_000, 600_001, 2**62, 2**63 - 1]
    begins, sizes = (axis.ravel() for axis in np.meshgrid(extremes, extremes))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    for memory in (memoryview(mapped), memoryview(content), memoryview(content)[5:7]):
        _c.advise(memory, begins.copy(), sizes.copy())
    assert mapped[:] == content


@pytest.mark.parametrize(
    ("begins", "sizes", "message"),
    [
        (np.zeros(2, np.int32), np.zeros(2, np.int64), "begins must be int64"),
        (np.zeros(2, np.int64), np.zeros(3, np.int64), "sizes must be int64, as long"),
    ],
)
def test_other_arrays_are_refused(begins: Any, sizes: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        _c.advise(memoryview(b"ab"), begins, sizes)


def test_a_mapping_takes_advice_without_a_fake(tmp_path: Path) -> None:
    path = write_database(tmp_path / "db", [(b"%03d" % i, bytes(9000)) for i in range(100)])
    with closing(LmdbDatabase.open(path)) as database:
        mapping = database.mapping()
        assert isinstance(mapping, MappedPages)
        mapping.advise(np.arange(100)[::-1].copy())
        keys, _ = database.find(np.array([99]))
        assert bytes(keys[0]) == b"099"
