"""A feed in key order begins before the index is whole, and is served what the whole one finds."""

from __future__ import annotations

import random
import struct
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import lmdb_of

import prefetch
from prefetch._errors.classes import CorruptDatabaseError, SourceError
from prefetch._source.lmdb import growing_index
from prefetch._source.lmdb.database import LmdbDatabase
from prefetch._source.lmdb.file import DatabaseFile
from prefetch._source.lmdb.index import RecordIndex
from prefetch._source.lmdb.pages import TreePages
from prefetch._source.source import RecordSource
from prefetch._transform.options import Transform
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from prefetch._source.lmdb.growing_index import GrowingIndex

PAGE_BYTES = 4096
NUM_RECORDS = 3000  # in three levels of pages


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = fingerprinted_images(NUM_RECORDS, (1, 20, 20))
    return write_database(tmp_path_factory.mktemp("sound") / "db", records)


@pytest.fixture(autouse=True)
def _is_slow_to_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every index be taken to take long, and grow by a few leaf pages at a time."""
    monkeypatch.setattr("prefetch._source.source._MOST_INDEXING_S", -1)
    monkeypatch.setattr(growing_index, "_MOST_LEAVES_AT_A_TIME", 7)


def begin(database: LmdbDatabase) -> GrowingIndex:
    mapping = database.mapping()
    assert mapping is not None
    return mapping.begin_index()


def grow_whole(growing: GrowingIndex) -> None:
    while not growing.is_whole:
        growing.grow()


@pytest.mark.parametrize("step", [1, 7, 10**6])
@pytest.mark.parametrize("sizes", [[10], [700], [1900, 2100], [9000], [0, 5, 2000, 4064, 9000]])
def test_it_grows_to_the_whole_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: list[int], step: int
) -> None:
    monkeypatch.setattr(growing_index, "_MOST_LEAVES_AT_A_TIME", step)
    draw = random.Random(3)
    records = [(b"%06d" % i, draw.randbytes(sizes[i % len(sizes)])) for i in range(900)]
    draw.shuffle(records)  # so that leaf pages lie anywhere in the file
    path = write_database(tmp_path / "db", records)
    with closing(LmdbDatabase.open(path)) as database:
        growing, whole = begin(database), database.index()
        seen = 0
        while not growing.is_whole:
            growing.grow()
            num = growing.index.leaves.size
            assert seen < growing.index.num_records
            seen = growing.index.num_records
            assert (growing.index.leaves == whole.leaves[:num]).all()
            assert (growing.index.firsts == whole.firsts[:num]).all()
        assert seen == whole.num_records
        assert growing.index.leaves.dtype == whole.leaves.dtype
        assert growing.index.firsts.dtype == whole.firsts.dtype


def test_no_more_is_indexed_than_what_is_asked_for_and_once_whole_it_is_the_index(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> RecordIndex:
        raise AssertionError("the whole index is not built")

    monkeypatch.setattr(RecordIndex, "build", refuse)
    with closing(LmdbDatabase.open(source)) as database:
        assert database.cover(0)
        first = database.index_for(0)
        assert first.leaves.size == 7
        assert database.cover(first.num_records - 1)
        assert database.index_for(first.num_records - 1) is first
        assert database.cover(first.num_records)
        assert database.index_for(0).leaves.size == 14
        assert database.cover(NUM_RECORDS - 1)
        assert database.index().num_records == NUM_RECORDS
        assert database.scan() is None


def test_a_place_far_ahead_takes_the_whole_index(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefetch._source.lmdb.database._MOST_LEAVES_AHEAD", 20)
    with closing(LmdbDatabase.open(source)) as database:
        assert database.cover(100)
        assert database.index_for(0).num_records < NUM_RECORDS
        assert database.cover(2000)
        assert database.index_for(0).num_records == NUM_RECORDS


def test_a_record_behind_what_is_indexed_is_found_by_place_and_by_the_kernel(source: Path) -> None:
    with RecordSource.open(source) as opened:
        assert opened.walker().cover(0, 3)
        assert lmdb_of(opened).index_for(0).num_records < 2000
        records = opened.reader().locate_lazily(np.array([5, 2000]))
        assert records is not None
        rows = np.zeros((2, 1, 20, 20), np.uint8)
        labels = np.zeros(2, np.int64)
        words = np.zeros((2, 3), np.uint32)
        recipe = Transform(train=False, dtype=np.dtype(np.uint8)).recipe
        assert records.fill(words, rows, labels, recipe) == []
        assert labels.tolist() == [5, 2000]
        assert (rows[1] == 2000 % 251).all()
        records.release()
        with opened.reader().fetch(np.array([2900])) as fetched:
            assert bytes(fetched.keys[0]) == b"%08d" % 2900
        lazily = opened.reader().locate_lazily(np.array([2990]))
        assert lazily is not None
        assert lazily.first_raw_shape(is_uint8=True) == (1, 20, 20)


def served(source: Path | Sequence[Path], **options: Any) -> dict[int, tuple[bytes, bytes]]:
    """Return label, key and pixels of the records of an epoch, in their order."""
    with prefetch.open({"source": source, "batch_size": 64, "epochs": 1, **options}) as feed:
        return {
            label: (key, pixels.tobytes())
            for batch in feed
            for label, key, pixels in zip(
                batch.label.numpy().tolist(), batch.keys, batch.data.numpy(), strict=True
            )
        }


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("more", [{}, {"subset": {"start": 700, "stop": 2500}}, {"lock": True}])
def test_a_first_epoch_in_key_order_serves_the_records_of_a_shuffled_one(
    source: Path, more: dict[str, Any], threads: int
) -> None:
    in_order = served(source, threads=threads, **more)
    shuffled = served(source, threads=threads, shuffle=True, **more)
    assert list(in_order) == sorted(shuffled)
    assert in_order == shuffled
    assert len(in_order) == (1800 if "subset" in more else NUM_RECORDS)


def test_several_databases_are_served_in_turn_before_their_indices_are_whole(
    source: Path, tmp_path: Path
) -> None:
    small = write_database(tmp_path / "small", fingerprinted_images(10, (1, 20, 20)))
    with prefetch.open({"source": [small, source, small], "batch_size": 64}) as feed:
        labels = [label for batch in feed for label in batch.label.numpy().tolist()]
    assert labels == [*range(10), *range(NUM_RECORDS), *range(10)]


@pytest.mark.parametrize("last_batch", ["partial", "wrap"])
def test_a_feed_that_resumes_in_the_first_epoch_goes_on_with_the_next_record(
    source: Path, last_batch: str
) -> None:
    options = {"source": source, "batch_size": 64, "epochs": 2, "last_batch": last_batch}
    num_loops = 1 if last_batch == "wrap" else 2
    with prefetch.open(options) as feed:
        whole = [batch.keys for _ in range(num_loops) for batch in feed]
    with prefetch.open(options) as feed:
        loop = iter(feed)
        begun = [next(loop).keys for _ in range(20)]
        state = feed.state_dict()
    with prefetch.open(options) as feed:
        feed.load_state_dict(state)
        assert begun + [batch.keys for _ in range(num_loops) for batch in feed] == whole


class Damage:
    """A copy of the database, and ways to write over it."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.path = folder / "data.mdb"
        self.path.write_bytes((source / "data.mdb").read_bytes())
        with closing(DatabaseFile(self.path)) as file:
            self.meta = file.newest()
            pages = TreePages(file, self.meta)
            assert self.meta.depth == 3
            self.branches = pages.children(self.meta.root or 0).tolist()
            self.leaves = list(pages.leaves())

    def write(self, page: int, offset: int, content: bytes) -> None:
        with self.path.open("r+b") as file:
            file.seek(page * PAGE_BYTES + offset)
            file.write(content)

    def lead_to(self, branch: int, slot: int, page: int) -> None:
        content = self.path.read_bytes()
        (offset,) = struct.unpack_from("<H", content, branch * PAGE_BYTES + 16 + 2 * slot)
        self.write(branch, offset, struct.pack("<IH", page & 0xFFFF_FFFF, page >> 32))

    def grow(self) -> tuple[int, CorruptDatabaseError]:
        """Return how many records were indexed before the damage, and what is said of that."""
        with closing(LmdbDatabase.open(self.path)) as database:
            growing = begin(database)
            with pytest.raises(CorruptDatabaseError) as caught:
                grow_whole(growing)
            return growing.index.num_records, caught.value


