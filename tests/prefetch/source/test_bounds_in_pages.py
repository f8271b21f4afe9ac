"""No number in a page is believed beyond its bound, and none is refused before: C and Python alike.

Pages are made by hand, so that each holds one wrong number and nothing else that is wrong.
"""

from __future__ import annotations

import dataclasses
import struct
from contextlib import nullcontext
from typing import TYPE_CHECKING, TypeAlias, cast

import numpy as np
import pytest

from prefetch._errors.classes import CorruptDatabaseError
from prefetch._kernels import _c
from prefetch._source.lmdb.file import DatabaseFile
from prefetch._source.lmdb.pages import TreePages
from prefetch._source.lmdb.scan import LeafScan
from prefetch.testing import write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from prefetch._source.lmdb.meta import Meta

_PAGE_BYTES = 4096
_LEAF, _OVERFLOW, _LONG_VALUE = 2, 4, 1
_NUMBER = 2  # of the leaf
_LAST = 4  # of the file; a long value begins at 3

Place: TypeAlias = tuple[int, int, int, int]
Locate: TypeAlias = "Callable[..., Place | None]"


def _leaf(
    node: int, key_bytes: int, value_bytes: int, flags: int = 0, *, number: int = _NUMBER
) -> bytes:
    """Return a leaf page with one node; of a long value, the key is followed by its page, 3."""
    page = bytearray(_PAGE_BYTES)
    struct.pack_into("<Q2xHHHH", page, 0, number, _LEAF, 18, node, node)
    struct.pack_into("<IHH", page, node, value_bytes, flags, key_bytes)
    after = node + 8 + key_bytes
    if flags and after + 8 <= _PAGE_BYTES:
        struct.pack_into("<Q", page, after, 3)
    return bytes(page)


def _long(num_pages: int, *, number: int = 3) -> bytes:
    return struct.pack("<Q2xHI", number, _OVERFLOW, num_pages).ljust(_PAGE_BYTES, b"v")


class Memory:
    """A database file of which only the bytes are there."""

    path = "memory"

    def __init__(self, content: bytes) -> None:
        self._content = content

    def read(self, num_bytes: int, offset: int) -> bytes:
        return self._content[offset : offset + num_bytes]

    def check_size(self, meta: Meta) -> None:
        assert len(self._content) == (meta.last_page + 1) * meta.page_bytes


@pytest.fixture
def meta(tmp_path: Path) -> Meta:
    folder = write_database(tmp_path / "db", [(b"key", b"value")])
    file = DatabaseFile(folder)
    newest = file.newest()
    file.close()
    return dataclasses.replace(newest, page_bytes=_PAGE_BYTES, last_page=_LAST, root=_NUMBER)


@pytest.fixture(params=["C", "Python"])
def locate(request: pytest.FixtureRequest, meta: Meta) -> Locate:
    """Return what finds the record of a leaf: offset and size of its key and of its value."""

    def in_c(content: bytes) -> Place | None:
        spans = np.empty((4, 1), np.int64)
        pages, slots = np.array([_NUMBER]), np.array([0])
        failed = _c.locate(memoryview(content), _PAGE_BYTES, pages, slots, spans)
        return None if failed == 0 else tuple(spans[:, 0].tolist())

    def in_python(content: bytes) -> Place | None:
        pages = TreePages(cast("DatabaseFile", Memory(content)), meta)
        try:
            return pages.locate(_NUMBER, 0)
        except CorruptDatabaseError:
            return None

    found = in_c if request.param == "C" else in_python
    return lambda *pages: found(bytes(2 * _PAGE_BYTES) + b"".join(pages))


_BASE = _NUMBER * _PAGE_BYTES
_BLANK = bytes(_PAGE_BYTES)


def test_a_key_may_reach_to_the_end_of_its_page_and_no_further(locate: Locate) -> None:
    node = _PAGE_BYTES - 8 - 10
    for key_bytes in (0, 9, 10):
        begin = _BASE + node + 8
        found = locate(_leaf(node, key_bytes, 0), _BLANK, _BLANK)
        assert (begin, key_bytes, begin + key_bytes, 0) == found
    for key_bytes in (11, 12, 500, 65535):
        assert locate(_leaf(node, key_bytes, 0), _BLANK, _BLANK) is None
        assert locate(_leaf(node, key_bytes, 1), _BLANK, _BLANK) is None


def test_a_key_alone_ends_in_its_page_too(meta: Meta) -> None:
    node = _PAGE_BYTES - 8 - 10
    for key_bytes, is_sound in ((10, True), (11, False), (65535, False)):
        content = bytes(_BASE) + _leaf(node, key_bytes, 0)
        pages = TreePages(cast("DatabaseFile", Memory(content)), meta)
        with nullcontext() if is_sound else pytest.raises(CorruptDatabaseError, match="a key"):
            assert bytes(key_bytes) == pages.key(_NUMBER, 0)


