"""A random sample of a database's records, without reading the rest.

Neither an index nor a walk is needed: the tree's branches lead to the leaf pages, some leaves are
drawn, and of each some records. Every record has the same chance. No more than 300 branch pages of
a level are read, so that a sample of a billion records takes as long as one of a million.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from prefetch._errors import CorruptDatabaseError
from prefetch._pages import TreePages

if TYPE_CHECKING:
    from collections.abc import Generator

    from numpy.typing import NDArray

    from prefetch._database import Database

_MOST_BRANCHES: Final = 300
_LEAVES_A_CHUNK: Final = 128


class SampledRecord(NamedTuple):
    """One record of a sample.

    Attributes:
        order: Records compare by it as they lie in the database.
        key: Its key.
        value: View of its value, (n,) uint8, valid until the next record is asked for.
    """

    order: tuple[int, int]
    key: bytes
    value: memoryview


class RecordSampler:
    """Draws records of a database, each with the same chance; not thread-safe.

    Args:
        database: The database; stays the caller's.
        num_records: About how many: their number varies by its square root. A database that has no
            more than these is drawn whole.
        seed: The same seed draws the same records.
    """

    def __init__(self, database: Database, num_records: int, *, seed: int = 0) -> None:
        self._database = database
        self._meta = database.snapshot.meta
        self._pages = TreePages(database.snapshot.file, self._meta)
        self._rng = np.random.default_rng(seed)
        self._leaves = self._find_leaves()
        num_drawn = min(self._leaves.size, num_records)
        self._drawn = self._rng.permutation(self._leaves.size)[:num_drawn]
        # Of the leaves drawn, each record is drawn with this chance.
        self._chance = num_records * self._meta.leaf_pages / (num_drawn * self._meta.entries)

    def __iter__(self) -> Generator[SampledRecord, None, None]:
        """Yield the records; whatever part of them was seen is a random sample too.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
        """
        snapshot = self._database.snapshot
        reading = snapshot.reading()
        try:
            for start in range(0, self._drawn.size, _LEAVES_A_CHUNK):
                chunk = np.sort(self._drawn[start : start + _LEAVES_A_CHUNK])
                for place in chunk.tolist():
                    leaf = int(self._leaves[place])
                    for slot, key in self._pages.keys(leaf, self._choose):
                        with self._database.using(reading) as transaction:
                            value = transaction.get(key)
                            if value is None:
                                raise self._missing(key)
                            try:
                                yield SampledRecord((place, slot), key, value)
                            finally:
                                value.release()
        finally:
            snapshot.give_back(reading)

    def _missing(self, key: bytes) -> CorruptDatabaseError:
        return CorruptDatabaseError(
            self._database.path, f"is damaged: the record of key {key!r} cannot be found"
        )

    def _choose(self, num_records: int) -> list[int]:
        """Draw some of a leaf's records."""
        draws = self._rng.random(num_records).tolist()
        return [slot for slot, draw in enumerate(draws) if draw < self._chance]

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
                    self._database.path, "is damaged: its tree reaches a page twice"
                )
        return level
