"""Pages of a database's tree: which pages a branch leads to, and the keys of a leaf.

Read by ``pread`` or from short mappings of our own, never through LMDB, which has no way to ask for
"the n-th record". What a file says is not believed: every number is checked before it is used, so
that a damaged or hostile file is an error and neither a crash nor an endless walk.

A page begins with its own number (8 bytes), padding (2), flags (2), and where the free space
between its slots and its nodes begins and ends (2 each, from the start of the page). Slots follow:
the offset of one node each, in key order. A node has three 16-bit words, the size of its key (2)
and the key. The words are the child's page number in a branch, and in a leaf the value's size (two
words) and flags. A leaf's value follows its key; a long one begins behind the header of a page of
its own, whose number follows the key, and takes as many pages as that header says.
"""

from __future__ import annotations

import mmap
import struct
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
import numpy.typing as npt

from prefetch._errors.classes import CorruptDatabaseError, SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prefetch._source.lmdb.meta import Meta

_HEADER: Final = struct.Struct("<Q2xHHH")
_HEADER_FIELDS: Final = ("number", "flags", "lower", "upper")
_HEADER_BYTES: Final = 16
_SLOT: Final = struct.Struct("<H")
_LEAF_NODE: Final = struct.Struct("<IHH")
_NUMBER: Final = struct.Struct("<Q")
_LONG_HEADER: Final = struct.Struct("<Q2xHI")
NODE_BYTES: Final = 8
_FIRST_PAGE: Final = 2  # after the two metas

BRANCH: Final = 0x01
LEAF: Final = 0x02
_OVERFLOW: Final = 0x04
# Branch, leaf, overflow, meta, and the two kinds of page that only several values a key make.
_KINDS: Final = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40

LONG_VALUE: Final = 0x01
_SUB_DATABASE: Final = 0x02
_NODE_FLAGS: Final = 0x01 | 0x02 | 0x04

# Pages of values for each leaf page, from which on asking for one is cheaper than mapping it.
_SPARSE: Final = 16

# Address space that counting the leaves may take; mapping so much and reading it costs 20 us.
_WINDOW_BYTES: Final = 16 * 2**20


class PageFile(Protocol):
    """What pages are read from."""

    @property
    def path(self) -> str:
        """The database's path, for errors."""
        ...

    def fileno(self) -> int:
        """Return the descriptor."""
        ...

    def read(self, num_bytes: int, offset: int) -> bytes:
        """Return a part of the file, less where the file ends."""
        ...

    def read_all(self, num_bytes: int, offset: int, meta: Meta) -> bytes:
        """Return a part of a state's pages, all of it."""
        ...

    def check_size(self, meta: Meta) -> int:
        """Raise where the file is shorter than a state's pages."""
        ...


