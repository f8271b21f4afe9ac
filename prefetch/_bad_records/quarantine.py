"""The side database that bad records go to, for somebody to look at and repair."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Final

import lmdb

from prefetch._bad_records.quarantine_folder import (
    check_regular,
    check_whole,
    cure_of,
    make_database,
    why_not_a_quarantine,
)
from prefetch._errors.classes import DatabaseInUseError, QuarantineError
from prefetch._source.lmdb.environment import hold_to_write, release

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prefetch._source.lmdb.environment import SharedEnvironment

FIRST_MAP_BYTES: Final = 1 << 20
_LONGEST_KEY_BYTES: Final = 511


class Quarantine:
    """An LMDB that keeps the key and the bytes of each bad record; thread-safe.

    It is created with the first bad record, and added to where it exists. What is in it can be read
    like any database of Datums, as far as its records can. Several feeds of a process, and several
    processes, may have the same one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._shared: SharedEnvironment | None = None
        self._kept: set[int] = set()

    def keep(self, record: int, key: bytes, value: bytes) -> None:
        """Store a bad record, once; on disk when it returns.

        Two databases may have different records under one key: the second is stored under the key
        with ``@`` and the record's index in the source behind it, and what is there already under
        that too, with ``.2`` behind that, and so on.

        Args:
            record: Its index in the source.
            key: Its key.
            value: Its bytes.

        Raises:
            QuarantineError: It cannot be written.
        """
        with self._lock:
            if record in self._kept:
                return
            try:
                if self._shared is None:
                    self._shared = self._open()
                _put(self._shared, record, key, value)
            except QuarantineError:
                raise
            except DatabaseInUseError as error:
                reason = str(error).removeprefix(f"{error.path}: ")
                raise QuarantineError(str(self.path), reason, cure="close that") from error
            except (lmdb.Error, OSError) as error:
                reason, cure = cure_of(error)
                raise QuarantineError(str(self.path), reason, cure=cure) from error
            self._kept.add(record)

    def close(self) -> None:
        """Close the database, if no other feed writes to it; idempotent."""
        with self._lock:
            shared, self._shared = self._shared, None
            if shared is not None:
                release(shared)

    def _open(self) -> SharedEnvironment:
        """Open the database, made where there is none."""
        check_regular(self.path)
        make_database(self.path, map_size=FIRST_MAP_BYTES)
        reason = why_not_a_quarantine(self.path)
        if reason is not None:
            raise QuarantineError(str(self.path), reason)
        check_whole(self.path)
        return hold_to_write(os.fspath(self.path), map_size=FIRST_MAP_BYTES)


def _put(shared: SharedEnvironment, record: int, key: bytes, value: bytes) -> None:
    """Store a record under the first of its keys that is free, unless it is there."""
    environment = shared.environment
    assert shared.writing is not None
    # LMDB has writers wait for each other, but none may be under way while the map is resized.
    with shared.writing:
        while True:
            try:
                with environment.begin(write=True) as transaction:
                    for free in _keys(record, key):
                        present = transaction.get(free)
                        if present is None:
                            transaction.put(free, value)
                        if present is None or present == value:
                            return
            except lmdb.MapResizedError:  # by another process
                environment.set_mapsize(0)
            except lmdb.MapFullError:
                environment.set_mapsize(2 * environment.info()["map_size"] + 2 * len(value))


def _keys(record: int, key: bytes) -> Iterator[bytes]:
    """Yield the keys that a record may be stored under, the best first."""
    yield key
    number = 1
    while True:
        mark = b"@%d" % record if number == 1 else b"@%d.%d" % (record, number)
        yield key[: _LONGEST_KEY_BYTES - len(mark)] + mark
        number += 1
