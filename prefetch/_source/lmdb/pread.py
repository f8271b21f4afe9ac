"""A database's file read piece by piece, where it cannot be mapped a second time.

The counterpart of `prefetch._source.lmdb.mapped.Mapping` for a process without the address space
for that (as under ``ulimit -v``), or without the C kernels: every key and value is copied by
``pread`` at the moment that it is asked for. It takes 5 us a record and more, and no address space.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from prefetch._source.lmdb.pages import TreePages
from prefetch._source.lmdb.spans import FileSpans

if TYPE_CHECKING:
    import numpy.typing as npt

    from prefetch._source.lmdb.file import DatabaseFile
    from prefetch._source.lmdb.meta import Meta


class PreadPages:
    """The pages of one committed state, read as they are needed. Thread-safe.

    Args:
        file: The database; must stay open as long as this object or anything found is used.
        meta: The state.
    """

    def __init__(self, file: DatabaseFile, meta: Meta) -> None:
        self._file = file
        self._meta = meta
        self._pages = TreePages(file, meta)

    def find(
        self, pages: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]
    ) -> tuple[FileSpans, FileSpans]:
        """Return the keys and the values of records, as `Mapping.find` does.

        Args:
            pages: (n,) int64: the leaf page of each.
            slots: (n,) int64: its place there.

        Raises:
            CorruptDatabaseError: The pages contradict each other.
            DatabaseTruncatedError: The file is shorter than its pages.
        """
        places = [
            self._pages.locate(page, slot)
            for page, slot in zip(pages.tolist(), slots.tolist(), strict=True)
        ]
        spans = np.array(places, np.int64).reshape(-1, 4).T
        return (
            FileSpans(self._file, self._meta, spans[0], spans[1]),
            FileSpans(self._file, self._meta, spans[2], spans[3]),
        )
