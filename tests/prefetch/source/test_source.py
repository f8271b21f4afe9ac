"""A source is one sequence of records over databases: walked or looked up, intact or an error."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import lmdb
import numpy as np
import pytest
from databases import lmdb_of

from prefetch._errors.classes import (
    ConfigError,
    CorruptDatabaseError,
    DatabaseChangedError,
    DatabaseNotFoundError,
    DatabaseTruncatedError,
    EmptyDatabaseError,
    FeedClosedError,
    SourceError,
)
from prefetch._record.wire import parse_datum
from prefetch._source.lmdb.index import RecordIndex
from prefetch._source.source import RecordSource
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

    from prefetch._source.records import Records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_database(tmp_path / "db", fingerprinted_images(10))


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Return three databases of 3, 1 and 4 records."""
    return [
        write_database(tmp_path / f"db{size}", fingerprinted_images(size)) for size in (3, 1, 4)
    ]


def labels(records: Records) -> list[int]:
    """Return the labels of records and release them."""
    found = [parse_datum(value).label for value in records.values]
    assert [int(bytes(key)) for key in records.keys] == found
    records.release()
    return found


def fetch(source: RecordSource, *numbers: int) -> list[int]:
    return labels(source.reader().fetch(np.array(numbers, np.int64)))


def test_a_walker_serves_records_in_key_order_around_and_around(folder: Path) -> None:
    with RecordSource.open(folder) as source:
        walker = source.walker()
        assert labels(walker.take(0, 4)) == [0, 1, 2, 3]
        assert labels(walker.take(4, 4)) == [4, 5, 6, 7]
        assert labels(walker.take(8, 4)) == [8, 9, 0, 1]
        assert labels(walker.take(2, 23)) == [*range(2, 10), *range(10), *range(5)]


def test_a_walker_goes_anywhere(folder: Path) -> None:
    with RecordSource.open(folder) as source:
        walker = source.walker()
        for start in (7, 3, 9, 0, 3):
            assert labels(walker.take(start, 2)) == [start, (start + 1) % 10]


def test_nothing_taken_is_no_records(folder: Path) -> None:
    with RecordSource.open(folder) as source:
        assert labels(source.walker().take(3, 0)) == []
        assert fetch(source) == []


