"""Pages of a database's tree: which pages a branch leads to, and the keys of a leaf.

Read by ``pread`` or from short mappings of our own, never through LMDB, which has no way to ask for
"the n-th record". What a file says is not believed: every number is checked before it is used, so
that a damaged or hostile file is an error and neither a crash nor an endless walk.

A page begins with its own number (8 bytes), padding (2), flags (2), and where the free space
between its slots and its nodes begins and ends (2 each, from the start of the page). Slots follow:
the offset of one node each, in key order. A node has three 16-bit words, the size of its key (2)
and the key. The words are the child's page number in a branch, and in a leaf the value's size (two
words) and flags.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from prefetch._errors import CorruptDatabaseError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from prefetch._database_file import DatabaseFile, Meta

_HEADER: Final = struct.Struct("<Q2xHHH")
_HEADER_FIELDS: Final = ("number", "flags", "lower", "upper")
_HEADER_BYTES: Final = 16
_SLOT: Final = struct.Struct("<H")
_NODE_BYTES: Final = 8
_FIRST_PAGE: Final = 2  # after the two metas

_BRANCH: Final = 0x01
_LEAF: Final = 0x02
# Branch, leaf, overflow, meta, and the two kinds of page that only several values a key make.
_KINDS: Final = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40

_SUB_DATABASE: Final = 0x02

# Address space that counting the leaves may take; mapping so much and reading it costs 20 us.
_WINDOW_BYTES: Final = 16 * 2**20


class _Page(NamedTuple):
    """A page of a tree.

    Attributes:
        content: Its bytes.
        num_nodes: How many nodes it has.
        upper: Where the first of them may begin.
    """

    content: bytes
    num_nodes: int
    upper: int


class TreePages:
    """The pages of one committed state. Thread-safe; blocks while pages are read.

    Args:
        file: The database; must stay open.
        meta: The state. Its pages are intact as long as no writer gets two commits past it.
    """

    def __init__(self, file: DatabaseFile, meta: Meta) -> None:
        self._file = file
        self._meta = meta
        self._window_pages = max(_WINDOW_BYTES // meta.page_bytes, 1)
        self._header = np.dtype(
            {
                "names": list(_HEADER_FIELDS),
                "formats": ["<u8", "<u2", "<u2", "<u2"],
                "offsets": [0, 10, 12, 14],
                "itemsize": meta.page_bytes,
            }
        )

    def children(self, number: int) -> npt.NDArray[np.int64]:
        """Return the pages that a branch page leads to, (n,), in key order.

        Raises:
            CorruptDatabaseError: The page is no branch, or leads out of the file.
        """
        words, first = self._nodes(number, _BRANCH)
        low, middle, high = (words[first + place].astype(np.int64) for place in range(3))
        found: npt.NDArray[np.int64] = low | middle << 16 | high << 32
        if found.min() < _FIRST_PAGE or found.max() > self._meta.last_page:
            raise self._corrupt(f"page {number} leads to a page that does not exist")
        return found

    def record_counts(self, numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many records each of some leaf pages holds.

        Reads their headers only. Cheapest in the order of the file.

        Args:
            numbers: (n,) page numbers that exist, ascending, within ``window`` pages.

        Returns:
            (n,) counts, each 1 or more.

        Raises:
            CorruptDatabaseError: One of the pages is no leaf.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        page_bytes = self._meta.page_bytes
        # A mapping begins at a multiple of the machine's pages, which may exceed the file's.
        begin = int(numbers[0])
        begin -= begin % max(mmap.ALLOCATIONGRANULARITY // page_bytes, 1)
        where = numbers - begin
        num_pages = int(where[-1]) + 1
        self._file.check_size(self._meta)
        with mmap.mmap(
            self._file.fileno(),
            num_pages * page_bytes,
            flags=mmap.MAP_SHARED,
            prot=mmap.PROT_READ,
            offset=begin * page_bytes,
        ) as window:
            headers = np.frombuffer(window, self._header, num_pages)
            own_number, flags, lower, upper = (headers[name][where] for name in _HEADER_FIELDS)
            del headers  # or the mapping could not be closed
        bad = (
            (own_number != numbers.astype(np.uint64))
            | (flags & _KINDS != _LEAF)
            | (lower < _HEADER_BYTES + 2)
            | (lower & 1 != 0)
            | (lower > upper)
            | (upper > page_bytes)
        )
        if bad.any():
            raise self._corrupt(f"page {int(numbers[bad.argmax()])} is no leaf of the tree")
        return (lower.astype(np.int64) - _HEADER_BYTES) // 2

    def key(self, number: int, slot: int) -> bytes:
        """Return the key of a record, given its leaf page and its place there; one ``pread``.

        Raises:
            CorruptDatabaseError: The page is no leaf, or has no such record.
        """
        return self._key(number, self._page(number, _LEAF), slot)

    def keys(
        self, number: int, choose: Callable[[int], Iterable[int]]
    ) -> Iterator[tuple[int, bytes]]:
        """Yield some of a leaf page's records, their places there and their keys; one ``pread``.

        Args:
            number: The page.
            choose: Returns places there, given how many records there are, 1 or more.

        Raises:
            CorruptDatabaseError: The page is no leaf, or damaged.
        """
        page = self._page(number, _LEAF)
        for slot in choose(page.num_nodes):
            yield slot, self._key(number, page, slot)

    def first_leaf(self) -> int | None:
        """Return the number of the leaf page with the first records; None where there are none.

        Raises:
            CorruptDatabaseError: The way there leads out of the file.
        """
        number = self._meta.root
        if number is None:
            return None
        if not _FIRST_PAGE <= number <= self._meta.last_page:
            raise self._corrupt(f"its tree begins at page {number}, which does not exist")
        for _ in range(self._meta.depth - 1):
            number = int(self.children(number)[0])
        return number

    def holds_databases(self, number: int) -> bool:
        """Return whether an entry of a leaf page is a named database, and no record.

        Raises:
            CorruptDatabaseError: The page is no leaf.
        """
        words, first = self._nodes(number, _LEAF)
        return bool((words[first + 2] & _SUB_DATABASE).any())

    @property
    def window(self) -> int:
        """Pages within which ``record_counts`` takes its leaves."""
        return self._window_pages

    def _page(self, number: int, kind: int) -> _Page:
        """Return a page of a kind."""
        page_bytes = self._meta.page_bytes
        page = self._file.read(page_bytes, number * page_bytes)
        if len(page) < page_bytes:
            self._file.check_size(self._meta)
            raise self._corrupt(f"page {number} lies behind the end of the file")
        own_number, flags, lower, upper = _HEADER.unpack_from(page)
        if own_number != number:
            raise self._corrupt(f"page {number} has the number of page {own_number}")
        if flags & _KINDS != kind:
            raise self._corrupt(f"page {number} is no {'branch' if kind == _BRANCH else 'leaf'}")
        if not _HEADER_BYTES + 2 <= lower <= upper <= page_bytes or lower & 1:
            raise self._corrupt(f"page {number} says its free space is {lower} to {upper}")
        return _Page(page, (lower - _HEADER_BYTES) // 2, upper)

    def _key(self, number: int, page: _Page, slot: int) -> bytes:
        """Return the key of a record of a leaf page."""
        content, num_nodes, upper = page
        if slot >= num_nodes:
            raise self._corrupt(f"page {number} has no record {slot}")
        (offset,) = _SLOT.unpack_from(content, _HEADER_BYTES + 2 * slot)
        if not upper <= offset <= len(content) - _NODE_BYTES:
            raise self._corrupt(f"page {number} has a record outside of the page")
        begin = offset + _NODE_BYTES
        end = begin + _SLOT.unpack_from(content, begin - 2)[0]
        if end > len(content):
            raise self._corrupt(f"page {number} has a key that ends outside of the page")
        return content[begin:end]

    def _nodes(
        self, number: int, kind: int
    ) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
        """Return a page as 16-bit words, and the index of each node's first word, in key order."""
        page, num_nodes, upper = self._page(number, kind)
        offsets = np.frombuffer(page, "<u2", num_nodes, _HEADER_BYTES).astype(np.int64)
        if offsets.min() < upper or offsets.max() > len(page) - _NODE_BYTES or (offsets & 1).any():
            raise self._corrupt(f"page {number} has a record outside of the page")
        return np.frombuffer(page, "<u2"), offsets >> 1

    def _corrupt(self, what: str) -> CorruptDatabaseError:
        return CorruptDatabaseError(
            self._file.path, f"is damaged: {what}; copy it again from its origin"
        )
