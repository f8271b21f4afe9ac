"""What LMDB writes is found sound; what would end the process is refused before it is opened."""

from __future__ import annotations

import random
import struct
from contextlib import closing
from typing import TYPE_CHECKING

import lmdb
import pytest
from databases import records_of, write_short

from prefetch._errors.classes import (
    CorruptDatabaseError,
    DatabaseTruncatedError,
    EmptyDatabaseError,
    SourceError,
)
from prefetch._source.lmdb.before_writing import check_sound, find_irregular
from prefetch._source.lmdb.file import DatabaseFile
from prefetch._source.lmdb.pages import TreePages
from prefetch._source.source import RecordSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from prefetch._source.lmdb.meta import Meta

PAGE_BYTES = 4096


def _check(folder: Path) -> None:
    with closing(DatabaseFile(folder)) as file:
        check_sound(file)


def _write_some(environment: lmdb.Environment, draw: random.Random, sizes: list[int]) -> None:
    """Put and delete records in one transaction, such that pages become free and are used again."""
    with environment.begin(write=True) as transaction:
        new = [b"%08d" % draw.randrange(300) for _ in range(draw.choice([1, 20, 100]))]
        for key in new:
            transaction.put(key, draw.randbytes(draw.choice(sizes)))
        for key in draw.sample(new, draw.randint(0, len(new))):
            transaction.delete(key)


