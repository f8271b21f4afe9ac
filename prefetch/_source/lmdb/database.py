"""One database of a source: its snapshot, and its packed index from the first need on."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from prefetch._errors.classes import CorruptDatabaseError, FeedClosedError, SourceError
from prefetch._errors.context import error_context
from prefetch._errors.printable import printable_path
from prefetch._kernels import selection
from prefetch._source.lmdb.index import RecordIndex
from prefetch._source.lmdb.mapped import Mapping
from prefetch._source.lmdb.pread import PreadPages
from prefetch._source.lmdb.scan import LeafScan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np
    import numpy.typing as npt

    from prefetch._source.lmdb.snapshot import Snapshot
    from prefetch._source.lmdb.spans import FileSpans, Spans

    IndexProgress = Callable[[str, int, int], None]

logger = logging.getLogger(__name__)

_INDEX_S_A_LEAF: Final = 0.1 / 65536  # as measured with the file in the page cache


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
        self._found_by: Mapping | PreadPages | None = None
        self._index_lock = threading.Lock()
        self._closing = False

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

    @property
    def expected_index_s(self) -> float:
        """Seconds that `index` takes where the file is in the page cache, roughly."""
        return self.snapshot.meta.leaf_pages * _INDEX_S_A_LEAF

    @property
    def is_indexed(self) -> bool:
        """Whether the index is built."""
        return self._index is not None

    @property
    def is_mapped(self) -> bool:
        """Whether records are found in a mapping of the file; the first call maps it."""
        return self.mapping() is not None

    def mapping(self) -> Mapping | None:
        """Return the mapping of the file, made at the first call; None where there can be none.

        Raises:
            FeedClosedError: The database is closed.
        """
        finder = self._finder()
        return finder if isinstance(finder, Mapping) else None

    def find(
        self, pages: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]
    ) -> tuple[Spans | FileSpans, Spans | FileSpans]:
        """Return the keys and the values of records by leaf page and place there.

        Blocks while pages are read. Where the file is mapped a small record costs about 0.1 us.

        Args:
            pages: (n,) int64: the leaf page of each.
            slots: (n,) int64: its place there.

        Raises:
            CorruptDatabaseError: The pages contradict each other.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        return self._finder().find(pages, slots)

    def walk(self) -> LeafScan:
        """Return a walk over the records from the first on, which needs no index."""
        return LeafScan(self.snapshot.file, self.snapshot.meta)

    def _finder(self) -> Mapping | PreadPages:
        """Return what finds records: the file mapped, or read piece by piece if it cannot be."""
        if self._found_by is not None:
            return self._found_by
        if self._closing:
            raise FeedClosedError(f"{self.path}: the record source is closed")
        file, meta, kernels = self.snapshot.file, self.snapshot.meta, selection.native
        finder: Mapping | PreadPages = PreadPages(file, meta)
        if kernels is not None:
            try:
                finder = Mapping(file, meta, kernels)
            except OSError as error:  # no address space is left, most likely
                if isinstance(error, SourceError):
                    raise
                logger.info(
                    "%s: not mapped, but read piece by piece: %s",
                    printable_path(self.path),
                    str(error),
                )
        self._found_by = finder
        return finder

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
    def using(self) -> Iterator[None]:
        """Keep the database open during a block, and tell damage from what a writer did.

        Raises:
            FeedClosedError: The database is closed.
            DatabaseChangedError: The block met damage, and a writer is why.
            SourceError: The block met damage.
        """
        with self.snapshot.using():
            try:
                yield
            except CorruptDatabaseError:
                self.snapshot.check()  # pages that were written over look like damage
                raise

    def close(self) -> None:
        """Close the snapshot after the calls that use it; ends the building of an index."""
        self._closing = True
        self._found_by = None
        self.snapshot.close()

    def _report(self, num_read: int, num_pages: int) -> None:
        if self._closing:
            raise FeedClosedError(f"{self.path}: closed while its index was built")
        if self._progress is not None:
            self._progress(self.path, num_read, num_pages)
