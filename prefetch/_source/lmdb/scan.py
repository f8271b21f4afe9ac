"""Walking a database in key order, leaf page after leaf page, with nothing built first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from prefetch._errors.classes import CorruptDatabaseError
from prefetch._source.lmdb.pages import TreePages

if TYPE_CHECKING:
    import numpy.typing as npt

    from prefetch._source.lmdb.file import DatabaseFile
    from prefetch._source.lmdb.meta import Meta


class LeafScan:
    """One walk over the records of a committed state, from the first on. Not thread-safe.

    It gives what the packed index gives, a leaf page and a place in it for each record, and reads
    no more of the tree than leads there. Costs about 5 us a leaf page.

    Args:
        file: The database; must stay open.
        meta: The state.
    """

    def __init__(self, file: DatabaseFile, meta: Meta) -> None:
        self._path = file.path
        self._meta = meta
        self._pages = TreePages(file, meta)
        self._leaves = self._pages.leaves()
        self._leaf = -1
        self._slot = 0
        self._count = 0
        self._num_taken = 0
        self._num_seen = 0

    def take(self, num: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the leaf page and the place there of the next records.

        Blocks while pages are read.

        Args:
            num: How many, 1 or more; no more than are left.

        Returns:
            (num,) int64 both.

        Raises:
            CorruptDatabaseError: The tree's pages contradict each other.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        leaves: list[int] = []
        slots: list[npt.NDArray[np.int64]] = []
        counts: list[int] = []
        left = num
        while left:
            if self._slot == self._count:
                self._next_leaf()
            step = min(left, self._count - self._slot)
            leaves.append(self._leaf)
            counts.append(step)
            slots.append(np.arange(self._slot, self._slot + step))
            self._slot += step
            left -= step
        self._num_taken += num
        if self._num_taken == self._meta.entries:
            self._refuse_more()
        return np.repeat(np.array(leaves, np.int64), counts), np.concatenate(slots)

    def _next_leaf(self) -> None:
        leaf = next(self._leaves, None)
        if leaf is None:
            raise CorruptDatabaseError(
                self._path,
                f"is damaged: its leaves hold {self._num_seen} records, and its head says "
                f"{self._meta.entries}; copy it again from its origin",
            )
        self._leaf, self._slot, self._count = leaf, 0, self._pages.record_count(leaf)
        self._num_seen += self._count

    def _refuse_more(self) -> None:
        if self._slot < self._count or next(self._leaves, None) is not None:
            raise CorruptDatabaseError(
                self._path,
                f"is damaged: its leaves hold more records than the {self._meta.entries} that "
                f"its head says; copy it again from its origin",
            )
