"""A second backend: records from a list in memory, found under a path where no file is."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import lmdb

from prefetch._errors.classes import FeedClosedError
from prefetch._source import open_backend
from prefetch._source.backend import Fingerprint, SampledRecord, StoredBytes

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt
    import pytest

    from prefetch._source.backend import Database, Found, IndexProgress, Source


class ListDatabase:
    """Records of a list, in the order of their keys. Nothing is indexed, scanned or mapped.

    Attributes:
        path: What errors call it.
        num_records: How many there are.
        failure: What `check` raises; None for nothing.
        is_closed: Whether `close` was called.
    """

    expected_index_s = 0.0

    def __init__(self, path: str, records: Iterable[tuple[bytes, bytes]]) -> None:
        self.path = path
        self._records = sorted(records)
        self.num_records = len(self._records)
        self.failure: Exception | None = None
        self.is_closed = False
        self._lock = threading.Lock()

    def index(self) -> None:
        pass

    def find(self, places: npt.NDArray[np.int64]) -> Found:
        with self._lock:
            if self.is_closed:
                raise FeedClosedError(f"{self.path}: the record source is closed")
            found = [self._records[place] for place in places.tolist()]
        return [memoryview(key) for key, _ in found], [memoryview(value) for _, value in found]

    def cover(self, place: int) -> bool:
        del place
        return False

    def scan(self) -> None:
        return None

    def mapping(self) -> None:
        return None

    def known_key(self, place: int) -> bytes:
        return self._records[place][0]

    def check(self) -> None:
        if self.failure is not None:
            raise self.failure

    def is_at(self, folder: Path) -> bool:
        return str(folder) == self.path

    def sample(self, num_records: int) -> Generator[SampledRecord, None, None]:
        for place, (key, value) in enumerate(self._records[:num_records]):
            yield SampledRecord((place,), key, memoryview(value))

    def end_keys(self) -> tuple[bytes, bytes]:
        return self._records[0][0], self._records[-1][0]

    def fingerprint(self) -> Fingerprint:
        return Fingerprint(self.num_records, self.path)

    def stored_bytes(self) -> StoredBytes:
        return StoredBytes(*[sum(len(key) + len(value) for key, value in self._records)] * 3)

    def close(self) -> None:
        with self._lock:
            self.is_closed = True


class ListBackend:
    """Opens lists by the paths that they were put under; other sources are not for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._lists: dict[str, list[tuple[bytes, bytes]]] = {}
        self.opened: list[ListDatabase] = []
        monkeypatch.setattr(open_backend, "OPENERS", [self.open, *open_backend.OPENERS])

    def put(self, path: Path, records: Iterable[tuple[bytes, bytes]]) -> Path:
        """Let a path name some records, and return it."""
        self._lists[str(path)] = list(records)
        return path

    def open(
        self, source: Source, /, *, lock: bool, index_progress: IndexProgress | None
    ) -> Database | None:
        del lock, index_progress
        if isinstance(source, lmdb.Environment) or str(source) not in self._lists:
            return None
        self.opened.append(ListDatabase(str(source), self._lists[str(source)]))
        return self.opened[-1]