def test_walking_from_the_start_builds_no_index(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(RecordIndex, "build")
    with RecordSource.open(folder) as source:
        walker = source.walker()
        assert labels(walker.take(0, 7)) == [0, 1, 2, 3, 4, 5, 6]
        assert labels(walker.take(7, 7)) == [7, 8, 9, 0, 1, 2, 3]


def test_a_reader_serves_any_records(folder: Path) -> None:
    with RecordSource.open(folder) as source:
        assert fetch(source, 7, 0, 9, 7) == [7, 0, 9, 7]


def test_the_index_is_built_once_for_all_readers(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[int] = []
    really_build = RecordIndex.build
    barrier = threading.Barrier(4)

    def noted(*arguments: object, **options: object) -> RecordIndex:
        built.append(threading.get_ident())
        return really_build(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(RecordIndex, "build", noted)
    with RecordSource.open(folder) as source:

        def read() -> None:
            barrier.wait(timeout=60)
            assert fetch(source, 5) == [5]

        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(built) == 1


def test_databases_are_read_in_turn(folders: list[Path]) -> None:
    with RecordSource.open(folders) as source:
        assert source.num_records == 8
        walker = source.walker()
        assert labels(walker.take(0, 8)) == [0, 1, 2, 0, 0, 1, 2, 3]
        assert labels(walker.take(2, 9)) == [2, 0, 0, 1, 2, 3, 0, 1, 2]
        assert fetch(source, 7, 3, 2, 4, 0) == [3, 0, 2, 0, 0]


def test_records_are_found_in_their_own_databases_in_whatever_order_they_are_asked_for(
    tmp_path: Path,
) -> None:
    """All triples: the first and the last may be of one database, and the middle of another."""
    records = list(fingerprinted_images(8))
    folders = [
        write_database(tmp_path / f"{start}", records[start:stop])
        for start, stop in ((0, 3), (3, 4), (4, 8))
    ]
    with RecordSource.open(folders) as source:
        source.can_do_without_walker()  # builds the indices, of which mapped records are found
        reader = source.reader()
        for numbers in itertools.product(range(8), repeat=3):
            asked = np.array(numbers, np.int64)
            mapped = reader.locate_lazily(asked)
            same = len({sum(number >= start for start in (3, 4)) for number in numbers}) == 1
            assert same == (mapped is not None)
            for found in (mapped, reader.fetch(asked)):
                if found is not None:
                    assert [parse_datum(value).label for value in found.values] == list(numbers)
                    found.release()


def test_one_database_may_be_read_several_times(folder: Path) -> None:
    with RecordSource.open([folder, folder / "data.mdb"]) as source:
        assert labels(source.walker().take(8, 4)) == [8, 9, 0, 1]
        assert fetch(source, 19, 9, 10) == [9, 9, 0]


@pytest.mark.parametrize(
    ("subset", "expected"),
    [
        ((2, 6), [2, 0, 0, 1]),
        ((None, 2), [0, 1]),
        ((5, None), [1, 2, 3]),
        ((None, None), [0, 1, 2, 0, 0, 1, 2, 3]),
        ((3, 4), [0]),
    ],
)
def test_a_subset_is_a_sequence_of_its_own(
    folders: list[Path], subset: tuple[int | None, int | None], expected: list[int]
) -> None:
    with RecordSource.open(folders, subset=subset) as source:
        num = len(expected)
        assert source.num_records == num
        walker = source.walker()
        assert labels(walker.take(0, 2 * num)) == expected * 2
        assert labels(walker.take(0, num)) == expected
        assert fetch(source, *reversed(range(num))) == expected[::-1]


@pytest.mark.parametrize(
    ("subset", "names"),
    [
        ((0, 11), ["stop"]),
        ((-1, 5), ["start"]),
        ((11, None), ["start"]),
        ((-1, 11), ["start", "stop"]),
    ],
)
def test_a_subset_that_leaves_the_records_names_its_faulty_ends(
    folder: Path, subset: tuple[int | None, int | None], names: list[str]
) -> None:
    with pytest.raises(ConfigError, match="expected a number from 0 to 10, which is how") as caught:
        RecordSource.open(folder, subset=subset)
    assert [fault.key for fault in caught.value.faults] == [f"subset.{name}" for name in names]


@pytest.mark.parametrize("subset", [(5, 5), (10, None), (7, 3)])
def test_a_subset_without_records_is_empty(folder: Path, subset: tuple[int, int | None]) -> None:
    with pytest.raises(EmptyDatabaseError, match=r"the subset .* holds no record of 10"):
        RecordSource.open(folder, subset=subset)


def test_no_database_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="names no database"):
        RecordSource.open([])


def test_a_database_that_cannot_be_opened_leaves_none_open(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DatabaseNotFoundError):
        RecordSource.open([folder, tmp_path / "missing"])
    lmdb.open(str(folder), readonly=True, lock=False).close()


def test_a_record_that_does_not_exist_is_refused(folder: Path) -> None:
    with RecordSource.open(folder, subset=(2, 5)) as source:
        for number in (-1, 3):
            with pytest.raises(IndexError, match="there are 3 records"):
                source.walker().take(number, 1)
            with pytest.raises(IndexError, match="there are 3 records"):
                fetch(source, 0, number)
            with pytest.raises(IndexError, match="there are 3 records"):
                source.describe(number)


def test_a_record_is_described_by_its_database_and_its_key_once_indexed(
    folders: list[Path],
) -> None:
    with RecordSource.open(folders, subset=(1, None)) as source:
        assert source.describe(5) == (str(folders[2]), 2, None)
        fetch(source, 6)
        assert source.describe(5) == (str(folders[2]), 2, b"00000002")
        assert source.describe(1) == (str(folders[0]), 2, None)


def test_released_records_cannot_be_read(folder: Path) -> None:
    with RecordSource.open([folder, folder]) as source:
        records = source.walker().take(9, 2)  # of two databases: a list of views
        part = records[1:2]
        assert len(records) == 2
        assert len(part) == 1
        records.release()
        records.release()
        for view in (*records.keys, *records.values, *part.keys, *part.values):
            with pytest.raises(ValueError, match="released"):
                view[0]


def test_released_records_of_a_mapping_cannot_be_read(folder: Path) -> None:
    with RecordSource.open(folder) as source:
        records = source.reader().fetch(np.array([0, 1]))
        part = records[1:2]
        kept = bytes(part.keys[0])
        records.release()
        records.release()
        for views in (records.keys, records.values):
            assert len(views) == 2
            with pytest.raises(ValueError, match="released"):
                views[0]
        assert bytes(part.keys[0]) == kept
        part.release()


def test_values_are_the_databases_own_memory_and_cannot_be_written(folder: Path) -> None:
    with RecordSource.open(folder) as source:
        records = source.walker().take(0, 1)
        assert isinstance(records.values[0], memoryview)
        assert records.values[0].readonly
        records.release()


def test_several_batches_may_be_held_at_once(folder: Path) -> None:
    with RecordSource.open(folder) as source:
        walker = source.walker()
        held = [walker.take(start, 2) for start in range(0, 10, 2)]
        assert [labels(records) for records in held] == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9]]


