"""One database of LMDB's: its snapshot, and its packed index once it is needed."""

from __future__ import annotations

import logging
import os
import threading
import time
from typing import TYPE_CHECKING, Final

from prefetch._errors.classes import CorruptDatabaseError, FeedClosedError, SourceError
from prefetch._errors.context import error_context
from prefetch._errors.printable import printable_path
from prefetch._kernels import selection
from prefetch._source.backend import Fingerprint, StoredBytes
from prefetch._source.lmdb.index import RecordIndex
from prefetch._source.lmdb.mapped import MappedPages
from prefetch._source.lmdb.pages import TreePages
from prefetch._source.lmdb.pread import PreadPages
from prefetch._source.lmdb.sample import RecordSampler
from prefetch._source.lmdb.scan import LeafScan
from prefetch._source.lmdb.snapshot import Snapshot

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

    from prefetch._source.backend import Found, IndexProgress, SampledRecord, Source
    from prefetch._source.lmdb.growing_index import GrowingIndex

logger = logging.getLogger(__name__)

_INDEX_S_A_LEAF: Final = 0.1 / 65536  # as measured with the file in the page cache
# What lies farther ahead takes the whole index, which reads the leaves in the order of the file.
_MOST_LEAVES_AHEAD: Final = 65536


class LmdbDatabase:
    """A snapshot and its index: the backend `prefetch._source.backend.Database`. Thread-safe.

    Args:
        snapshot: What is read; closed with this object.
        index_progress: Called now and then while the index is built, with the database's path, the
            pages read and the pages to read in all.

    Attributes:
        snapshot: What is read.
        path: Absolute path of the database, as the caller named it.
        num_records: Its records.
        check: `Snapshot.check`.
    """

    def __init__(self, snapshot: Snapshot, index_progress: IndexProgress | None = None) -> None:
        self.snapshot = snapshot
        self.path = snapshot.path
        self.num_records = snapshot.meta.entries
        self.check = snapshot.check  # no method around it: each part of every batch asks
        self._progress = index_progress
        self._index: RecordIndex | None = None
        self._growing: GrowingIndex | None = None
        self._found_by: MappedPages | PreadPages | None = None
        self._index_lock = threading.Lock()
        self._closing = False

    @classmethod
    def open(
        cls, source: Source, *, lock: bool = False, index_progress: IndexProgress | None = None
    ) -> LmdbDatabase:
        """Open a database; see `prefetch._source.open_backend.Opener`. It takes every source."""
        return cls(Snapshot(source, lock=lock), index_progress)

    @property
    def expected_index_s(self) -> float:
        """Seconds that `index` takes where the file is in the page cache, roughly."""
        return self.snapshot.meta.leaf_pages * _INDEX_S_A_LEAF

    def index(self) -> RecordIndex:
        """Return the index; the first call builds it while others wait.

        Raises:
            SourceError: The database is damaged, or was changed or truncated meanwhile.
            FeedClosedError: The database is closed meanwhile.
            OutOfMemoryError: There is no memory for it.
        """
        if self._index is not None:
            return self._index
        with self._index_lock:
            if self._index is None:
                logger.info(
                    "%s: indexing %d records in %d pages",
                    printable_path(self.path),
                    self.num_records,
                    self.snapshot.meta.leaf_pages,
                )
                begin = time.perf_counter()
                try:
                    with error_context(self.path, "index"):
                        self._index = RecordIndex.build(
                            self.snapshot.file, self.snapshot.meta, progress=self._report
                        )
                except CorruptDatabaseError:
                    self.snapshot.check()  # pages that were written over look like damage
                    raise
                logger.info(
                    "%s: the index took %.3f s and takes %d bytes",
                    printable_path(self.path),
                    time.perf_counter() - begin,
                    self._index.nbytes,
                )
            return self._index

    def cover(self, place: int) -> bool:
        """Have `find` and `mapping` serve the records up to a place, without the whole index.

        What comes before it is indexed, as far as that is not done; a leaf page takes 0.3 us.

        Returns:
            Whether that is so; False where the file is not mapped.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The database is closed.
        """
        mapping = self.mapping()
        if mapping is None:
            return False
        with self._index_lock:
            if self._index is None and self._growing is None:
                self._growing = mapping.begin_index()
        self.index_for(place)
        return True

    def index_for(self, place: int) -> RecordIndex:
        """Return an index that knows the records up to a place: the whole one, or what `cover` has.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The database is closed.
        """
        if self._index is not None:
            return self._index
        growing = self._growing
        if growing is None:
            return self.index()
        if place < growing.index.num_records:
            return growing.index
        if not place < self.num_records or growing.leaves_to(place) > _MOST_LEAVES_AHEAD:
            return self.index()
        with self.snapshot.using(), error_context(self.path, "index"), self._index_lock:
            return self._grow(growing, place)

    def _grow(self, growing: GrowingIndex, place: int) -> RecordIndex:
        """Let an index grow until it knows a place; with the lock."""
        try:
            while place >= growing.index.num_records:
                self._refuse_closing()
                growing.grow()
        except BaseException:
            self._growing = None  # where it stands is not known any more
            raise
        if growing.is_whole:
            self._index = growing.index
        return growing.index

    def mapping(self) -> MappedPages | None:
        """Return the mapping of the file, made at the first call; None where there can be none.

        Raises:
            FeedClosedError: The database is closed.
        """
        finder = self._finder()
        return finder if isinstance(finder, MappedPages) else None

    def find(self, places: npt.NDArray[np.int64]) -> Found:
        """Return records by their places in key order; the first call builds the index.

        Blocks while pages are read. A small record costs about 0.1 us where the file is mapped,
        5 us where it is not.

        Raises:
            IndexError: There is no such record.
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The database is closed.
        """
        with self.snapshot.using():
            index = self.index_for(int(places.max()) if places.size else 0)
            return self._finder().find(*index.places(places))

    def scan(self) -> _Scan | None:
        """Return a walk over the records, which needs no index; None once there is one."""
        return None if self._index is not None else _Scan(self)

    def find_in_pages(self, pages: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]) -> Found:
        """Return records as `find` does, by their leaf pages and their places there.

        Args:
            pages: (n,) int64: the leaf page of each.
            slots: (n,) int64: its place there.
        """
        with self.snapshot.using():
            return self._finder().find(pages, slots)

    def _finder(self) -> MappedPages | PreadPages:
        """Return what finds records: the file mapped, or read piece by piece if it cannot be."""
        if self._found_by is not None:
            return self._found_by
        if self._closing:
            raise FeedClosedError(f"{self.path}: the record source is closed")
        file, meta, kernels = self.snapshot.file, self.snapshot.meta, selection.native
        finder: MappedPages | PreadPages = PreadPages(file, meta)
        if kernels is not None:
            try:
                finder = MappedPages(file, meta, kernels, self.index_for)
            except OSError as error:  # no address space is left, most likely
                if isinstance(error, SourceError):
                    raise
                logger.info(
                    "%s: not mapped, but read piece by piece: %s",
                    printable_path(self.path),
                    str(error),
                )
        # Several threads may come here at once: each makes one, and any of them serves all.
        self._found_by = finder
        return finder

    def known_key(self, place: int) -> bytes | None:
        """Return a record's key where the index is built and can be read, else None."""
        index = self._index
        if index is None:
            return None
        try:
            return index.key(place)
        except SourceError:
            return None

    def is_at(self, folder: Path) -> bool:
        """Return whether this is the database in a folder, by any path."""
        try:
            status = (folder / "data.mdb").stat()
        except OSError:
            return False
        return (status.st_dev, status.st_ino) == self.snapshot.file.identity

    def sample(self, num_records: int, *, seed: int = 0) -> Generator[SampledRecord, None, None]:
        """Draw about so many records; see `RecordSampler`."""
        return iter(RecordSampler(self.snapshot, self.find_in_pages, num_records, seed=seed))

    def end_keys(self) -> tuple[bytes, bytes]:
        """Return the first key and the last."""
        pages = TreePages(self.snapshot.file, self.snapshot.meta)
        with self.snapshot.using():
            first, last = pages.first_leaf(), pages.last_leaf()
            assert first is not None, "a snapshot holds at least one record"
            assert last is not None
            return pages.key(first, 0), pages.key(last, pages.record_count(last) - 1)

    def fingerprint(self) -> Fingerprint:
        """Return what tells the snapshot from others: its last transaction and both its ends."""
        state = f"transaction {self.snapshot.meta.txn_id}, ends {self.snapshot.ends_digest}"
        return Fingerprint(self.num_records, state)

    def stored_bytes(self) -> StoredBytes:
        """Return what the data file takes."""
        status, meta = os.fstat(self.snapshot.file.fileno()), self.snapshot.meta
        num_pages = 2 + meta.branch_pages + meta.leaf_pages + meta.overflow_pages
        return StoredBytes(status.st_size, 512 * status.st_blocks, num_pages * meta.page_bytes)

    def close(self) -> None:
        """Close the snapshot after the calls that use it; ends the building of an index."""
        self._closing = True
        self._found_by = None
        self.snapshot.close()

    def _report(self, num_read: int, num_pages: int) -> None:
        self._refuse_closing()
        if self._progress is not None:
            self._progress(self.path, num_read, num_pages)

    def _refuse_closing(self) -> None:
        if self._closing:
            raise FeedClosedError(f"{self.path}: closed while its index was built")


class _Scan:
    """A walk over the leaf pages, and the records found in them."""

    def __init__(self, database: LmdbDatabase) -> None:
        self._database = database
        self._leaves = LeafScan(database.snapshot.file, database.snapshot.meta)

    def take(self, num: int) -> Found:
        with self._database.snapshot.using():
            return self._database.find_in_pages(*self._leaves.take(num))
