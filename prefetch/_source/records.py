"""Reading records: successive ones leaf after leaf, any ones through the index.

Both find key and value in pages that this package checks itself, and never through LMDB, which
trusts what a file says. Where the file is mapped they hand out its own memory, which stays mapped
as long as somebody refers to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np

from prefetch._source.mapped_records import MappedRecords
from prefetch._source.packed_keys import PackedKeys

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from prefetch._source.lmdb.database import Database
    from prefetch._source.lmdb.scan import LeafScan
    from prefetch._source.lmdb.spans import FileSpans, Spans
    from prefetch._source.sequence import RecordSequence


@dataclass(slots=True)
class Records:
    """Some records, in the order they were asked for. Not thread-safe.

    Attributes:
        keys: One a record.
        values: One a record, (n,) uint8 each.
    """

    keys: list[memoryview] | Spans | FileSpans
    values: list[memoryview] | Spans | FileSpans

    def __len__(self) -> int:
        return len(self.keys)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    def __getitem__(self, rows: slice) -> Records:
        """Return some of the records; where they are a list of views, they end with the whole."""
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
            if isinstance(views, list):
                for view in views:
                    view.release()
            else:
                views.release()


class Walker:
    """Serves successive records, around and around. One call at a time.

    It remembers where it stands. Going on from there takes a page read a leaf; going anywhere else
    but to a database's first record needs the index.

    Args:
        databases: Where the records are.
        sequence: Which they are.
    """

    def __init__(self, databases: Sequence[Database], sequence: RecordSequence) -> None:
        self._databases = databases
        self._sequence = sequence
        self._walk: LeafScan | None = None
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
        pieces = []
        while count > 0:
            number, place, most = self._sequence.locate(start)
            num = min(count, most)
            pieces.append(_Piece(number, *self._places(number, place, num)))
            start = (start + num) % self._sequence.num_records
            count -= num
        return _find(self._databases, pieces)

    def _places(
        self, number: int, place: int, num: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the leaf pages of successive records of one database, and the places there."""
        database = self._databases[number]
        stands_at, self._stands_at = self._stands_at, None
        with database.using():
            if place == 0 and not database.is_indexed:
                self._walk = database.walk()
            elif stands_at != (number, place):
                self._walk = None
            if self._walk is None:
                return database.index().places(np.arange(place, place + num))
            found = self._walk.take(num)
        self._stands_at = number, place + num
        return found


class RecordReader:
    """Serves any records, through the packed index. One call at a time.

    Args:
        databases: Where the records are.
        sequence: Which they are.
    """

    def __init__(self, databases: Sequence[Database], sequence: RecordSequence) -> None:
        self._databases = databases
        self._sequence = sequence

    def fetch(self, records: npt.NDArray[np.int64]) -> Records:
        """Return records by number; the first call of all readers builds the index.

        Blocks while pages are read. Where the file is mapped (see `Mapping`) a small record costs
        about 0.1 us and no Python object; records of several databases cost 1 us, those of a file
        that is not mapped 5 us.

        Args:
            records: (n,) numbers, in any order, repeated or not.

        Raises:
            IndexError: There is no such record.
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The source is closed.
        """
        numbers, places = self._sequence.locate_all(records)
        pieces = []
        # A database at a time: `order` says which of the found records each of those asked for is.
        order = np.argsort(numbers, kind="stable")
        for number in np.unique(numbers).tolist():
            database = self._databases[number]
            with database.using():
                pieces.append(_Piece(number, *database.index().places(places[numbers == number])))
        return _find(self._databases, pieces, np.argsort(order))

    def locate_lazily(self, records: npt.NDArray[np.int64]) -> MappedRecords | None:
        """Return records that are found when they are used, without a Python object for each.

        Args:
            records: As for `fetch`; that there are such records shows at their use.

        Returns:
            The records; None where they are to be fetched, for they are in several databases or in
            one that is not mapped.

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
        mapping = database.mapping()
        return None if mapping is None else MappedRecords(database, mapping, places)


@dataclass(frozen=True, slots=True)
class _Piece:
    """Records of one database, by leaf page and place there, (n,) int64 both."""

    number: int
    pages: npt.NDArray[np.int64]
    slots: npt.NDArray[np.int64]


def _find(
    databases: Sequence[Database],
    pieces: Sequence[_Piece],
    order: npt.NDArray[np.int64] | None = None,
) -> Records:
    """Return the records of some pieces, one piece behind the other or in an order of places."""
    found = Records([], [])
    for piece in pieces:
        database = databases[piece.number]
        with database.using():
            keys, values = database.find(piece.pages, piece.slots)
        if len(pieces) == 1:
            return Records(keys, values)
        found.keys = [*found.keys, *keys]
        found.values = [*found.values, *values]
    if order is not None:
        found.keys = [found.keys[place] for place in order.tolist()]
        found.values = [found.values[place] for place in order.tolist()]
    return found
