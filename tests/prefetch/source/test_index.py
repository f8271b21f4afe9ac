"""The packed index knows every record's key, is small, and believes nothing of a damaged file."""

from __future__ import annotations

import errno
import os
import struct
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
import pytest
from databases import lmdb_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from prefetch._errors.classes import (
    CorruptDatabaseError,
    DatabaseTruncatedError,
    OutOfMemoryError,
    SourceError,
)
from prefetch._source.lmdb import pages as page_tree
from prefetch._source.lmdb.file import DatabaseFile
from prefetch._source.lmdb.index import RecordIndex
from prefetch._source.lmdb.pages import TreePages
from prefetch._source.source import RecordSource
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import FrameType

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def build(path: Path) -> tuple[DatabaseFile, RecordIndex]:
    file = DatabaseFile(path)
    try:
        return file, RecordIndex.build(file, file.newest())
    except BaseException:
        file.close()
        raise


def keys_of(path: Path) -> list[bytes]:
    """Return the keys as LMDB gives them."""
    with (
        lmdb.open(str(path), readonly=True, lock=False) as environment,
        environment.begin() as transaction,
    ):
        return [bytes(key) for key in transaction.cursor().iternext(values=False)]


def assert_indexed(path: Path) -> RecordIndex:
    expected = keys_of(path)
    file, index = build(path)
    assert index.num_records == len(expected)
    assert index.keys(np.arange(len(expected))) == expected
    file.close()
    return index


def small(numbers: Iterable[int]) -> list[tuple[bytes, bytes]]:
    return [(b"%08d" % number, b"value %d" % number) for number in numbers]


@pytest.mark.parametrize("num_records", [1, 2, 100, 5000])
def test_every_records_key_is_found(tmp_path: Path, num_records: int) -> None:
    assert_indexed(write_database(tmp_path / "db", small(range(num_records))))


@pytest.mark.parametrize("num_bytes", [1, 1900, 2100, 5000])
def test_values_of_any_size_are_passed_over(tmp_path: Path, num_bytes: int) -> None:
    records = [(b"%08d" % number, bytes(num_bytes)) for number in range(300)]
    assert_indexed(write_database(tmp_path / "db", records))


