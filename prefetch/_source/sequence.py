"""The sequence of records that several databases make, or a part of it: where each one is."""

from __future__ import annotations

import bisect
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class RecordSequence:
    """Databases one behind the other, cut at both ends, and perhaps with gaps.

    Attributes:
        sizes: Records of each database, 1 or more.
        start: First record of the part, counted over all databases.
        stop: The one behind the last; ``0 <= start < stop <= sum(sizes)``.
        chosen: (n,) uint32 or int64, 1 or more: which of these, counted over all databases,
            ascending; None for all.
    """

    sizes: tuple[int, ...]
    start: int
    stop: int
    chosen: npt.NDArray[np.uint32] | npt.NDArray[np.int64] | None = field(
        default=None, compare=False, repr=False
    )

    def choose(self, records: npt.NDArray[np.int64]) -> RecordSequence:
        """Return the sequence of some of the records.

        Args:
            records: (n,) their numbers, ascending, one or more.
        """
        if len(records) == self.num_records:
            return self
        # Half the memory, for databases that have a record for each of four billion numbers.
        places = records + self.start
        chosen = places.astype(np.uint32) if self.stop <= 1 << 32 else places
        return RecordSequence(self.sizes, self.start, self.stop, chosen)

    @property
    def num_records(self) -> int:
        """Records of the part."""
        return self.stop - self.start if self.chosen is None else len(self.chosen)

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(self.sizes))

    @cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        return np.array([0, *self._ends[:-1]], np.int64)

    def locate(self, record: int) -> tuple[int, int, int]:
        """Return a record's database, its place there, and how many follow there, it included.

        With gaps none is taken to follow.

        Raises:
            IndexError: There is no such record.
        """
        if not 0 <= record < self.num_records:
            raise IndexError(f"there are {self.num_records} records; asked for record {record}")
        place = self.start + record if self.chosen is None else int(self.chosen[record])
        database = bisect.bisect_right(self._ends, place)
        end = self._ends[database]
        most = min(end, self.stop) - place if self.chosen is None else 1
        return database, place - end + self.sizes[database], most

    def places_in_first(self, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return each record's place, (n,) int64, if all are in the first database; unchecked."""
        if self.chosen is not None:
            return self.chosen[records].astype(np.int64, copy=False)
        return records + self.start if self.start else records

    def locate_all(
        self, records: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the database of each record and its place there, (n,) int64 both.

        Raises:
            IndexError: There is no such record.
        """
        if records.size and not 0 <= records.min() <= records.max() < self.num_records:
            raise IndexError(f"there are {self.num_records} records; asked for {records}")
        places = self.places_in_first(records)
        databases = np.searchsorted(self._firsts, places, "right") - 1
        return databases, places - self._firsts[databases]
