"""The sequence of records that several databases make, or a part of it: where each one is."""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt


@dataclass(frozen=True)
class RecordSequence:
    """Databases one behind the other, cut at both ends.

    Attributes:
        sizes: Records of each database, 1 or more.
        start: First record of the part, counted over all databases.
        stop: The one behind the last; ``0 <= start < stop <= sum(sizes)``.
    """

    sizes: tuple[int, ...]
    start: int
    stop: int

    @property
    def num_records(self) -> int:
        """Records of the part."""
        return self.stop - self.start

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(self.sizes))

    @cached_property
    def _firsts(self) -> npt.NDArray[np.int64]:
        return np.array([0, *self._ends[:-1]], np.int64)

    def locate(self, record: int) -> tuple[int, int, int]:
        """Return a record's database, its place there, and how many follow there, it included.

        Raises:
            IndexError: There is no such record.
        """
        if not 0 <= record < self.num_records:
            raise IndexError(f"there are {self.num_records} records; asked for record {record}")
        place = self.start + record
        database = bisect.bisect_right(self._ends, place)
        end = self._ends[database]
        return database, place - end + self.sizes[database], min(end, self.stop) - place

    def places_in_first(self, records: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return each record's place, (n,) int64, if all are in the first database; unchecked."""
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