def test_records_kept_past_the_closing_can_still_be_read(folder: Path) -> None:
    """A mistake of the caller's, but one that must not end in a crash."""
    source = RecordSource.open(folder)
    records = source.walker().take(0, 10)
    fetched = source.reader().fetch(np.arange(10))
    source.close()
    assert labels(records) == list(range(10))
    assert labels(fetched) == list(range(10))
    lmdb.open(str(folder), readonly=True, lock=False).close()


def test_a_closed_source_is_an_error_to_its_users(folder: Path) -> None:
    source = RecordSource.open(folder)
    walker, reader = source.walker(), source.reader()
    labels(walker.take(0, 3))
    labels(reader.fetch(np.array([1])))
    source.close()
    source.close()
    with pytest.raises(FeedClosedError):
        walker.take(3, 1)
    with pytest.raises(FeedClosedError):
        reader.fetch(np.array([1]))
    with pytest.raises(FeedClosedError):
        source.check()
    for late in (source.walker(), source.reader()):
        with pytest.raises(FeedClosedError):
            late.take(0, 1) if hasattr(late, "take") else late.fetch(np.array([1]))


def test_a_source_takes_one_place_among_lmdbs_readers_however_many_read(folder: Path) -> None:
    with lmdb.open(str(folder)) as environment, RecordSource.open(environment) as source:
        users = [source.walker(), source.walker()], [source.reader(), source.reader()]
        for walker, reader in zip(*users, strict=True):
            assert labels(walker.take(4, 3)) == [4, 5, 6]
            assert labels(reader.fetch(np.array([1]))) == [1]
        assert environment.readers().count("\n") == 2  # a line each, and a heading


def test_closing_while_others_read_is_an_error_to_them_and_no_crash(folder: Path) -> None:
    source = RecordSource.open(folder)
    reading = threading.Barrier(4)
    ended: list[type[Exception]] = []

    def read() -> None:
        reader = source.reader()
        reader.fetch(np.arange(10)).release()
        reading.wait(timeout=60)
        try:
            while True:
                labels(reader.fetch(np.arange(10)))
        except FeedClosedError as error:
            ended.append(type(error))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    reading.wait(timeout=60)
    source.close()
    for thread in threads:
        thread.join(timeout=60)
    assert len(ended) == 3


def test_closing_ends_the_building_of_an_index(folder: Path) -> None:
    building, check_cancelled = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def progress(_path: str, _done: int, _total: int) -> None:
        building.set()
        assert check_cancelled.wait(timeout=60)

    write_database(folder.parent / "large", [(b"%08d" % i, bytes(100)) for i in range(5000)])
    source = RecordSource.open(folder.parent / "large", index_progress=progress)

    def read() -> None:
        try:
            source.reader().fetch(np.array([1]))
        except FeedClosedError as error:
            errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    assert building.wait(timeout=60)
    closer = threading.Thread(target=source.close)
    closer.start()
    check_cancelled.set()
    closer.join(timeout=60)
    reader.join(timeout=60)
    assert not closer.is_alive()
    assert len(errors) == 1


def test_a_source_dropped_open_closes_and_then_warns(folder: Path) -> None:
    dropped = [RecordSource.open(folder)]
    labels(dropped[0].walker().take(0, 3))
    with pytest.warns(ResourceWarning, match=r"<RecordSource of 10 records, in .*db> was never"):
        dropped.clear()
    lmdb.open(str(folder), readonly=True, lock=False).close()


def test_the_representation_shows_the_state(folder: Path) -> None:
    source = RecordSource.open(folder)
    assert repr(source) == f"<RecordSource of 10 records, in {folder}>"
    source.close()
    assert repr(source) == f"<RecordSource of 10 records, closed, in {folder}>"