def test_keys_of_any_length_and_order_of_writing_are_found(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    records = [(rng.bytes(int(rng.integers(1, 511))), rng.bytes(50)) for _ in range(2000)]
    assert_indexed(write_database(tmp_path / "db", records))


def test_a_tree_with_pages_given_back_is_found(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "db", small(range(5000)))
    with (
        lmdb.open(str(folder), map_size=2**24) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number in range(5000):
            if number % 7:
                transaction.delete(b"%08d" % number)
    assert assert_indexed(folder).num_records == 715


def test_an_empty_tree_has_no_records(tmp_path: Path) -> None:
    file, index = build(write_database(tmp_path / "db", []))
    assert index.num_records == 0
    assert index.keys(np.empty(0, np.int64)) == []
    file.close()


def test_the_index_is_the_same_whatever_the_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_database(tmp_path / "db", small(range(5000)))
    monkeypatch.setattr(page_tree, "_WINDOW_BYTES", PAGE_BYTES)
    assert_indexed(folder)


@pytest.mark.parametrize("sparse", [-1, 10**9])
def test_the_index_is_the_same_whether_leaf_pages_are_asked_for_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sparse: int
) -> None:
    monkeypatch.setattr(page_tree, "_SPARSE", sparse)
    records = [(b"%04d" % i, bytes(9000 if i % 3 else 10)) for i in range(1000)]
    assert_indexed(write_database(tmp_path / "db", records))


def test_a_record_takes_eight_bytes_at_the_most(tmp_path: Path) -> None:
    """The worst case is one record a leaf: values of nearly half a page, every other one gone."""
    records = [(b"%08d" % number, bytes(2000)) for number in range(400)]
    folder = write_database(tmp_path / "db", records)
    with (
        lmdb.open(str(folder), map_size=2**24) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number in range(0, 400, 2):
            transaction.delete(b"%08d" % number)
        stat = transaction.stat()
    index = assert_indexed(folder)
    assert stat["leaf_pages"] > 0.5 * index.num_records
    assert index.nbytes <= 8 * index.num_records


def test_no_value_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages that hold values alone are neither read nor mapped as leaves."""
    records = [(b"%08d" % number, bytes(100_000)) for number in range(50)]
    folder = write_database(tmp_path / "db", records)
    read = []
    really_read = DatabaseFile.read

    def noted(file: DatabaseFile, num_bytes: int, offset: int) -> bytes:
        read.append(num_bytes)
        return really_read(file, num_bytes, offset)

    monkeypatch.setattr(DatabaseFile, "read", noted)
    file, _ = build(folder)
    assert sum(read) <= (file.newest().branch_pages + 3) * PAGE_BYTES
    file.close()


def test_a_record_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    file, index = build(write_database(tmp_path / "db", small(range(10))))
    for record in (-1, 10):
        with pytest.raises(IndexError, match="there are 10 records"):
            index.key(record)
    file.close()


def test_progress_grows_to_all_of_the_pages(tmp_path: Path) -> None:
    file = DatabaseFile(write_database(tmp_path / "db", small(range(20000))))
    reported: list[tuple[int, int]] = []
    meta = file.newest()
    RecordIndex.build(file, meta, progress=lambda done, total: reported.append((done, total)))
    done = [entry[0] for entry in reported]
    assert done == sorted(done)
    assert reported[-1] == (meta.branch_pages + meta.leaf_pages,) * 2
    file.close()


def test_what_the_progress_raises_ends_the_walk(tmp_path: Path) -> None:
    def stop(_done: int, _total: int) -> None:
        raise KeyboardInterrupt

    file = DatabaseFile(write_database(tmp_path / "db", small(range(2000))))
    with pytest.raises(KeyboardInterrupt):
        RecordIndex.build(file, file.newest(), progress=stop)
    file.close()


def test_the_index_shows_its_size(tmp_path: Path) -> None:
    file, index = build(write_database(tmp_path / "db", small(range(10))))
    assert repr(index) == f"<RecordIndex of 10 records in 1 leaf pages, {index.nbytes} bytes>"
    file.close()


class Damage:
    """A database of three levels, and ways to write over it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        file = DatabaseFile(path)
        self.meta = file.newest()
        pages = page_tree.TreePages(file, self.meta)
        self.root = self.meta.root or 0
        self.branch = int(pages.children(self.root)[1])
        self.leaf = int(pages.children(self.branch)[1])
        file.close()

    def write(self, page: int, offset: int, content: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(page * PAGE_BYTES + offset)
            file.write(content)

    def write_meta(self, offset: int, content: bytes) -> None:
        self.write(self.meta.txn_id & 1, offset, content)

    def lead_to(self, branch: int, slot: int, page: int) -> None:
        """Let a node of a branch lead to another page."""
        content = self.path.read_bytes()
        (offset,) = struct.unpack_from("<H", content, branch * PAGE_BYTES + 16 + 2 * slot)
        self.write(branch, offset, struct.pack("<IH", page & 0xFFFF_FFFF, page >> 32))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Return the file of a database of 4000 records in three levels."""
    folder = tmp_path_factory.mktemp("sound") / "db"
    records = fingerprinted_images(4000, (1, 16, 16))
    return (write_database(folder, records) / "data.mdb").read_bytes()


@pytest.fixture
def damage(tmp_path: Path, sound: bytes) -> Damage:
    path = tmp_path / "data.mdb"
    path.write_bytes(sound)
    damage = Damage(path)
    assert damage.meta.depth == 3
    return damage


def refusal(damage: Damage) -> CorruptDatabaseError:
    with pytest.raises(CorruptDatabaseError) as caught:
        build(damage.path)
    assert caught.value.path == str(damage.path)
    return caught.value


def test_a_page_that_leads_to_itself_ends_the_walk(damage: Damage) -> None:
    damage.lead_to(damage.branch, 0, damage.branch)
    assert "reaches a page twice" in str(refusal(damage)) or "is no leaf" in str(refusal(damage))


def test_a_tree_that_goes_round_ends_the_walk(damage: Damage) -> None:
    for slot in range(2):
        damage.lead_to(damage.root, slot, damage.root)
    damage.write_meta(94, struct.pack("<H", 32))
    assert "reaches a page twice" in str(refusal(damage))


def test_a_leaf_that_is_reached_twice_is_refused(damage: Damage) -> None:
    damage.lead_to(damage.branch, 0, damage.leaf)
    assert "reaches a page twice" in str(refusal(damage))


@pytest.mark.parametrize("page", [0, 1, 2**20, 2**47])
def test_a_page_that_does_not_exist_is_refused(damage: Damage, page: int) -> None:
    damage.lead_to(damage.branch, 0, page)
    assert "leads to a page that does not exist" in str(refusal(damage))


def test_a_root_that_does_not_exist_is_refused(damage: Damage) -> None:
    damage.write_meta(128, struct.pack("<Q", damage.meta.last_page + 1))
    assert "leaves the file" in str(refusal(damage))


def test_a_count_of_records_that_lies_is_refused(damage: Damage) -> None:
    damage.write_meta(120, struct.pack("<Q", 4001))
    assert "its leaves hold 4000 records, and its head says 4001" in str(refusal(damage))


def test_a_count_of_leaves_that_lies_is_refused(damage: Damage) -> None:
    damage.write_meta(104, struct.pack("<Q", damage.meta.leaf_pages + 1))
    assert "its head says" in str(refusal(damage))


@pytest.mark.parametrize("depth", [0, 1, 2, 4])
def test_a_depth_that_lies_is_refused(damage: Damage, depth: int) -> None:
    damage.write_meta(94, struct.pack("<H", depth))
    refusal(damage)


@pytest.mark.parametrize(
    ("offset", "content", "reason"),
    [
        pytest.param(0, struct.pack("<Q", 5), "has the number of page 5", id="number"),
        pytest.param(10, struct.pack("<H", 4), "is no branch", id="kind"),
        pytest.param(12, struct.pack("<H", 16), "says its free space is", id="no nodes"),
        pytest.param(12, struct.pack("<H", 21), "says its free space is", id="odd"),
        pytest.param(12, struct.pack("<H", 60000), "says its free space is", id="past the end"),
        pytest.param(14, struct.pack("<H", 60000), "says its free space is", id="upper"),
        pytest.param(16, struct.pack("<H", 4092), "outside of the page", id="node past the end"),
        pytest.param(16, struct.pack("<H", 8), "outside of the page", id="node in the head"),
        pytest.param(16, struct.pack("<H", 4001), "outside of the page", id="odd node"),
    ],
)
def test_a_damaged_branch_is_refused(
    damage: Damage, offset: int, content: bytes, reason: str
) -> None:
    damage.write(damage.branch, offset, content)
    assert f"page {damage.branch} " in str(refusal(damage))
    assert reason in str(refusal(damage))


@pytest.mark.parametrize(
    ("offset", "content"),
    [
        pytest.param(0, struct.pack("<Q", 5), id="number"),
        pytest.param(10, struct.pack("<H", 1), id="kind"),
        pytest.param(10, struct.pack("<H", 0x22), id="several values a key"),
        pytest.param(12, struct.pack("<H", 16), id="no records"),
        pytest.param(12, struct.pack("<H", 21), id="odd"),
        pytest.param(12, struct.pack("<H", 60000), id="past the end"),
        pytest.param(14, struct.pack("<H", 60000), id="upper"),
    ],
)
def test_a_damaged_leaf_is_refused(damage: Damage, offset: int, content: bytes) -> None:
    damage.write(damage.leaf, offset, content)
    assert f"page {damage.leaf} is no leaf of the tree" in str(refusal(damage))


@pytest.mark.parametrize(
    ("offset", "content", "reason"),
    [
        pytest.param(10, struct.pack("<H", 1), "is no leaf", id="kind"),
        pytest.param(12, struct.pack("<H", 18), "has no record", id="fewer records"),
        pytest.param(18, struct.pack("<H", 4092), "outside of the page", id="record"),
        pytest.param(18, struct.pack("<H", 4088), "ends outside of the page", id="key"),
    ],
)
def test_a_leaf_damaged_after_the_index_was_built_is_refused(
    damage: Damage, offset: int, content: bytes, reason: str
) -> None:
    file, index = build(damage.path)
    damage.write(damage.leaf, PAGE_BYTES - 2, b"\xff\xff")
    damage.write(damage.leaf, offset, content)
    with pytest.raises(CorruptDatabaseError, match=reason):
        index.keys(np.arange(4000))
    file.close()


def test_a_file_that_is_cut_meanwhile_is_truncated(damage: Damage) -> None:
    file = DatabaseFile(damage.path)
    meta = file.newest()
    os.truncate(damage.path, meta.size_bytes // 2)
    with pytest.raises(DatabaseTruncatedError):
        RecordIndex.build(file, meta)
    file.close()


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=2000)
@given(
    mutations=st.lists(
        st.tuples(st.integers(0, 2**20), st.integers(0, 2047), st.integers(0, 2**16 - 1)),
        min_size=1,
        max_size=8,
    )
)
def test_any_damage_is_an_error_and_no_crash(
    damage: Damage, sound: bytes, mutations: list[tuple[int, int, int]]
) -> None:
    damage.path.write_bytes(sound)
    for page, word, value in mutations:
        # Most of the heads and slots, where the walk could be led astray, are in the first bytes.
        offset = word // 8 * 2
        damage.write(page % (damage.meta.last_page + 1), offset, struct.pack("<H", value))
    with suppress(SourceError):
        file = DatabaseFile(damage.path)
        with closing(file):
            index = RecordIndex.build(file, file.newest())
            index.keys(np.arange(index.num_records))


@pytest.mark.parametrize("number", [errno.ENOMEM, errno.EMFILE])
def test_pages_that_cannot_be_mapped_are_an_error_of_the_source_with_a_cure(
    tmp_path: Path, number: int
) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(20))

    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with RecordSource.open(source) as opened, pytest.MonkeyPatch.context() as patch:
        patch.setattr("mmap.mmap", refuse)
        with pytest.raises(SourceError, match=r"cannot be mapped.*ulimit -v.*ulimit -n") as caught:
            lmdb_of(opened).index()
        assert caught.value.path == str(source)


def test_ctrl_c_anywhere_among_the_leaves_comes_out_as_itself(tmp_path: Path) -> None:
    """A mapping that is closed by name while there are views of it raises BufferError instead."""
    source = write_database(tmp_path / "db", fingerprinted_images(200))
    reading = [TreePages.record_counts.__code__, TreePages.record_counts_in.__code__]

    def interrupt_at(step: int) -> Any:
        left = step

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            if frame.f_code not in reading:
                return None
            left -= event == "line"
            if not left:
                left = -1
                raise KeyboardInterrupt
            return trace

        return trace

    num_interrupted = 0
    with closing(DatabaseFile(source)) as file:
        for step in range(1, 100):
            sys.settrace(interrupt_at(step))
            try:
                RecordIndex.build(file, file.newest())
                break
            except KeyboardInterrupt:
                num_interrupted += 1
            finally:
                sys.settrace(None)
    assert 10 < num_interrupted < 99  # each line, and then none is left


def test_an_index_that_finds_no_memory_says_of_which_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(20))

    def refuse(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(TreePages, "record_counts", refuse)
    with (
        RecordSource.open(source) as opened,
        pytest.raises(OutOfMemoryError, match=r"stage index: .*no memory left; .*ulimit") as caught,
    ):
        opened.reader().fetch(np.array([3]))
    assert (caught.value.database, caught.value.batch) == (str(source), None)
    assert type(caught.value.__cause__) is MemoryError
