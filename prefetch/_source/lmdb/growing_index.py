"""The packed index of the first records, which grows as a feed in key order goes on.

A large database is not indexed before its first batch: that would have to wait. What a batch in key
order needs is the index of what lies before it, and the leaf pages under one branch are enough for
thousands of records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._errors.classes import CorruptDatabaseError
from prefetch._source.lmdb.index import RecordIndex

if TYPE_CHECKING:
    import numpy.typing as npt

    from prefetch._source.lmdb.meta import Meta
    from prefetch._source.lmdb.pages import TreePages

# A branch of 4 KiB leads to 200 leaves and more, one of 64 KiB to thousands: the first batch would
# wait until all of them were read.
_MOST_LEAVES_AT_A_TIME: Final = 256


class GrowingIndex:
    """The index of the first records of a committed state. One call of `grow` at a time.

    What it has is immutable, and any thread may use it: a longer one takes its place.

    Args:
        path: The database's path, for errors.
        pages: The state's pages.
        meta: The state.
        memory: All of its pages, mapped from a file that was long enough.

    Attributes:
        index: What is known so far.
        is_whole: Whether that is every record.
    """

    def __init__(self, path: str, pages: TreePages, meta: Meta, memory: memoryview) -> None:
        self._path = path
        self._pages = pages
        self._meta = meta
        self._memory = memory
        self._groups = pages.leaf_groups()
        self._waiting = np.empty(0, np.int64)
        self._step = _MOST_LEAVES_AT_A_TIME
        # Most of it is touched only when it is come to.
        self._leaves = np.empty(meta.leaf_pages, np.min_scalar_type(meta.last_page))
        self._firsts = np.empty(meta.leaf_pages, np.min_scalar_type(meta.entries))
        self._num_leaves = 0
        self.index = self._indexed(0)
        self.is_whole = False

    def leaves_to(self, place: int) -> int:
        """Return how many leaf pages, roughly, it has to grow by until it knows a place."""
        ahead = place - self.index.num_records
        return ahead * self._meta.leaf_pages // self._meta.entries

    def grow(self) -> None:
        """Add the next leaf pages, if not all of them at once; blocks while they are read.

        Raises:
            CorruptDatabaseError: The tree's pages contradict each other.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        leaves = self._next_leaves()
        begin, end = self._num_leaves, self._num_leaves + leaves.size
        try:
            counts = self._pages.record_counts_in(self._memory, leaves)
        except CorruptDatabaseError:
            if leaves.size == 1:
                raise
            self._step = 1  # what lies before the damage is served; it is come to one by one
            return
        self._waiting = self._waiting[leaves.size :]
        ends = self.index.num_records + np.cumsum(counts)
        num_records = int(ends[-1])
        is_last = num_records == self._meta.entries
        if end > self._meta.leaf_pages or num_records > self._meta.entries:
            raise self._miscount(end, num_records)
        if is_last and (end < self._meta.leaf_pages or self._has_more()):
            raise self._miscount(end, num_records)
        self._leaves[begin:end] = leaves
        self._firsts[begin:end] = ends - counts
        self._num_leaves = end
        if is_last:
            self._refuse_repeated()
        self.index = self._indexed(num_records)
        self.is_whole = is_last

    def _next_leaves(self) -> npt.NDArray[np.int64]:
        if not self._waiting.size:
            group = next(self._groups, None)
            if group is None:
                raise self._miscount(self._num_leaves, self.index.num_records)
            self._waiting = group
        return self._waiting[: self._step]

    def _has_more(self) -> bool:
        return bool(self._waiting.size) or next(self._groups, None) is not None

    def _refuse_repeated(self) -> None:
        """Raise where the tree has reached a page twice, as the walk for the whole index does."""
        is_reached = np.zeros(self._meta.last_page + 1, np.bool_)
        is_reached[self._leaves] = True
        if int(np.count_nonzero(is_reached)) != self._num_leaves:
            raise CorruptDatabaseError(
                self._path, "is damaged: its tree reaches a page twice, or leaves the file"
            )

    def _indexed(self, num_records: int) -> RecordIndex:
        num = self._num_leaves
        return RecordIndex(
            self._pages, self._leaves[:num], self._firsts[:num], num_records=num_records
        )

    def _miscount(self, num_leaves: int, num_records: int) -> CorruptDatabaseError:
        return CorruptDatabaseError(
            self._path,
            f"is damaged: {num_leaves} of its leaves hold {num_records} records, and its head says "
            f"that {self._meta.leaf_pages} hold {self._meta.entries}; "
            f"copy it again from its origin",
        )

    def __repr__(self) -> str:
        return f"<GrowingIndex, of {self._meta.entries} records so far {self.index!r}>"
