"""The side database that bad records go to, for somebody to look at and repair."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import lmdb

from prefetch._errors import QuarantineError

if TYPE_CHECKING:
    from pathlib import Path

_FIRST_MAP_BYTES = 1 << 20
_LONGEST_KEY_BYTES = 511


class Quarantine:
    """An LMDB that keeps the key and the bytes of each bad record; thread-safe.

    It is created with the first bad record, and added to where it exists. What is in it can be read
    like any database of Datums, as far as its records can.

    Args:
        path: Its folder.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._environment: lmdb.Environment | None = None
        self._kept: set[int] = set()

    def keep(self, record: int, key: bytes, value: bytes) -> None:
        """Store a bad record, once; on disk when it returns.

        Two databases may have different records under one key: the second is stored under the key
        with ``@`` and the record's index in the source behind it.

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
                self._put(record, key, value)
            except (lmdb.Error, OSError) as error:
                raise QuarantineError(str(self.path), str(error)) from error
            self._kept.add(record)

    def close(self) -> None:
        """Close the database; idempotent."""
        with self._lock:
            environment, self._environment = self._environment, None
            if environment is not None:
                environment.close()

    def _put(self, record: int, key: bytes, value: bytes) -> None:
        if self._environment is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._environment = lmdb.open(os.fsencode(self.path), map_size=_FIRST_MAP_BYTES)
        environment = self._environment
        while True:
            try:
                with environment.begin(write=True) as transaction:
                    present = transaction.get(key)
                    if present is not None and present != value:
                        mark = b"@%d" % record
                        key = key[: _LONGEST_KEY_BYTES - len(mark)] + mark
                    transaction.put(key, value)
            except lmdb.MapFullError:
                environment.set_mapsize(2 * environment.info()["map_size"] + 2 * len(value))
            else:
                return
