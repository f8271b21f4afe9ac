"""A random sample of a database's records, without reading the rest.

Neither an index nor a walk is needed: the tree's branches lead to the leaf pages, some leaves are
drawn, and of each some records. Every record has the same chance. No more than 300 branch pages of
a level are read, so that a sample of a billion records takes as long as one of a million.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._errors.classes import CorruptDatabaseError
from prefetch._source.backend import SampledRecord
from prefetch._source.lmdb.pages import TreePages

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from numpy.typing import NDArray

    from prefetch._source.backend import Found
    from prefetch._source.lmdb.snapshot import Snapshot

_MOST_BRANCHES: Final = 300
_LEAVES_A_CHUNK: Final = 128
_RECORDS_A_FIND: Final = 16  # each may read a page from the disk, and the caller may stop


class RecordSampler:
    """Draws records of a database, each with the same chance; not thread-safe.

    Args:
        snapshot: The database; stays the caller's.
        find: Finds records by leaf pages and places there, (n,) int64 both.
        num_records: About how many: their number varies by its square root. A database that has no
            more than these is drawn whole.
        seed: The same seed draws the same records.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        find: Callable[[NDArray[np.int64], NDArray[np.int64]], Found],
        num_records: int,
        *,
        seed: int = 0,
    ) -> None:
        self._snapshot = snapshot
        self._find = find
        self._meta = snapshot.meta
        self._pages = TreePages(snapshot.file, self._meta)
        self._rng = np.random.default_rng(seed)
        self._leaves = self._find_leaves()
        num_drawn = min(self._leaves.size, num_records)
        self._drawn = self._rng.permutation(self._leaves.size)[:num_drawn]
        # Of the leaves drawn, each record is drawn with this chance.
        self._chance = num_records * self._meta.leaf_pages / (num_drawn * self._meta.entries)

    def __iter__(self) -> Generator[SampledRecord, None, None]:
        """Yield the records, in key order within each of several random parts of the leaves.

        Only whole parts are a random sample: of one that was broken off, its first keys were seen.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
        """
        for start in range(0, self._drawn.size, _LEAVES_A_CHUNK):
            chunk = np.sort(self._drawn[start : start + _LEAVES_A_CHUNK])
            with self._snapshot.using():
                drawn = self._draw(chunk)
            for first in range(0, len(drawn[0]), _RECORDS_A_FIND):
                places, pages, slots = (each[first : first + _RECORDS_A_FIND] for each in drawn)
                keys, values = self._find(pages, slots)
                for row, order in enumerate(zip(places.tolist(), slots.tolist(), strict=True)):
                    with values[row] as value:
                        yield SampledRecord(order, bytes(keys[row]), value)

    def _draw(
        self, places: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return leaf's place, leaf page and slot of the records drawn from some leaves, (n,)."""
        numbers = self._leaves[places]
        counts = self._counts(numbers)
        drawn = [
            np.flatnonzero(self._rng.random(count) < self._chance) for count in counts.tolist()
        ]
        num_drawn = [slots.size for slots in drawn]
        return (
            np.repeat(places, num_drawn),
            np.repeat(numbers, num_drawn),
            np.concatenate(drawn).astype(np.int64),
        )

    def _counts(self, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many records each of some leaf pages holds."""
        order = np.argsort(numbers)
        ascending = numbers[order]
        counts = np.empty_like(numbers)
        begin = 0
        while begin < ascending.size:
            end = int(np.searchsorted(ascending, ascending[begin] + self._pages.window))
            counts[order[begin:end]] = self._pages.record_counts(ascending[begin:end])
            begin = end
        return counts

    def _find_leaves(self) -> NDArray[np.int64]:
        """Return leaf pages in key order: all, or all beneath branches that were drawn."""
        if self._meta.root is None:
            return np.empty(0, np.int64)
        level = np.array([self._meta.root], np.int64)
        for _ in range(self._meta.depth - 1):
            if level.size > _MOST_BRANCHES:
                level = level[np.sort(self._rng.permutation(level.size)[:_MOST_BRANCHES])]
            level = np.concatenate([self._pages.children(number) for number in level.tolist()])
            if level.size > self._meta.last_page:
                raise CorruptDatabaseError(
                    self._snapshot.path, "is damaged: its tree reaches a page twice"
                )
        return level
