"""Reading records: successive ones by stepping, any ones through the index.

Both hand out the database's own memory. It stays mapped until ``Records.release``, even past the
closing of the source, so that a view kept too long is a mistake but no crash.

The index checks what it reads of a file. LMDB, which finds the values, trusts the offsets inside of
a leaf: a file that somebody may have tampered with is first to pass ``python -m lmdb verify``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Self

import numpy as np

from prefetch._batch import PackedKeys
from prefetch._errors import CorruptDatabaseError
from prefetch._lmdb import SharedEnvironment, hold_again, release
from prefetch._mapped_records import MappedRecords
from prefetch._spans import Spans

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import lmdb
    import numpy.typing as npt

    from prefetch._database import Database
    from prefetch._sequence import RecordSequence
    from prefetch._snapshot import Reading


@dataclass(slots=True)
class Records:
    """Some records, in the order they were asked for. Not thread-safe.

    Attributes:
        keys: One a record.
        values: One a record, (n,) uint8 each.
    """

    keys: list[memoryview] | Spans
    values: list[memoryview] | Spans
    _held: tuple[SharedEnvironment, ...] = ()

    def __len__(self) -> int:
        return len(self.keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __getitem__(self, rows: slice) -> Records:
        """Return some of the records; where they are a list of views, they end with the whole."""
        return Records(self.keys[rows], self.values[rows])

    def extend(self, keys: list[memoryview], values: list[memoryview]) -> None:
        """Append records."""
        self.keys = [*self.keys, *keys]
        self.values = [*self.values, *values]

    def pack_keys(self) -> PackedKeys:
        """Return the keys, packed."""
        return PackedKeys.pack(self.keys)

    def hold(self, shared: SharedEnvironment) -> None:
        """Keep an environment's memory mapped until ``release``."""
        hold_again(shared)
        self._held += (shared,)

    def release(self) -> None:
        """End every view of keys and values, so that its next use raises; idempotent.

        Slices of a view, and arrays made from one, are not known here and must be gone.

        Raises:
            BufferError: A call that was given a view is still using it.
        """
        for views in (self.keys, self.values):
            if isinstance(views, Spans):
                views.release()
            else:
                for view in views:
                    view.release()
        held, self._held = self._held, ()
        for shared in held:
            release(shared)


class _Access:
    """The transactions of one walker or reader, one a database, begun at the first need."""

    def __init__(self, databases: Sequence[Database], sequence: RecordSequence) -> None:
        self._databases = databases
        self._sequence = sequence
        self._readings: dict[int, Reading] = {}

    def close(self) -> None:
        """Give the transactions back; idempotent. What was handed out stays valid."""
        while self._readings:
            number, reading = self._readings.popitem()
            self._databases[number].snapshot.give_back(reading)

    def _reading(self, number: int) -> Reading:
        reading = self._readings.get(number)
        if reading is None:
            reading = self._readings[number] = self._databases[number].snapshot.reading()
        return reading


class Walker(_Access):
    """Serves successive records, around and around. One call at a time.

    It remembers where it stands. Going on from there is a step of LMDB's cursor a record; going
    anywhere else but to a database's first record needs the index.
    """

    def __init__(self, databases: Sequence[Database], sequence: RecordSequence) -> None:
        super().__init__(databases, sequence)
        self._steps: Iterator[tuple[memoryview, memoryview]] = iter(())
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
        records = Records([], [])
        try:
            while count > 0:
                number, place, most = self._sequence.locate(start)
                num = min(count, most)
                self._walk(number, place, num, records)
                start = (start + num) % self._sequence.num_records
                count -= num
        except BaseException:
            records.release()
            raise
        return records

    def close(self) -> None:
        """Give the transactions back; idempotent. What was handed out stays valid."""
        self._stands_at = None
        super().close()

    def _walk(self, number: int, place: int, num: int, records: Records) -> None:
        """Append records of one database."""
        database = self._databases[number]
        stands_at, self._stands_at = self._stands_at, None
        with database.using(self._reading(number)) as transaction:
            if stands_at != (number, place):
                self._steps = _steps(database, transaction, place)
            pairs = list(islice(self._steps, num))
            if len(pairs) != num:
                raise _missing(database, place + len(pairs))
            records.hold(database.snapshot.shared)
        records.extend([key for key, _ in pairs], [value for _, value in pairs])
        self._stands_at = number, place + num


class RecordReader(_Access):
    """Serves any records, through the packed index. One call at a time."""

    def fetch(self, records: npt.NDArray[np.int64]) -> Records:
        """Return records by number; the first call of all readers builds the index.

        Blocks while pages are read. Where the file is mapped (see `Mapping`) a small record costs
        about 0.1 us and no Python object; otherwise 5 us, a page read for its key and a search for
        its value.

        Args:
            records: (n,) numbers, in any order, repeated or not.

        Raises:
            IndexError: There is no such record.
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The source is closed.
        """
        numbers, places = self._sequence.locate_all(records)
        if len(self._databases) == 1 and self._databases[0].is_mapped:
            return self._find(places)
        found = Records([], [])
        try:
            for number in np.unique(numbers).tolist():
                self._look_up(number, places[numbers == number], found)
        except BaseException:
            found.release()
            raise
        if len(self._databases) > 1:
            # They were found a database at a time; now into the order they were asked for.
            order = np.argsort(np.argsort(numbers, kind="stable")).tolist()
            found.keys = [found.keys[place] for place in order]
            found.values = [found.values[place] for place in order]
        return found

    def at_use(self, records: npt.NDArray[np.int64]) -> MappedRecords | None:
        """Return records that are found when they are used, which takes a mapping of the file.

        Args:
            records: As for `fetch`; unchecked.

        Returns:
            The records; None where they are to be fetched.
        """
        database = self._databases[0]
        if len(self._databases) > 1 or not database.is_mapped:
            return None
        return MappedRecords(database, self._sequence.places_in_first(records))

    def _find(self, places: npt.NDArray[np.int64]) -> Records:
        """Return records of the only database, found in the mapping of its file."""
        database = self._databases[0]
        with database.using(self._reading(0)):
            spans = database.mapping().find(*database.index().places(places))
        keys, values = spans
        return Records(keys, values)

    def _look_up(self, number: int, places: npt.NDArray[np.int64], records: Records) -> None:
        """Append records of one database."""
        database = self._databases[number]
        with database.using(self._reading(number)) as transaction:
            keys = database.index().keys(places)
            values = []
            for place, key in zip(places.tolist(), keys, strict=True):
                value = transaction.get(key)
                if value is None:
                    raise _missing(database, place)
                values.append(value)
            records.hold(database.snapshot.shared)
        records.extend([memoryview(key) for key in keys], values)


def _steps(
    database: Database, transaction: lmdb.Transaction[memoryview], place: int
) -> Iterator[tuple[memoryview, memoryview]]:
    """Return an iterator over a database's keys and values from a record on."""
    cursor = transaction.cursor()
    stands = cursor.first() if place == 0 else cursor.set_key(database.index().key(place))
    if not stands:
        raise _missing(database, place)
    return cursor.iternext(keys=True, values=True)


def _missing(database: Database, place: int) -> CorruptDatabaseError:
    return CorruptDatabaseError(
        database.path,
        f"is damaged: record {place} of {database.num_records} cannot be found; "
        f"copy it again from its origin",
    )
