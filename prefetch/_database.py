"""One database of a source: its snapshot, and its packed index from the first need on."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import lmdb

from prefetch import _kernel_choice
from prefetch._errors import CorruptDatabaseError, FeedClosedError, SourceError
from prefetch._index import RecordIndex
from prefetch._lmdb import source_error
from prefetch._mapping import Mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prefetch._snapshot import Reading, Snapshot

    IndexProgress = Callable[[str, int, int], None]

logger = logging.getLogger(__name__)


class Database:
    """A snapshot and its index. Thread-safe.

    Args:
        snapshot: What is read; closed with this object.
        index_progress: Called now and then while the index is built, with the database's path, the
            pages read and the pages to read in all.

    Attributes:
        snapshot: What is read.
        path: Absolute path of the database, as the caller named it.
        num_records: Its records.
    """

    def __init__(self, snapshot: Snapshot, index_progress: IndexProgress | None = None) -> None:
        self.snapshot = snapshot
        self.path = snapshot.path
        self.num_records = snapshot.meta.entries
        self._progress = index_progress
        self._index: RecordIndex | None = None
        self._mapping: Mapping | None = None
        self._can_map = _kernel_choice.native is not None
        self._index_lock = threading.Lock()
        self._closing = False

    def index(self) -> RecordIndex:
        """Return the index; the first call builds it while others wait.

        Raises:
            SourceError: The database is damaged, or was changed or truncated meanwhile.
            FeedClosedError: The database is closed meanwhile.
        """
        with self._index_lock:
            if self._index is None:
                logger.info(
                    "%s: indexing %d records in %d pages",
                    self.path,
                    self.num_records,
                    self.snapshot.meta.leaf_pages,
                )
                begin = time.perf_counter()
                self._index = RecordIndex.build(
                    self.snapshot.file, self.snapshot.meta, progress=self._report
                )
                logger.info(
                    "%s: the index took %.3f s and takes %d bytes",
                    self.path,
                    time.perf_counter() - begin,
                    self._index.nbytes,
                )
            return self._index

    @property
    def is_mapped(self) -> bool:
        """Whether records can be found in a mapping of the file; the first call maps it."""
        if self._mapping is not None:
            return True
        kernels = _kernel_choice.native
        if not self._can_map or kernels is None:
            return False
        try:
            self._mapping = Mapping(self.snapshot.file, self.snapshot.meta, kernels)
        except OSError as error:  # no address space is left, most likely
            self._can_map = False
            logger.info("%s: not mapped, but read through LMDB: %s", self.path, error)
        return self._mapping is not None

    def mapping(self) -> Mapping:
        """Return the mapping; only where `is_mapped` has been true.

        Raises:
            FeedClosedError: The database is closed.
        """
        mapping = self._mapping
        if mapping is None:
            raise FeedClosedError(f"{self.path}: the record source is closed")
        return mapping

    def refuse_changed(self) -> None:
        """Raise if a writer may be why something looks like damage.

        Raises:
            DatabaseChangedError: It may.
            DatabaseTruncatedError: The file has become shorter.
        """
        self.snapshot.check()

    def known_key(self, record: int) -> bytes | None:
        """Return a record's key where the index is built and can be read, else None."""
        index = self._index
        if index is None:
            return None
        try:
            return index.key(record)
        except SourceError:
            return None

    @contextmanager
    def using(self, reading: Reading) -> Iterator[lmdb.Transaction[memoryview]]:
        """Give a transaction to a block alone, and turn LMDB's errors into this package's.

        Raises:
            FeedClosedError: The database is closed.
            DatabaseChangedError: The block met damage, and a writer is why.
            SourceError: The block met damage.
        """
        with reading.lock:
            if reading.closed:
                raise FeedClosedError(f"{self.path}: the record source is closed")
            try:
                yield reading.transaction
            except (lmdb.Error, CorruptDatabaseError) as error:
                self.refuse_changed()
                if isinstance(error, lmdb.Error):
                    raise source_error(self.path, error) from error
                raise

    def close(self) -> None:
        """Close the snapshot after the calls that use it; ends the building of an index."""
        self._closing = True
        self._mapping = None
        self._can_map = False
        self.snapshot.close()

    def _report(self, num_read: int, num_pages: int) -> None:
        if self._closing:
            raise FeedClosedError(f"{self.path}: closed while its index was built")
        if self._progress is not None:
            self._progress(self.path, num_read, num_pages)