def test_a_value_may_reach_to_the_end_of_its_page_and_no_further(locate: Locate) -> None:
    node = _PAGE_BYTES - 8 - 10
    begin = _BASE + node + 8
    assert (begin, 4, begin + 4, 6) == locate(_leaf(node, 4, 6), _BLANK, _BLANK)
    for value_bytes in (7, 5000, 2**32 - 1):
        assert locate(_leaf(node, 4, value_bytes), _BLANK, _BLANK) is None


def test_the_number_of_a_long_value_s_page_lies_behind_the_key_in_the_page(locate: Locate) -> None:
    node = _PAGE_BYTES - 8 - 10
    begin = _BASE + node + 8
    value = 3 * _PAGE_BYTES + 16
    found = locate(_leaf(node, 2, 50, _LONG_VALUE), _long(1), _BLANK)
    assert (begin, 2, value, 50) == found
    for key_bytes in (3, 10, 11, 18, 65535):
        # What follows the page looks like the number that is wanted.
        following = struct.pack("<Q", 3) * 4
        after = following + _long(1)[len(following) :]
        assert locate(_leaf(node, key_bytes, 50, _LONG_VALUE), after, _BLANK) is None


def test_a_page_that_has_the_number_of_another_one_is_none(locate: Locate) -> None:
    node = 3000
    sound = _leaf(node, 3, 50, _LONG_VALUE)
    assert locate(sound, _long(1), _BLANK) is not None
    for number in (_NUMBER + 1, _NUMBER + 2**32, 0):
        assert locate(_leaf(node, 3, 50, _LONG_VALUE, number=number), _long(1), _BLANK) is None
        assert locate(_leaf(node, 3, 50, number=number), _BLANK, _BLANK) is None
    for number in (2, 4, 3 + 2**32):
        assert locate(sound, _long(1, number=number), _BLANK) is None


def test_a_long_value_fills_its_pages_and_no_more(locate: Locate) -> None:
    value = 3 * _PAGE_BYTES + 16
    for num_pages in (1, 2):
        most = num_pages * _PAGE_BYTES - 16
        leaf = _leaf(3000, 3, most, _LONG_VALUE)
        found = locate(leaf, _long(num_pages), _BLANK)
        assert found is not None
        assert (value, most) == found[2:]
        assert locate(_leaf(3000, 3, most + 1, _LONG_VALUE), _long(num_pages), _BLANK) is None
    assert locate(_leaf(3000, 3, 0, _LONG_VALUE), _long(0), _BLANK) is None


@pytest.mark.parametrize("locate", ["Python"], indirect=True)
def test_a_long_value_ends_with_the_last_page_at_the_latest(locate: Locate) -> None:
    leaf = _leaf(3000, 3, 50, _LONG_VALUE)
    for num_pages, is_sound in ((1, True), (2, True), (3, False), (2**32 - 1, False)):
        assert is_sound == (locate(leaf, _long(num_pages), _BLANK) is not None)


# --- the head's count of records ----------------------------------------------------------------


@pytest.fixture
def file(tmp_path: Path) -> Iterator[DatabaseFile]:
    records = [(b"%08d" % number, bytes(1000)) for number in range(30)]
    file = DatabaseFile(write_database(tmp_path / "many", records))
    yield file
    file.close()


def _walk(file: DatabaseFile, entries: int, *steps: int) -> list[tuple[int, int]]:
    walk = LeafScan(file, dataclasses.replace(file.newest(), entries=entries))
    taken = [walk.take(step) for step in steps]
    return [place for pages, slots in taken for place in zip(pages, slots, strict=True)]


@pytest.mark.parametrize("steps", [(30,), (7, 20, 3), (29, 1)])
def test_a_walk_ends_where_the_head_says(file: DatabaseFile, steps: tuple[int, ...]) -> None:
    assert 30 == len(set(_walk(file, 30, *steps)))


def test_a_walk_refuses_leaves_that_hold_more_than_the_head_says(file: DatabaseFile) -> None:
    places = _walk(file, 30, 30)
    ends = {number for number in range(1, 30) if places[number][0] != places[number - 1][0]}
    assert ends  # within a leaf, and between two of them
    for entries in range(1, 30):
        with pytest.raises(CorruptDatabaseError, match=f"more records than the {entries} that"):
            _walk(file, entries, entries)
        assert entries == len(_walk(file, entries + 1, entries))  # one is left yet


def test_a_walk_refuses_leaves_that_hold_fewer_than_the_head_says(file: DatabaseFile) -> None:
    with pytest.raises(CorruptDatabaseError, match="hold 30 records, and its head says 31"):
        _walk(file, 31, 31)
