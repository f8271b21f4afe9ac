"""One record of a database, sought by its key or by its number."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from prefetch._errors.classes import PrefetchError
from prefetch._errors.printable import printable_short_key

if TYPE_CHECKING:
    from prefetch._source.records import RecordReader
    from prefetch._source.source import RecordSource

_ESCAPE: Final = re.compile(rb"\\(?:x([0-9a-f]{2})|([\\tnr]))")
_ESCAPED: Final = {b"\\": b"\\", b"t": b"\t", b"n": b"\n", b"r": b"\r"}
_MOST_DIGITS: Final = 18  # of an int64, whatever they are


class NoSuchRecordError(PrefetchError, LookupError):
    """Raised for a key or a number that no record has.

    Attributes:
        wanted: The key or number.
    """

    def __init__(self, path: str, wanted: str, message: str) -> None:
        self.wanted = wanted
        super().__init__(f"{path}: {message}")


class StoredRecord(NamedTuple):
    """One record, copied out of its database.

    Attributes:
        number: Its place in key order.
        key: Its key.
        value: Its value.
    """

    number: int
    key: bytes
    value: bytes


def find_record(source: RecordSource, wanted: str) -> StoredRecord:
    r"""Find a record; blocks while the index is built.

    Args:
        source: One database.
        wanted: Its key, as it is or as reports print it (``caf\xe9``); or, where no record has
            that key, its number in key order, counted from 0.

    Raises:
        NoSuchRecordError: There is none.
        SourceError: The database is damaged, or was changed meanwhile.
    """
    reader = source.reader()
    keys = dict.fromkeys((os.fsencode(wanted), _unescape(os.fsencode(wanted))))
    for key in keys:
        number = _first_from(reader, source.num_records, key)
        if number < source.num_records:
            found = read_record(reader, number)
            if found.key == key:
                source.check()
                return found
    if wanted.isascii() and wanted.isdigit():
        number = int(wanted) if len(wanted) <= _MOST_DIGITS else source.num_records
        if number < source.num_records:
            found = read_record(reader, number)
            source.check()
            return found
    raise _no_such_record(source, reader, wanted)


def read_record(reader: RecordReader, number: int) -> StoredRecord:
    """Return a copy of a record by its number."""
    with reader.fetch(np.array([number], np.int64)) as records:
        return StoredRecord(number, bytes(records.keys[0]), bytes(records.values[0]))


def _first_from(reader: RecordReader, num_records: int, key: bytes) -> int:
    """Return the number of the first record whose key is not below one, or of the end."""
    low, high = 0, num_records
    while low < high:
        middle = (low + high) // 2
        if read_record(reader, middle).key < key:
            low = middle + 1
        else:
            high = middle
    return low


def _unescape(text: bytes) -> bytes:
    """Return the bytes of a key that stands as reports print it."""
    return _ESCAPE.sub(
        lambda found: bytes.fromhex(found[1].decode()) if found[1] else _ESCAPED[found[2]], text
    )


def _no_such_record(source: RecordSource, reader: RecordReader, wanted: str) -> NoSuchRecordError:
    last = source.num_records - 1
    ends = (printable_short_key(read_record(reader, number).key) for number in (0, last))
    first_key, last_key = ends
    what = printable_short_key(os.fsencode(wanted))
    return NoSuchRecordError(
        source.path_of(0),
        wanted,
        f"no record has the key {what}, and none the number; keys go from {first_key} to "
        f"{last_key}, numbers from 0 to {last}",
    )