class TreePages:
    """The pages of one committed state. Thread-safe; blocks while pages are read.

    Args:
        file: The database; must stay open.
        meta: The state. Its pages are intact as long as no writer gets two commits past it.
    """

    def __init__(self, file: PageFile, meta: Meta) -> None:
        self._file = file
        self._meta = meta
        # Where leaf pages lie far apart, the system would read mostly pages of values around each.
        self._is_sparse = (
            hasattr(mmap, "MADV_WILLNEED") and meta.overflow_pages > _SPARSE * meta.leaf_pages
        )
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
        words, nodes = self._nodes(number, BRANCH)
        low, middle, high = (words[nodes + place].astype(np.int64) for place in range(3))
        found: npt.NDArray[np.int64] = low | middle << 16 | high << 32
        if found.min() < _FIRST_PAGE or found.max() > self._meta.last_page:
            raise self._corrupt(f"page {number} leads to a page that does not exist")
        return found

    def _map(self, offset: int, nbytes: int) -> mmap.mmap:
        """Map a piece of the file.

        Raises:
            SourceError: The system has no address space or no file descriptor left for it.
        """
        try:
            return mmap.mmap(
                self._file.fileno(),
                nbytes,
                flags=mmap.MAP_SHARED,
                prot=mmap.PROT_READ,
                offset=offset,
            )
        except OSError as error:
            raise SourceError(
                self._file.path,
                f"{nbytes} bytes of its pages cannot be mapped: {error.strerror}; allow the "
                f"process more address space (ulimit -v) or more open files (ulimit -n)",
            ) from error

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
            SourceError: The system has no room to map them.
        """
        page_bytes = self._meta.page_bytes
        # A mapping begins at a multiple of the machine's pages, which may exceed the file's.
        begin = int(numbers[0])
        begin -= begin % max(mmap.ALLOCATIONGRANULARITY // page_bytes, 1)
        num_pages = int(numbers[-1]) + 1 - begin
        # Closed by its last reference: to close it by name fails after Ctrl-C, which leaves views.
        window = self._map(begin * page_bytes, num_pages * page_bytes)
        if self._is_sparse:
            for number in numbers.tolist():
                window.madvise(mmap.MADV_WILLNEED, *_span(number - begin, page_bytes))
        return self.record_counts_in(window, numbers, first_page=begin)

    def record_counts_in(
        self, memory: mmap.mmap | memoryview, numbers: npt.NDArray[np.int64], *, first_page: int = 0
    ) -> npt.NDArray[np.int64]:
        """Return how many records each of some leaf pages holds, read from memory.

        Args:
            memory: Pages, mapped from the file.
            numbers: (n,) numbers of pages in it, in any order.
            first_page: The page that it begins with.

        Returns:
            (n,) counts, each 1 or more.

        Raises:
            CorruptDatabaseError: One of the pages is no leaf.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        page_bytes = self._meta.page_bytes
        self._file.check_size(self._meta)
        headers = np.frombuffer(memory, self._header)
        where = numbers - first_page
        own_number, flags, lower, upper = (headers[name][where] for name in _HEADER_FIELDS)
        del headers, memory
        bad = (
            (own_number != numbers.astype(np.uint64))
            | (flags & _KINDS != LEAF)
            | (lower < _HEADER_BYTES + 2)
            | (lower & 1 != 0)
            | (lower > upper)
            | (upper > page_bytes)
        )
        if bad.any():
            raise self._corrupt(f"page {int(numbers[bad.argmax()])} is no leaf of the tree")
        return (lower.astype(np.int64) - _HEADER_BYTES) // 2

    def record_count(self, number: int) -> int:
        """Return how many records a leaf page holds, 1 or more; one ``pread``.

        Raises:
            CorruptDatabaseError: The page is no leaf.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        return self._page(number, LEAF)[1]

    def key(self, number: int, slot: int) -> bytes:
        """Return the key of a record, given its leaf page and its place there; one ``pread``.

        Raises:
            CorruptDatabaseError: The page is no leaf, or has no such record.
        """
        page, begin, end, _, _ = self._leaf_node(number, slot)
        return page[begin:end]

    def locate(self, number: int, slot: int) -> tuple[int, int, int, int]:
        """Return where a record's key and value are in the file; one or two ``pread``.

        The C kernel does the same in a mapped file.

        Returns:
            Offset and size of the key, offset and size of the value, in bytes.

        Raises:
            CorruptDatabaseError: The pages contradict each other.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        page, begin, end, value_bytes, flags = self._leaf_node(number, slot)
        page_bytes = self._meta.page_bytes
        base = number * page_bytes
        if flags & _NODE_FLAGS == 0:
            if value_bytes > page_bytes - end:
                raise self._corrupt(f"page {number} has a value that ends outside of the page")
            return base + begin, end - begin, base + end, value_bytes
        if flags & _NODE_FLAGS != LONG_VALUE or end + _NUMBER.size > page_bytes:
            raise self._corrupt(f"page {number} has no sound record at place {slot}")
        (first,) = _NUMBER.unpack_from(page, end)
        self._num_long_pages(first, value_bytes)
        return base + begin, end - begin, first * page_bytes + _HEADER_BYTES, value_bytes

    def _leaf_node(self, number: int, slot: int) -> tuple[bytes, int, int, int, int]:
        """Return a leaf page, where a record's key lies in it, its value's size, and its flags."""
        page, num_nodes, upper = self._page(number, LEAF)
        if not 0 <= slot < num_nodes:
            raise self._corrupt(f"page {number} has no record {slot}")
        (offset,) = _SLOT.unpack_from(page, _HEADER_BYTES + 2 * slot)
        if not upper <= offset <= len(page) - NODE_BYTES:
            raise self._corrupt(f"page {number} has a record outside of the page")
        value_bytes, flags, key_bytes = _LEAF_NODE.unpack_from(page, offset)
        begin = offset + NODE_BYTES
        if begin + key_bytes > len(page):
            raise self._corrupt(f"page {number} has a key that ends outside of the page")
        return page, begin, begin + key_bytes, value_bytes, flags

    def _num_long_pages(self, first: int, value_bytes: int) -> int:
        """Return how many pages a value has that has pages of its own."""
        page_bytes = self._meta.page_bytes
        if not _FIRST_PAGE <= first <= self._meta.last_page:
            raise self._corrupt(f"a value begins at page {first}, which does not exist")
        header = self._file.read(_LONG_HEADER.size, first * page_bytes)
        if len(header) < _LONG_HEADER.size:
            self._file.check_size(self._meta)
            raise self._corrupt(f"page {first} lies behind the end of the file")
        own_number, flags, num_pages = _LONG_HEADER.unpack(header)
        if (
            own_number != first
            or flags & _KINDS != _OVERFLOW
            or first + num_pages - 1 > self._meta.last_page
            or value_bytes > num_pages * page_bytes - _HEADER_BYTES
        ):
            raise self._corrupt(f"page {first} does not hold a value of {value_bytes} bytes")
        return int(num_pages)

    def lie_within(self, num_pages: int) -> bool:
        """Return whether all that the tree uses lies in the first pages of the file.

        Reads all leaves, and the header of each long value.

        Raises:
            CorruptDatabaseError: The tree's pages contradict each other.
            DatabaseTruncatedError: The file is shorter than its pages, and lacks one of them.
        """
        for num_leaves, leaf in enumerate(self.leaves(), start=1):
            if num_leaves > num_pages:
                raise self._corrupt("its tree reaches a page twice")
            if any(begin + count > num_pages for begin, count in self.long_values(leaf)):
                return False
        return True

    def long_values(self, number: int) -> Iterator[tuple[int, int]]:
        """Yield the first page of each long value of a leaf page, and how many it has.

        Raises:
            CorruptDatabaseError: The pages contradict each other.
            DatabaseTruncatedError: The file is shorter than its pages, and lacks one of them.
        """
        words, nodes = self._nodes(number, LEAF)
        page = words.tobytes()
        for node in (2 * nodes[words[nodes + 2] & LONG_VALUE != 0]).tolist():
            value_bytes, _, key_bytes = _LEAF_NODE.unpack_from(page, node)
            end = node + NODE_BYTES + key_bytes
            if end + _NUMBER.size > len(page):
                raise self._corrupt(f"page {number} has a value that ends outside of the page")
            (first,) = _NUMBER.unpack_from(page, end)
            yield first, self._num_long_pages(first, value_bytes)

    def leaves(self) -> Iterator[int]:
        """Yield the leaf pages in key order, as `leaf_groups` does, one by one."""
        for group in self.leaf_groups():
            yield from group.tolist()

    def leaf_groups(self) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the leaf pages in key order, (n,) at a time: those that one branch leads to.

        A branch is read when it is come to.

        Raises:
            CorruptDatabaseError: The tree's pages contradict each other. One that it reaches twice
                is not noticed here.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        return iter(()) if self._meta.root is None else self._below(self._root(), self._meta.depth)

    def first_leaf(self) -> int | None:
        """Return the number of the leaf page with the first records; None where there are none.

        Raises:
            CorruptDatabaseError: The way there leads out of the file.
        """
        return next(self.leaves(), None)

    def last_leaf(self) -> int | None:
        """Return the number of the leaf page with the last records; None where there are none.

        Raises:
            CorruptDatabaseError: The way there leads out of the file.
        """
        if self._meta.root is None:
            return None
        number = self._root()
        for _ in range(self._meta.depth - 1):
            number = int(self.children(number)[-1])
        return number

    def _root(self) -> int:
        root = self._meta.root
        assert root is not None
        if not _FIRST_PAGE <= root <= self._meta.last_page:
            raise self._corrupt(f"its tree begins at page {root}, which does not exist")
        return root

    def _below(self, number: int, depth: int) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the leaves under a page; the levels are counted, so that no circle is endless."""
        if depth <= 2:  # a branch of leaves, or a root that is a leaf
            yield np.array([number], np.int64) if depth <= 1 else self.children(number)
            return
        for child in self.children(number).tolist():
            yield from self._below(child, depth - 1)

    def holds_databases(self, number: int) -> bool:
        """Return whether an entry of a leaf page is a named database, and no record.

        Raises:
            CorruptDatabaseError: The page is no leaf.
        """
        words, first = self._nodes(number, LEAF)
        return bool((words[first + 2] & _SUB_DATABASE).any())

    @property
    def window(self) -> int:
        """Pages within which ``record_counts`` takes its leaves."""
        return self._window_pages

    def _page(self, number: int, kind: int) -> tuple[bytes, int, int]:
        """Return a page of a kind, how many nodes it has, and where the first may begin."""
        page_bytes = self._meta.page_bytes
        page = self._file.read(page_bytes, number * page_bytes)
        if len(page) < page_bytes:
            self._file.check_size(self._meta)
            raise self._corrupt(f"page {number} lies behind the end of the file")
        own_number, flags, lower, upper = _HEADER.unpack_from(page)
        if own_number != number:
            raise self._corrupt(f"page {number} has the number of page {own_number}")
        if flags & _KINDS != kind:
            raise self._corrupt(f"page {number} is no {'branch' if kind == BRANCH else 'leaf'}")
        if not _HEADER_BYTES + 2 <= lower <= upper <= page_bytes or lower & 1:
            raise self._corrupt(f"page {number} says its free space is {lower} to {upper}")
        return page, (lower - _HEADER_BYTES) // 2, upper

    def _nodes(
        self, number: int, kind: int
    ) -> tuple[npt.NDArray[np.uint16], npt.NDArray[np.int64]]:
        """Return a page as 16-bit words, and the index of each node's first word, in key order."""
        page, num_nodes, upper = self._page(number, kind)
        offsets = np.frombuffer(page, "<u2", num_nodes, _HEADER_BYTES).astype(np.int64)
        if offsets.min() < upper or offsets.max() > len(page) - NODE_BYTES or (offsets & 1).any():
            raise self._corrupt(f"page {number} has a record outside of the page")
        return np.frombuffer(page, "<u2"), offsets >> 1

    def _corrupt(self, what: str) -> CorruptDatabaseError:
        return CorruptDatabaseError(
            self._file.path, f"is damaged: {what}; copy it again from its origin"
        )


def _span(page: int, page_bytes: int) -> tuple[int, int]:
    """Return begin and size of the system's pages that a page of a mapping lies on."""
    begin = page * page_bytes // mmap.PAGESIZE * mmap.PAGESIZE
    return begin, (page + 1) * page_bytes - begin
