"""Reading records in place, for loaders that bring no reader of LMDBs.

As fast as Python allows, so that no loader is measured by a slow reader: a cursor walks the batch,
pixels are taken from their known place in the record, and a label is parsed once for each way it
is written. That is possible since `databases` wrote the records, as a user may have written theirs.
"""

from __future__ import annotations

import itertools
import threading
from typing import TYPE_CHECKING, Any

import lmdb

from prefetch.caffe import Datum

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Self

    from peers.works import Work


class Records:
    """The records of a database by number. Thread-safe; not to be taken across a fork.

    Args:
        database: Folder of the LMDB.
        work: What its records hold.
    """

    def __init__(self, database: Path, work: Work) -> None:
        self._environment = lmdb.open(
            str(database), readonly=True, lock=False, max_spare_txns=64, subdir=True
        )
        self._encoded = work.encoded
        self.num_records: int = self._environment.stat()["entries"]
        self._local = threading.local()
        self._labels: dict[bytes, int] = {}
        channels, height, width = work.shape
        self._nbytes = channels * height * width
        self._start = 0 if work.encoded else self._find_pixels()

    def take(self, first: int, count: int) -> tuple[list[memoryview], list[int]]:
        """Return payloads and labels of consecutive records.

        Args:
            first: Number of the first record.
            count: How many; they must not go past the last record.

        Returns:
            Views of the pixels or JPEG files in the database, and the labels.
        """
        cursor = self._cursor()
        if not cursor.set_key(b"%08d" % first):
            raise KeyError(f"the database has no record {first}")
        rest: Any = cursor.iternext(keys=False)
        values: list[memoryview] = list(itertools.islice(rest, count))
        if self._encoded:
            datums = [Datum.FromString(bytes(value)) for value in values]
            return [memoryview(datum.data) for datum in datums], [datum.label for datum in datums]
        start, stop = self._start, self._start + self._nbytes
        return (
            [value[start:stop] for value in values],
            [self._label(bytes(value[stop:])) for value in values],
        )

    def close(self) -> None:
        """Close the database; views of it must be gone."""
        self._local = threading.local()
        self._environment.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cursor(self) -> lmdb.Cursor:
        """Return the calling thread's cursor, whose transaction stays open: nobody writes."""
        cursor: lmdb.Cursor | None = getattr(self._local, "cursor", None)
        if cursor is None:
            cursor = self._environment.begin(buffers=True).cursor()
            self._local.cursor = cursor
        return cursor

    def _find_pixels(self) -> int:
        """Return where the pixels begin in every record: after a header that is always the same."""
        with self._environment.begin() as transaction:
            value = bytes(transaction.get(b"%08d" % 0, b""))
        datum = Datum.FromString(value)
        if len(datum.data) != self._nbytes:
            raise ValueError(f"expected {self._nbytes} bytes of pixels, found {len(datum.data)}")
        return value.index(datum.data)

    def _label(self, rest: bytes) -> int:
        """Return the label that the fields after the pixels hold; they are a message as well."""
        label = self._labels.get(rest)
        if label is None:
            label = self._labels[rest] = Datum.FromString(rest).label
        return label
