"""A database's file read piece by piece, where it cannot be mapped a second time.

The counterpart of `prefetch._source.lmdb.mapped.MappedPages` for a process without the address
space for that (as under ``ulimit -v``), or without the C kernels: every key and value is copied by
``pread`` when it is asked for. That takes 5 us a record and more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, overload

import numpy as np

from prefetch._source.lmdb.pages import TreePages
from prefetch._source.spans import Views

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
        """Return the keys and the values of records, as `MappedPages.find` does.

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


class FileSpans(Views):
    """Bytes by their places in a file: copies that are read when they are asked for.

    Args:
        file: Where they lie; kept until `release`.
        meta: The state that they belong to.
        begins: (n,) int64: offset of each.
        sizes: (n,) int64: bytes of each.
    """

    __slots__ = ("_begins", "_file", "_meta", "_sizes")

    def __init__(
        self,
        file: DatabaseFile,
        meta: Meta,
        begins: npt.NDArray[np.int64],
        sizes: npt.NDArray[np.int64],
    ) -> None:
        self._file: DatabaseFile | None = file
        self._meta = meta
        self._begins = begins
        self._sizes = sizes

    def __len__(self) -> int:
        """Return n."""
        return len(self._begins)

    @overload
    def __getitem__(self, place: int) -> memoryview: ...
    @overload
    def __getitem__(self, place: slice) -> FileSpans: ...
    def __getitem__(self, place: int | slice) -> memoryview | FileSpans:
        """Return one piece, read now, or some of the spans.

        Raises:
            DatabaseTruncatedError: The file has become shorter.
            SourceError: It cannot be read.
            ValueError: They were released.
        """
        file = self._file
        if file is None:
            raise ValueError("operation forbidden on released spans")
        if isinstance(place, slice):
            return FileSpans(file, self._meta, self._begins[place], self._sizes[place])
        size, begin = int(self._sizes[place]), int(self._begins[place])
        return memoryview(file.read_all(size, begin, self._meta))

    def release(self) -> None:
        """Drop the file; asking for a view afterwards raises."""
        self._file = None
