"""Reading records of several databases: successive ones by scans, any ones by their places."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from prefetch._errors.classes import SourceError
from prefetch._source.mapped_records import MappedRecords
from prefetch._source.packed_keys import PackedKeys
from prefetch._source.spans import Views

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from prefetch._source.backend import Database, Found, Scan
    from prefetch._source.sequence import RecordSequence


@dataclass(slots=True)
class Records:
    """Some records, in the order they were asked for. Not thread-safe.

    Attributes:
        keys: One a record.
        values: One a record, (n,) uint8 each.
    """

    keys: list[memoryview] | Views
    values: list[memoryview] | Views

    def __len__(self) -> int:
        return len(self.keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __getitem__(self, rows: slice) -> Records:
        """Return some of the records; lists of views are released with the whole."""
        return Records(self.keys[rows], self.values[rows])

    def pack_keys(self) -> PackedKeys:
        """Return the keys, packed."""
        return PackedKeys.pack(self.keys)

    def release(self) -> None:
        """End every view of keys and values, so that its next use raises; idempotent.

        Slices of a view, and arrays made from one, are not known here and must be gone.

        Raises:
            BufferError: A call that was given a view is still using it.
        """
        for views in (self.keys, self.values):
            if isinstance(views, Views):
                views.release()
            else:
                for view in views:
                    view.release()


class Walker:
    """Serves successive records, around and around. One call at a time.

    It remembers where it stands. The next records from there come from a scan, which costs a page
    read a leaf; any others, but a database's first, need its index, and so do those of a sequence
    with gaps.

    Args:
        databases: Where the records are.
        sequence: Which they are.
    """

    def __init__(self, databases: Sequence[Database], sequence: RecordSequence) -> None:
        self._databases = databases
        self._sequence = sequence
        self._reader = RecordReader(databases, sequence)
        self._scan: Scan | None = None
        self._stands_at: tuple[int, int] | None = None

    def take(self, start: int, count: int) -> Records:
        """Return successive records; behind the last comes the first again.

        Blocks while pages are read.

        Args:
            start: The first of them.
            count: How many.

        Raises:
            IndexError: There is no record ``start``.
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The source is closed.
        """
        if self._sequence.chosen is not None:
            records = np.arange(start, start + count) % self._sequence.num_records
            return self._reader.fetch(records)
        pieces = []
        while count > 0:
            number, place, most = self._sequence.locate(start)
            num = min(count, most)
            pieces.append(self._take(number, place, num))
            start = (start + num) % self._sequence.num_records
            count -= num
        return _join(pieces)

    def cover(self, first: int, last: int) -> bool:
        """Have readers find successive records by an index that goes no farther than those.

        Args:
            first: The first of them.
            last: The last; where it comes before the first, they go on behind the end.

        Returns:
            Whether readers find them by mappings; False where they have to be walked.

        Raises:
            SourceError: A database is damaged, or was changed or truncated.
            FeedClosedError: The source is closed.
        """
        number, _, _ = self._sequence.locate(first)
        end, place, _ = self._sequence.locate(
            last if last >= first else self._sequence.num_records - 1
        )
        return self._databases[end].cover(place) and all(
            database.cover(database.num_records - 1) for database in self._databases[number:end]
        )

    def _take(self, number: int, place: int, num: int) -> Found:
        """Return successive records of one database."""
        database = self._databases[number]
        # After an error the scan may be anywhere, and is not continued.
        stands_at, self._stands_at = self._stands_at, None
        if place == 0:
            self._scan = database.scan()
        elif stands_at != (number, place):
            self._scan = None
        if self._scan is None:
            return database.find(np.arange(place, place + num))
        found = self._scan.take(num)
        self._stands_at = number, place + num
        return found


class RecordReader:
    """Serves any records, by number. One call at a time.

    Args:
        databases: Where the records are.
        sequence: Which they are.
        in_place: Whether `locate_lazily` may return records.
    """

    def __init__(
        self, databases: Sequence[Database], sequence: RecordSequence, *, in_place: bool = True
    ) -> None:
        self._databases = databases
        self._sequence = sequence
        self._in_place = in_place

    def fetch(self, records: npt.NDArray[np.int64]) -> Records:
        """Return records by number; the first call of all readers builds the index.

        Blocks while records are read. A record of a mapped file costs about 0.1 us and no Python
        object; records of several databases cost 1 us each, those of a file that is not mapped 5.

        Args:
            records: (n,) numbers, in any order, repeated or not.

        Raises:
            IndexError: There is no such record.
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The source is closed.
        """
        numbers, places = self._sequence.locate_all(records)
        found = _join(
            [
                self._databases[number].find(places[numbers == number])
                for number in np.unique(numbers).tolist()
            ]
        )
        if isinstance(found.keys, list):
            # They come a database at a time: `order` says which of them each asked for is.
            order = np.argsort(np.argsort(numbers, kind="stable")).tolist()
            found.keys = [found.keys[place] for place in order]
            found.values = [found.values[place] for place in order]
        return found

    def locate_lazily(self, records: npt.NDArray[np.int64]) -> MappedRecords | None:
        """Return records that are found when they are used, without a Python object for each.

        Args:
            records: As for `fetch`; that there are such records shows at their use.

        Returns:
            The records; None where they have to be fetched: they are in several databases, or in
            one that is not mapped, or the kernel does not know what their bytes mean.

        Raises:
            FeedClosedError: The source is closed.
        """
        if len(self._databases) == 1:
            database, places = self._databases[0], self._sequence.places_in_first(records)
        else:
            numbers, places = self._sequence.locate_all(records)
            database = self._databases[int(numbers[0])]
            if (numbers != numbers[0]).any():
                return None
        mapping = database.mapping() if self._in_place else None
        return None if mapping is None else MappedRecords(database, mapping, places)

    def advise(self, records: npt.NDArray[np.int64]) -> None:
        """Have records read from the disk before they are needed, where the system takes advice.

        What is wrong with them is told to whoever reads them.

        Args:
            records: (n,) their numbers, 1 or more.
        """
        numbers, places = self._sequence.locate_all(records)
        with suppress(SourceError):
            for number in np.unique(numbers).tolist():
                mapping = self._databases[number].mapping()
                if mapping is not None:
                    mapping.advise(places[numbers == number])


def _join(pieces: Sequence[Found]) -> Records:
    """Return the records of several pieces, one piece behind the other."""
    if len(pieces) == 1:
        return Records(*pieces[0])
    keys = [key for keys, _ in pieces for key in keys]
    return Records(keys, [value for _, values in pieces for value in values])
