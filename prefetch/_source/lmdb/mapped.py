"""A database's file in memory, and records found in it without a Python object for each.

LMDB finds a value by a search from the root, and returns an object: 1 us and more, where copying a
small record takes a tenth of that. With the packed index the leaf page and the place in it are
known, and the C kernel finds key and value there, a whole part of a batch at a time and without the
GIL. It checks what it reads.

This takes a mapping of the file beside LMDB's own. Where there is no address space for that, or no
C kernel, `prefetch._source.lmdb.pread` reads the records, and refuses them for the same reasons.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

import numpy as np

from prefetch._errors.classes import CorruptDatabaseError, SourceError
from prefetch._source.lmdb.growing_index import GrowingIndex
from prefetch._source.lmdb.pages import TreePages
from prefetch._source.spans import Spans

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from prefetch._kernels.contract import IndexedPart, NativeKernels, Outcome, Recipe
    from prefetch._source.lmdb.file import DatabaseFile
    from prefetch._source.lmdb.index import RecordIndex
    from prefetch._source.lmdb.meta import Meta


class MappedPages:
    """The pages of one committed state, mapped. Thread-safe.

    The file stays mapped as long as this object or any record found in it is there. As with every
    mapping, a file that is truncated while it is read kills the process; see `Snapshot.check`.

    Args:
        file: The database.
        meta: The state.
        kernels: Finds the records.
        index: Returns an index of the same state that knows the records up to a place; asked only
            by what takes places in key order.

    Raises:
        DatabaseTruncatedError: The file is shorter than its pages.
        OSError: It cannot be mapped.
    """

    def __init__(
        self,
        file: DatabaseFile,
        meta: Meta,
        kernels: NativeKernels,
        index: Callable[[int], RecordIndex],
    ) -> None:
        # Of a file that is too short, the missing pages would be mapped as well: SIGBUS.
        file.check_size(meta)
        self._index = index
        self._path = file.path
        self._meta = meta
        self._page_bytes = meta.page_bytes
        self._pages = TreePages(file, meta)
        self._kernels = kernels
        mapped = mmap.mmap(
            file.fileno(),
            (meta.last_page + 1) * meta.page_bytes,
            flags=mmap.MAP_SHARED,
            prot=mmap.PROT_READ,
        )
        self._memory = memoryview(mapped)

    def begin_index(self) -> GrowingIndex:
        """Return an index of the same state that knows no record yet."""
        return GrowingIndex(self._path, self._pages, self._meta, self._memory)

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
            raise self._damage_error(pages[bad], slots[bad])
        return self.spans(spans)

    def fill(
        self, parts: Sequence[IndexedPart], recipe: Recipe
    ) -> list[tuple[list[Outcome], bytes] | IndexError | CorruptDatabaseError]:
        """Find records and fill parts from them, each as `prefetch._kernels.reference.fill` does.

        Blocks while pages are read, without the GIL. All parts in one call: the thread has to get
        the GIL back once, and what it then does in Python finds its code in the caches.

        Args:
            parts: What is to be filled; spans, int64 (4, n), becomes where everything is: begin and
                size of each key, begin and size of each value.
            recipe: What to do.

        Returns:
            For each part the outcomes, and the keys, one directly after the other; or its error:
            there is no such record, or the pages contradict each other.
        """
        index = self._index(0)
        results = self._kernels.fill_records(
            self._memory, self._page_bytes, index.leaves, index.firsts, recipe, parts
        )
        return [
            (outcomes, keys) if bad < 0 else self._fill_again(index, part, recipe, bad)
            for part, (bad, outcomes, keys) in zip(parts, results, strict=True)
        ]

    def _fill_again(
        self, index: RecordIndex, part: IndexedPart, recipe: Recipe, bad: int
    ) -> tuple[list[Outcome], bytes] | IndexError | CorruptDatabaseError:
        """Fill a part of which a record was not found: that may lie behind what is indexed yet."""
        last = int(part[0].max())
        if last >= index.num_records:
            index = self._index(last)
            ((bad, outcomes, keys),) = self._kernels.fill_records(
                self._memory, self._page_bytes, index.leaves, index.firsts, recipe, [part]
            )
            if bad < 0:
                return outcomes, keys
        record = part[0][bad : bad + 1]
        try:
            pages, slots = index.places(record)
        except IndexError as error:
            return error
        return self._damage_error(pages[0], slots[0])

    def raw_shape(self, place: int, *, is_uint8: bool) -> tuple[int, int, int] | None:
        """Return (channels, height, width) of a record if it is raw and sound, else None.

        Args:
            place: The record's, in key order.
            is_uint8: Whether it is for a batch of uint8.
        """
        index = self._index(place)
        return self._kernels.raw_shape(
            self._memory, self._page_bytes, index.leaves, index.firsts, place, is_uint8
        )

    def advise(self, places: npt.NDArray[np.int64]) -> None:
        """Have the pages of records read before they are needed.

        Waits for their leaf pages where values have pages of their own, whose numbers stand there.

        Args:
            places: (n,) their places in key order, 1 or more.

        Raises:
            SourceError: The index cannot be built.
        """
        pages, slots = self._index(int(places.max())).places(places)
        self._advise(pages, pages + 1)
        if not self._meta.overflow_pages:
            return
        begins, sizes = np.empty((2, len(pages)), np.int64)
        self._kernels.locate_ahead(self._memory, self._page_bytes, pages, slots, begins, sizes)
        first, last = begins // self._page_bytes, (begins + sizes - 1) // self._page_bytes
        is_long = (sizes > 0) & (first != pages)
        self._advise(first[is_long], last[is_long] + 1)

    def _advise(self, first: npt.NDArray[np.int64], end: npt.NDArray[np.int64]) -> None:
        """Have pages read: (n,) runs of them, each from one page to before another."""
        if not len(first):
            return
        order = np.argsort(first)
        first, end = first[order], np.maximum.accumulate(end[order])
        # Those that touch are asked for together: a request takes as long as reading some pages.
        is_new = np.ones(len(first), np.bool_)
        is_new[1:] = first[1:] > end[:-1]
        starts = np.flatnonzero(is_new)
        begins = first[starts]
        sizes = end[np.append(starts[1:], len(first)) - 1] - begins
        self._kernels.advise(self._memory, begins * self._page_bytes, sizes * self._page_bytes)

    def spans(self, spans: npt.NDArray[np.int64]) -> tuple[Spans, Spans]:
        """Return keys and values that lie as `fill` says."""
        return Spans(self._memory, spans[0], spans[1]), Spans(self._memory, spans[2], spans[3])

    def _damage_error(self, page: np.int64, slot: np.int64) -> CorruptDatabaseError:
        # The kernel says that it is, and no more; the reason is the twin's.
        try:
            self._pages.locate(int(page), int(slot))
        except CorruptDatabaseError as error:
            return error
        except SourceError:  # the file is shorter now, or closed
            pass
        return CorruptDatabaseError(
            self._path,
            f"is damaged: page {page} has no sound record at place {slot}; "
            f"copy it again from its origin",
        )
