"""Records of databases as the input of a conversion: joined, divided or changed on the way."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from dataclasses import replace
from heapq import merge as merge_sorted
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._errors.printable import printable_short_key
from prefetch._record.faults import BadRecordError
from prefetch._record.layouts.datum import DATUM
from prefetch._tools.convert.errors import InputError
from prefetch._tools.convert.examples import Example
from prefetch._tools.convert.inputs.keys import image_key
from prefetch._tools.convert.stamps import stamp_of_all
from prefetch._tools.examine_record import Examiner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path
    from typing import TypeAlias

    from numpy.typing import NDArray

    from prefetch._source.records import Records
    from prefetch._source.source import RecordSource

    Change: TypeAlias = Callable[[bytes, bytes], Example]
    Progress: TypeAlias = Callable[[int, int], None]

UNKNOWN_SHAPE: Final = (0, 0, 0)
"""Stands in a report for the shape of records that is not known without decoding them."""

_BLOCK: Final = 4096
_FOUND_AT_ONCE: Final = 32
_NAMED: Final = 5


class StoredExamples:
    """Records of databases in an order; see `Examples`.

    Args:
        source: One database, or several in turn.
        paths: Their paths, as the caller named them.
        order: int64 (n,): the numbers of the records that are taken, in order; None for all.
        change: Makes the new record of a key and a value; None to copy it bit for bit.
        change_name: What ``change`` does, so that only the same is resumed.
        renumber: Whether each key gets its place in the new order in front of it.
    """

    chunk = 64

    def __init__(
        self,
        source: RecordSource,
        paths: Sequence[Path],
        *,
        order: NDArray[np.int64] | None = None,
        change: Change | None = None,
        change_name: str = "",
        renumber: bool = False,
    ) -> None:
        self._source = source
        self._order = np.arange(source.num_records) if order is None else order
        self._change = change or copy_record
        self._renumber = renumber
        self._threads = _Readers(source, self._order)
        self._keys_read: dict[int, bytes] = {}
        files = [path / "data.mdb" if path.is_dir() else path for path in paths]
        self._stamp = stamp_of_all(files)
        self._fingerprint = {
            "databases": "\n".join(str(file.absolute()) for file in files),
            "records": hashlib.sha256(self._order.tobytes()).hexdigest(),
            "content of the databases": self._stamp.hex(),
            "options": f"{change_name} renumber={renumber}",
        }

    def __len__(self) -> int:
        return len(self._order)

    def key(self, index: int) -> bytes:
        """Return a record's new key."""
        # It is asked for once a record is read, and finding one takes as long again.
        key = self._keys_read.pop(index, None)
        if key is None:
            key, _ = self._threads.find(index)
        return image_key(index, key) if self._renumber else key

    def name(self, index: int) -> str:
        """Return a record's database, number and key."""
        number = int(self._order[index])
        path, place, _ = self._source.describe(number)
        key, _ = self._threads.find(index)
        return f"{path}, record {place} ({printable_short_key(key)})"

    def read(self, index: int) -> Example:
        """Read a record, changed as is asked.

        Raises:
            UnreadableError: It cannot be changed so.
        """
        key, found = self._threads.find(index)
        value = bytes(found)
        self._source.check()
        example = replace(self._change(key, value), stamp=self._stamp)
        self._keys_read[index] = key
        return example

    def stamp(self, index: int) -> bytes:  # noqa: ARG002 - all are from the same files
        """Return the stamp of the databases."""
        return self._stamp

    def fingerprint(self) -> dict[str, str]:
        """Return which records these are of which databases, and how they are changed."""
        return self._fingerprint


class _Readers(threading.local):
    """The reader of each thread, which finds some successive records at once.

    Finding them one by one takes most of the time of a small record's copy.
    """

    def __init__(self, source: RecordSource, order: NDArray[np.int64]) -> None:
        self._reader = source.reader(in_place=False)
        self._order = order
        self._first = 0
        self._found: Records | None = None

    def find(self, index: int) -> tuple[bytes, memoryview]:
        """Return a record's key, and a view of its value that is valid until the next call."""
        if self._found is None or not 0 <= index - self._first < len(self._found):
            self._found = None
            self._first = index
            self._found = self._reader.fetch(self._order[index : index + _FOUND_AT_ONCE])
        row = index - self._first
        return bytes(self._found.keys[row]), self._found.values[row]


class _Examiners(threading.local):
    def __init__(self) -> None:
        self.examiner = Examiner()


_examiners = _Examiners()


def copy_record(_: bytes, value: bytes) -> Example:
    """Return a record as it is, with any contents."""
    finding = _examiners.examiner.examine(memoryview(value), decode=False)
    return Example(value, finding.shape or UNKNOWN_SHAPE, unchanged=True)


def keys_of(source: RecordSource, progress: Progress | None = None) -> Iterator[bytes]:
    """Yield the keys of one database, in order."""
    walker = source.walker()
    for start in range(0, source.num_records, _BLOCK):
        num = min(_BLOCK, source.num_records - start)
        with walker.take(start, num) as records:
            keys = [bytes(key) for key in records.keys]
        source.check()
        if progress is not None:
            progress(start + num, source.num_records)
        yield from keys


def order_by_key(
    sources: Sequence[RecordSource], progress: Progress | None = None
) -> NDArray[np.int64]:
    """Return the numbers of all databases' records, read in turn, in the order of their keys.

    Args:
        sources: The databases, one each.
        progress: Called now and then with the keys read and the keys in all.

    Returns:
        int64 (n,).

    Raises:
        InputError: Keys are in several of them; names the first.
    """
    total = sum(source.num_records for source in sources)
    order = np.empty(total, np.int64)
    starts = np.cumsum([0, *(source.num_records for source in sources)]).tolist()
    streams = [
        zip(keys_of(source), range(start, end), strict=True)
        for source, start, end in zip(sources, starts, starts[1:], strict=False)
    ]
    before: bytes | None = None
    doubled: list[bytes] = []
    num_doubled = 0
    for place, (key, number) in enumerate(merge_sorted(*streams)):
        if key == before:
            num_doubled += 1
            if len(doubled) < _NAMED and key not in doubled:
                doubled.append(key)
        before = key
        order[place] = number
        if progress is not None and place % _BLOCK == 0:
            progress(place, total)
    if doubled:
        named = ", ".join(printable_short_key(key) for key in doubled)
        raise InputError(
            sources[0].path_of(0),
            f"{num_doubled} of its and the others' records have a key that another one has: "
            f"{named}{', ...' if num_doubled > len(doubled) else ''}; --renumber puts each "
            f"record's place in front of its key",
        )
    return order


def count_labels(
    source: RecordSource, progress: Progress | None = None
) -> tuple[Counter[int], int]:
    """Return how many records of one database have which label, and how many have none.

    Raises:
        InputError: A record is no Datum.
    """
    counts: Counter[int] = Counter()
    num_without = 0
    walker = source.walker()
    for start in range(0, source.num_records, _BLOCK):
        num = min(_BLOCK, source.num_records - start)
        with walker.take(start, num) as records:
            for row, value in enumerate(records.values):
                try:
                    datum = DATUM.read(value)
                except BadRecordError as bad:
                    key = printable_short_key(bytes(records.keys[row]))
                    raise InputError(
                        source.path_of(0),
                        f"record {start + row} ({key}) has no label: {bad.at(0).message()}",
                    ) from None
                if datum.has_label:
                    counts[datum.label] += 1
                else:
                    num_without += 1
        source.check()
        if progress is not None:
            progress(start + num, source.num_records)
    return counts, num_without