@pytest.mark.parametrize("seed", range(12))
def test_what_lmdb_reads_is_read_alike_and_sound_and_what_is_cut_is_refused(
    tmp_path: Path, seed: int
) -> None:
    """Databases of several transactions, with long values and pages that are free again."""
    draw = random.Random(seed)
    sizes = draw.choice([[1, 2, 3], [393, 784, 1568], [1900, 2100, 5000], [10, 300, 9000, 70000]])
    folder = tmp_path / "db"
    for _ in range(8):
        with lmdb.open(str(folder), map_size=2**28, sync=False, lock=False) as environment:
            _write_some(environment, draw, sizes)
        _check(folder)
        expected = list(records_of(folder).items())
        assert _read(folder) == expected
        data = folder / "data.mdb"
        content = data.read_bytes()
        for cut in draw.sample(range(len(content)), 4):
            data.write_bytes(content[: cut // PAGE_BYTES * PAGE_BYTES])
            assert _read(folder) in (expected, None)
        data.write_bytes(content)


def _read(folder: Path) -> list[tuple[bytes, bytes]] | None:
    """Return all records as the feed reads them; None where the file is refused."""
    try:
        with RecordSource.open(folder) as source:
            found = source.walker().take(0, source._databases[0].num_records)
            return list(zip(map(bytes, found.keys), map(bytes, found.values), strict=True))
    except EmptyDatabaseError:
        return []
    except SourceError:
        return None


@pytest.mark.parametrize("num_kept", [0, 3])
def test_a_file_that_ends_before_its_last_page_is_sound(tmp_path: Path, num_kept: int) -> None:
    _check(write_short(tmp_path / "db", num_kept=num_kept))


class Damage:
    """A database with free pages and long values, some bytes of which are written over."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        draw = random.Random(3)
        with lmdb.open(str(folder), map_size=2**26, sync=False, lock=False) as environment:
            for _ in range(5):
                _write_some(environment, draw, [300, 9000])
        with closing(DatabaseFile(folder)) as file:
            self.meta: Meta = file.newest()
            pages = TreePages(file, self.meta)
            self.leaves = list(pages.leaves())
            self.long = next(value for leaf in self.leaves for value in pages.long_values(leaf))[0]
            self.content = bytearray((folder / "data.mdb").read_bytes())
            free = TreePages(file, self.meta.free)
            (self.free_leaf,) = free.leaves()
            _, _, self.free_list, _ = free.locate(self.free_leaf, 0)

    def put(self, place: int, form: str, *numbers: int) -> None:
        struct.pack_into(f"<{form}", self.content, place, *numbers)

    def node(self, page: int, slot: int) -> int:
        (offset,) = struct.unpack_from("<H", self.content, page * PAGE_BYTES + 16 + 2 * slot)
        return page * PAGE_BYTES + int(offset)

    @property
    def head(self) -> int:
        return self.meta.txn_id % 2 * PAGE_BYTES

    def refusal(self) -> str:
        (self.folder / "data.mdb").write_bytes(self.content)
        with pytest.raises(CorruptDatabaseError) as caught:
            _check(self.folder)
        return str(caught.value)


@pytest.fixture
def damage(tmp_path: Path) -> Damage:
    return Damage(tmp_path / "db")


def _first_record(it: Damage) -> int:
    return it.node(it.leaves[0], 0)


_HEAD = "its head is none that LMDB writes"

# What is written over, with what, and why that is refused.
_DAMAGES: dict[str, tuple[Callable[[Damage], int], str, Callable[[Damage], list[int]], str]] = {
    "page-being-written": (
        lambda it: it.leaves[0] * PAGE_BYTES + 10, "H", lambda _: [0x12], "has the flags 0x12",
    ),
    "overlap": (_first_record, "I", lambda _: [301], "records that overlap"),
    "key-too-long": (lambda it: _first_record(it) + 6, "H", lambda _: [600], "that overlap"),
    "keys-out-of-order": (
        lambda it: it.node(it.leaves[1], 0) + 8, "B", lambda _: [0], "keys that are not in order",
    ),
    "value-of-another-kind": (
        lambda it: _first_record(it) + 4, "H", lambda _: [0x04], "holds other than records",
    ),
    "free-page-in-use": (
        lambda it: it.free_list, "QQ", lambda it: [1, it.leaves[0]], "is used twice",
    ),
    "free-page-of-a-value": (
        lambda it: it.free_list, "QQ", lambda it: [1, it.long], "is used twice",
    ),
    "free-page-of-none": (
        lambda it: it.free_list, "QQ", lambda it: [1, it.meta.last_page + 1], "pages that are none",
    ),
    "free-pages-unsorted": (
        lambda it: it.free_list, "QQQ", lambda _: [2, 2, 3], "free pages that are none",
    ),
    "free-list-cut": (
        lambda it: it.free_list, "Q", lambda _: [2**40], "a list of free pages that is cut",
    ),
    "free-key-of-no-number": (
        lambda it: it.node(it.free_leaf, 0) + 6, "H", lambda _: [7], "not in order",
    ),
    "page-twice": (
        lambda it: it.node(it.meta.root or 0, 0), "H", lambda it: [it.leaves[1]], "is used twice",
    ),
    "no-levels": (lambda it: it.head + 94, "H", lambda _: [0], "a tree of no levels"),
    "count": (
        lambda it: it.head + 120, "Q", lambda it: [it.meta.entries - 1], "hold other than",
    ),
    "flags": (lambda it: it.head + 92, "H", lambda _: [0x08], _HEAD),
    "free-tree-with-several-values": (lambda it: it.head + 44, "H", lambda _: [0x0C], _HEAD),
    "last-transaction": (
        lambda it: it.head + 144, "Q", lambda it: [2**64 - 2 + it.meta.txn_id % 2], _HEAD,
    ),
    "wrong-meta-page": (lambda it: it.head + 144, "Q", lambda it: [it.meta.txn_id + 1], _HEAD),
}  # fmt: skip


@pytest.mark.parametrize("name", _DAMAGES)
def test_what_lmdb_builds_on_is_looked_at(damage: Damage, name: str) -> None:
    place, form, numbers, reason = _DAMAGES[name]
    damage.put(place(damage), form, *numbers(damage))
    assert reason in damage.refusal()


def test_a_tree_of_free_pages_that_is_cut_off_is_truncation(damage: Damage) -> None:
    places = [*damage.leaves, damage.long, damage.meta.root or 0]
    assert damage.free_leaf <= damage.meta.last_page
    end = max(damage.free_leaf, *places)
    (damage.folder / "data.mdb").write_bytes(damage.content[: end * PAGE_BYTES])
    with pytest.raises(DatabaseTruncatedError):
        _check(damage.folder)


def test_only_regular_files_are_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    (tmp_path / "dangling").symlink_to("nothing")
    (tmp_path / "folder").mkdir()
    paths = {name: tmp_path / name for name in ("none", "file", "link", "dangling", "folder")}
    assert find_irregular([paths["none"], paths["file"]]) is None
    for name in ("link", "dangling", "folder"):
        assert find_irregular([paths["file"], paths[name]]) == paths[name]