def test_two_sources_of_one_database_are_independent(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    first = RecordSource.open(folder)
    second = RecordSource.open(tmp_path / "link")
    third = RecordSource.open(folder / "data.mdb")
    assert fetch(first, 3) == fetch(second, 3) == [3]
    first.close()
    assert labels(second.walker().take(0, 10)) == list(range(10))
    second.close()
    assert fetch(third, 4) == [4]
    third.close()


def test_the_programs_own_environment_is_a_source(folder: Path) -> None:
    with lmdb.open(str(folder)) as environment:
        with RecordSource.open([environment, folder]) as source:
            assert fetch(source, 3, 13) == [3, 3]
            assert source.describe(13)[0] == str(folder)
        assert environment.stat()["entries"] == 10


def rewrite(environment: lmdb.Environment, times: int) -> None:
    """Write every record anew, with another label."""
    for number in range(times):
        with environment.begin(write=True) as transaction:
            for key, _ in fingerprinted_images(10):
                transaction.put(key, b"\x28\x64" + bytes([0x40, number]))


def test_what_is_read_beside_a_writer_is_the_snapshot_or_an_error(folder: Path) -> None:
    """Unlocked, pages are used again two commits later: check() must say so by then."""
    with lmdb.open(str(folder), lock=False, map_size=2**24) as environment:
        with RecordSource.open(environment) as source:
            early = source.reader()
            assert labels(early.fetch(np.arange(10))) == list(range(10))
            rewrite(environment, 1)
            for user in (early, source.reader()):
                assert labels(user.fetch(np.arange(10))) == list(range(10))
            assert labels(source.walker().take(0, 10)) == list(range(10))
            source.check()
            rewrite(environment, 1)
            with pytest.raises(DatabaseChangedError):
                source.check()
        with RecordSource.open(environment) as source:
            records = source.walker().take(0, 10)
            assert [parse_datum(value).label for value in records.values] == [100] * 10
            records.release()


def test_damage_that_a_writer_made_is_called_a_change(folder: Path) -> None:
    with lmdb.open(str(folder), lock=False, map_size=2**24) as environment:
        source = RecordSource.open(environment)
        reader = source.reader()

        def read() -> None:
            reader.fetch(np.array([1])).release()
            source.check()

        read()
        rewrite(environment, 2)
        with environment.begin(write=True) as transaction:
            transaction.drop(environment.open_db(None, txn=transaction), delete=False)
        rewrite(environment, 3)
        with pytest.raises(DatabaseChangedError):
            read()
        source.close()


def test_truncation_is_noticed_by_the_check(folder: Path) -> None:
    with RecordSource.open(folder) as source:
        source.check()
        size = (folder / "data.mdb").stat().st_size
        os.truncate(folder / "data.mdb", size - 1)
        with pytest.raises(DatabaseTruncatedError):
            source.check()
        os.truncate(folder / "data.mdb", size)


def test_a_damaged_tree_is_an_error_of_the_source(folder: Path) -> None:
    content = bytearray((folder / "data.mdb").read_bytes())
    content[4096 + 120] = 11  # one record more than there are
    (folder / "data.mdb").write_bytes(content)
    with RecordSource.open(folder) as source:
        with pytest.raises(CorruptDatabaseError, match="10 records, and its head says 11"):
            source.walker().take(0, 11)
        with pytest.raises(CorruptDatabaseError, match="its leaves hold 10 records"):
            fetch(source, 1)


@pytest.mark.parametrize(
    "kind", ["missing", "empty folder", "empty database", "truncated", "text", "LevelDB"]
)
def test_what_is_no_database_is_refused_by_its_absolute_path_and_nothing_is_created(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "db"
    if kind == "empty folder":
        path.mkdir()
    elif kind in ("empty database", "truncated"):
        write_database(path, fingerprinted_images(10 if kind == "truncated" else 0))
        if kind == "truncated":
            os.truncate(path / "data.mdb", 8192)
    elif kind == "text":
        path.write_text("source: db\n")
    elif kind == "LevelDB":
        path.mkdir()
        (path / "CURRENT").touch()
        (path / "MANIFEST-000001").touch()
    before = sorted(tmp_path.rglob("*"))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SourceError) as caught:
        RecordSource.open("db")
    assert str(caught.value).startswith(f"{path}: ")
    assert caught.value.path == str(path)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_unclosed_source_does_not_hold_up_the_interpreters_exit(folder: Path) -> None:
    program = """
import sys
from prefetch._source.source import RecordSource
source = RecordSource.open(sys.argv[1])
records = source.walker().take(0, 3)
"""
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=60)


def test_pages_that_a_writer_has_used_again_are_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_database(tmp_path / "db", fingerprinted_images(20))
    with RecordSource.open(folder) as source:
        snapshot = lmdb_of(source).snapshot

        def check() -> None:
            raise DatabaseChangedError(snapshot.path, snapshot_txn=1, last_txn=4)

        def build(*_: object, **__: object) -> None:
            raise CorruptDatabaseError(snapshot.path, "its leaves hold other numbers")

        monkeypatch.setattr(RecordIndex, "build", build)
        with pytest.raises(CorruptDatabaseError):
            lmdb_of(source).index()
        monkeypatch.setattr(snapshot, "check", check)
        with pytest.raises(DatabaseChangedError):
            lmdb_of(source).index()
