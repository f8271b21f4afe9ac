"""The packed index: from the place of a record in key order to its key.

LMDB does not count the records under a branch, so it reaches the n-th record in n steps only. The
index keeps two numbers a *leaf page*: which page, and how many records come before it. It is built
from the branches and the leaves' headers; no value is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._errors.classes import CorruptDatabaseError
from prefetch._source.lmdb.pages import TreePages

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from prefetch._source.lmdb.file import DatabaseFile
    from prefetch._source.lmdb.meta import Meta

_BRANCHES_A_REPORT: Final = 1024


class RecordIndex:
    """Which record is where, of one committed state. Immutable and thread-safe once built.

    Attributes:
        leaves: (m,) unsigned: the leaf pages, in key order.
        firsts: (m,) unsigned: how many records come before each.
        num_records: Records of the database.
        nbytes: Memory that the index takes, in bytes.
    """

    def __init__(
        self,
        pages: TreePages,
        leaves: npt.NDArray[np.unsignedinteger],
        firsts: npt.NDArray[np.unsignedinteger],
        *,
        num_records: int,
    ) -> None:
        self._pages = pages
        self.leaves = leaves
        self.firsts = firsts
        self.num_records = num_records
        self.nbytes = leaves.nbytes + firsts.nbytes

    @classmethod
    def build(
        cls,
        file: DatabaseFile,
        meta: Meta,
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> RecordIndex:
        """Walk the tree of a committed state.

        Blocks while the tree's pages are read; 1 million records of 300 bytes take 0.1 s from the
        page cache. Needs no more than 16 MiB of address space at a time.

        Args:
            file: The database; must stay open as long as the index is used.
            meta: The state.
            progress: Called now and then with the pages read and the pages to read in all; what
                it raises ends the walk.

        Raises:
            CorruptDatabaseError: The tree's pages contradict each other.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        pages = TreePages(file, meta)
        walk = _Walk(file.path, meta, pages, progress)
        leaves = walk.leaves()
        counts = walk.counts(leaves)
        ends = np.cumsum(counts)
        total = int(ends[-1]) if ends.size else 0
        if total != meta.entries:
            raise CorruptDatabaseError(
                file.path, f"its leaves hold {total} records, and its head says {meta.entries}"
            )
        # A leaf holds at least one record, so this is at most 8 bytes a record, and 0.1 to 4 where
        # records are smaller than half a page. A list of 100 million keys would take 6 GB.
        return cls(
            pages,
            leaves.astype(np.min_scalar_type(meta.last_page)),
            (ends - counts).astype(np.min_scalar_type(total)),
            num_records=total,
        )

    def key(self, record: int) -> bytes:
        """Return the key of the record at a place in key order; reads one page.

        Raises:
            IndexError: There is no such record.
            CorruptDatabaseError: The page has changed since the index was built.
        """
        return self.keys(np.array([record], np.int64))[0]

    def keys(self, records: npt.NDArray[np.int64]) -> list[bytes]:
        """Return the keys of the records at some places in key order; reads one page for each.

        Args:
            records: (n,) places, from 0.

        Raises:
            IndexError: There is no such record.
            CorruptDatabaseError: A page has changed since the index was built.
        """
        pages, slots = self.places(records)
        key = self._pages.key
        return [key(page, slot) for page, slot in zip(pages.tolist(), slots.tolist(), strict=True)]

    def places(
        self, records: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the leaf page of each record and its place there; reads nothing.

        Args:
            records: (n,) places in key order, from 0.

        Returns:
            (n,) int64 both.

        Raises:
            IndexError: There is no such record.
        """
        if records.size and not 0 <= records.min() <= records.max() < self.num_records:
            raise IndexError(f"there are {self.num_records} records; asked for {records}")
        leaf = np.searchsorted(self.firsts, records.astype(self.firsts.dtype), "right") - 1
        slots = records - self.firsts[leaf].astype(np.int64)
        return self.leaves[leaf].astype(np.int64), slots

    def __repr__(self) -> str:
        return (
            f"<RecordIndex of {self.num_records} records in {self.leaves.size} leaf pages, "
            f"{self.nbytes} bytes>"
        )


class _Walk:
    """One walk over a tree, level by level."""

    def __init__(
        self,
        path: str,
        meta: Meta,
        pages: TreePages,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._path = path
        self._meta = meta
        self._pages = pages
        self._progress = progress
        self._num_read = 0

    def leaves(self) -> npt.NDArray[np.int64]:
        """Return the leaf pages, (n,), in key order."""
        if self._meta.root is None:
            return np.empty(0, np.int64)
        level = np.array([self._meta.root], np.int64)
        self._check(level)
        # The levels are counted, so that pages which lead to each other end the walk.
        for _ in range(self._meta.depth - 1):
            level = self._children(level)
            self._check(level)
        if level.size != self._meta.leaf_pages:
            raise CorruptDatabaseError(
                self._path,
                f"its tree has {level.size} leaves, and its head says {self._meta.leaf_pages}",
            )
        return level

    def counts(self, leaves: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return how many records each leaf page holds, (n,); read in the order of the file."""
        order = np.argsort(leaves)
        ascending = leaves[order]
        counts = np.empty_like(leaves)
        begin = 0
        while begin < ascending.size:
            end = int(np.searchsorted(ascending, ascending[begin] + self._pages.window))
            counts[order[begin:end]] = self._pages.record_counts(ascending[begin:end])
            self._report(end - begin)
            begin = end
        return counts

    def _children(self, level: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the pages that the branch pages of a level lead to, (n,), in key order."""
        found = []
        num_found = 0
        for position, number in enumerate(level.tolist(), start=1):
            found.append(self._pages.children(number))
            num_found += found[-1].size
            if num_found > self._meta.last_page:
                raise self._bad_tree()
            if position % _BRANCHES_A_REPORT == 0:
                self._report(_BRANCHES_A_REPORT)
        self._report(level.size % _BRANCHES_A_REPORT)
        return np.concatenate(found)

    def _check(self, level: npt.NDArray[np.int64]) -> None:
        if level.max() > self._meta.last_page or np.unique(level).size != level.size:
            raise self._bad_tree()

    def _bad_tree(self) -> CorruptDatabaseError:
        return CorruptDatabaseError(
            self._path, "is damaged: its tree reaches a page twice, or leaves the file"
        )

    def _report(self, num_read: int) -> None:
        self._num_read += num_read
        if self._progress is not None:
            self._progress(self._num_read, self._meta.branch_pages + self._meta.leaf_pages)