@pytest.fixture
def damage(source: Path, tmp_path: Path) -> Damage:
    return Damage(source, tmp_path)


def test_what_lies_before_a_damaged_leaf_is_indexed(damage: Damage) -> None:
    with closing(LmdbDatabase.open(damage.path)) as database:
        before = int(database.index().firsts[40])
    damage.write(damage.leaves[40], 10, b"\x01")
    num_records, error = damage.grow()
    assert num_records == before
    assert f"page {damage.leaves[40]} is no leaf" in str(error)
    assert error.path == str(damage.path)


def test_a_leaf_that_is_reached_twice_is_refused(damage: Damage) -> None:
    assert damage.branches[0] != damage.branches[-1]
    damage.lead_to(damage.branches[0], 3, damage.leaves[2])
    _, error = damage.grow()
    assert "reaches a page twice" in str(error)


@pytest.mark.parametrize(
    ("slot", "page"), [(1, 10**6), (1, 1)], ids=["behind the end", "a meta page"]
)
def test_a_page_that_does_not_exist_is_refused(damage: Damage, slot: int, page: int) -> None:
    damage.lead_to(damage.branches[1], slot, page)
    _, error = damage.grow()
    assert "leads to a page that does not exist" in str(error)


def test_leaves_that_hold_more_or_fewer_records_than_the_head_says_are_refused(
    damage: Damage,
) -> None:
    content = damage.path.read_bytes()
    leaf = damage.leaves[10] * PAGE_BYTES
    (lower,) = struct.unpack_from("<H", content, leaf + 12)
    for changed in (lower - 2, lower + 2):
        damage.write(damage.leaves[10], 12, struct.pack("<H", changed))
        _, error = damage.grow()
        assert f"hold {NUM_RECORDS}" in str(error)
        assert "copy it again" in str(error)


@pytest.mark.slow
def test_any_damage_is_an_error_and_no_crash(damage: Damage) -> None:
    sound = damage.path.read_bytes()
    draw = random.Random(8)
    refused = 0
    for _ in range(300):
        damage.path.write_bytes(sound)
        for _ in range(draw.randint(1, 6)):
            page = draw.choice([*damage.branches, damage.meta.root, draw.choice(damage.leaves)])
            damage.write(page, 2 * draw.randrange(draw.choice([20, 2048])), draw.randbytes(2))
        try:
            with closing(LmdbDatabase.open(damage.path)) as database:
                growing = begin(database)
                grow_whole(growing)
                assert growing.index.num_records == NUM_RECORDS
        except SourceError:
            refused += 1
    assert refused > 100


def test_it_shows_how_far_it_has_grown(source: Path) -> None:
    with closing(LmdbDatabase.open(source)) as database:
        growing = begin(database)
        growing.grow()
        assert "of 3000 records so far <RecordIndex of " in repr(growing)
