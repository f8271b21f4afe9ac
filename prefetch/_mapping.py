"""A database's file in memory, and records found in it without a Python object for each.

LMDB finds a value by a search from the root, and hands it over as an object: 1 us and more, where
copying a small record takes a tenth of that. With the packed index the leaf page and the place in
it are known, and the C kernel finds key and value there itself, a whole part of a batch at a time
and without the GIL. What it reads it checks; where pages contradict each other it says so.

This takes a mapping of the file beside LMDB's own. Where there is no address space for that, or no
C kernel, records are read through LMDB.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import numpy as np

from prefetch._errors import CorruptDatabaseError
from prefetch._spans import Spans

if TYPE_CHECKING:
    import numpy.typing as npt

    from prefetch._database_file import DatabaseFile, Meta
    from prefetch._kernel_choice import SpanKernels


class Mapping:
    """The pages of one committed state, mapped. Thread-safe.

    The file stays mapped as long as this object or any record found in it is there. As with every
    mapping, a file that is truncated while it is read kills the process; see `Snapshot.check`.

    Args:
        file: The database.
        meta: The state.
        kernels: Finds the records.

    Raises:
        DatabaseTruncatedError: The file is shorter than its pages.
        OSError: It cannot be mapped.
    """

    def __init__(self, file: DatabaseFile, meta: Meta, kernels: SpanKernels) -> None:
        file.check_size(meta)
        self._path = file.path
        self._page_bytes = meta.page_bytes
        self._kernels = kernels
        mapped = mmap.mmap(
            file.fileno(),
            (meta.last_page + 1) * meta.page_bytes,
            flags=mmap.MAP_SHARED,
            prot=mmap.PROT_READ,
        )
        self._memory = memoryview(mapped)

    def find(
        self, pages: npt.NDArray[np.int64], slots: npt.NDArray[np.int64]
    ) -> tuple[Spans, Spans]:
        """Return the keys and the values of records.

        Blocks while pages are read, without the GIL.

        Args:
            pages: (n,) int64: the leaf page of each.
            slots: (n,) int64: its place there.

        Raises:
            CorruptDatabaseError: The pages contradict each other.
        """
        spans = np.empty((4, len(pages)), np.int64)
        bad = self._kernels.locate(self._memory, self._page_bytes, pages, slots, spans)
        if bad >= 0:
            raise CorruptDatabaseError(
                self._path,
                f"is damaged: page {pages[bad]} has no sound record at place {slots[bad]}; "
                f"copy it again from its origin",
            )
        return Spans(self._memory, spans[0], spans[1]), Spans(self._memory, spans[2], spans[3])
