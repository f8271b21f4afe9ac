"""Records of a mapped database, by their places: found and used in one native call.

Between the plan of a batch and its rows no Python object is made of a record, its key or its place,
and the GIL is held by nobody. Who wants to look at one record, a bad one, finds it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from prefetch._source.packed_keys import PackedKeys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self, TypeAlias

    import numpy.typing as npt

    from prefetch._errors.classes import SourceError
    from prefetch._kernels.contract import IndexedPart, Outcome, Recipe
    from prefetch._source.backend import Database, Found, Mapping

    Request: TypeAlias = """tuple[
        MappedRecords, npt.NDArray[np.uint32], npt.NDArray[Any], npt.NDArray[Any] | None
    ]"""


class MappedRecords:
    """Some records, in the order they were asked for. Not thread-safe.

    The file stays mapped as long as this object or a view of a record is there.

    Args:
        database: One that is mapped.
        mapping: Its mapping.
        places: (n,) int64, the places of the records in key order.

    Attributes:
        database: As given.
        mapping: As given.
        is_raw: Whether the first is known to be raw and sound.
    """

    __slots__ = ("_found", "_keys", "_places", "_result", "_spans", "database", "is_raw", "mapping")

    def __init__(self, database: Database, mapping: Mapping, places: npt.NDArray[np.int64]) -> None:
        self.database = database
        self.mapping = mapping
        self.is_raw = False
        self._places = places
        self._found: Found | None = None
        self._spans: npt.NDArray[np.int64] | None = None
        self._keys: PackedKeys | None = None
        self._result: list[Outcome] | IndexError | SourceError | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    @property
    def keys(self) -> Sequence[memoryview]:
        """The records' keys."""
        return self._find()[0]

    @property
    def values(self) -> Sequence[memoryview]:
        """The records' values."""
        return self._find()[1]

    def first_raw_shape(self, *, is_uint8: bool) -> tuple[int, int, int] | None:
        """Return (channels, height, width) of the first record, if it is raw and sound, else None.

        Args:
            is_uint8: Whether it is for a batch of uint8.
        """
        shape = self.mapping.raw_shape(int(self._places[0]), is_uint8=is_uint8)
        self.is_raw = shape is not None
        return shape

    def fill(
        self,
        words: npt.NDArray[np.uint32],
        data: npt.NDArray[Any],
        labels: npt.NDArray[Any] | None,
        recipe: Recipe,
    ) -> list[Outcome]:
        """Fill rows from the records, as `prefetch._kernels.reference.fill` does from their values.

        Blocks while pages are read, without the GIL, unless `fill_together` was here before.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The source is closed.
        """
        if self._result is None:
            fill_together([(self, words, data, labels)], recipe)
        result, self._result = self._result, None
        assert result is not None
        if isinstance(result, Exception):
            self.database.check()  # pages that were written over look like damage
            raise result
        return result

    def part(
        self,
        words: npt.NDArray[np.uint32],
        data: npt.NDArray[Any],
        labels: npt.NDArray[Any] | None,
    ) -> IndexedPart:
        """Return what the kernel is asked for."""
        return self._places, np.empty((4, len(self)), np.int64), words, data, labels

    def take_result(
        self,
        result: tuple[list[Outcome], bytes] | IndexError | SourceError,
        spans: npt.NDArray[np.int64],
    ) -> None:
        """Take what became of the `part`, for `fill`."""
        if isinstance(result, Exception):
            self._result = result
        else:
            self._result, keys = result
            self._keys = PackedKeys(keys, spans[1])
            self._spans = spans

    def pack_keys(self) -> PackedKeys:
        """Return the keys, packed."""
        return PackedKeys.pack(self.keys) if self._keys is None else self._keys

    def release(self) -> None:
        """End every use of the records; idempotent. Views of them keep the file mapped."""
        self._found = self._spans = None

    def _find(self) -> Found:
        if self._found is None:
            spans = self._spans
            self._found = (
                self.database.find(self._places) if spans is None else self.mapping.spans(spans)
            )
        return self._found


def fill_together(requests: Sequence[Request], recipe: Recipe) -> None:
    """Fill several parts in one native call; `MappedRecords.fill` of each then says how it went.

    Args:
        requests: Records, all of one database, and the words, data and labels for each.
        recipe: What to do.

    Raises:
        SourceError: The database is damaged, or was changed or truncated.
        FeedClosedError: The source is closed.
    """
    first = requests[0][0]
    parts = [records.part(words, data, labels) for records, words, data, labels in requests]
    results = first.mapping.fill(parts, recipe)
    for (records, *_), (_, spans, *_), result in zip(requests, parts, results, strict=True):
        records.take_result(result, spans)


def views(records: Sequence[memoryview] | MappedRecords) -> Sequence[memoryview]:
    """Return records as views of their values."""
    return records.values if isinstance(records, MappedRecords) else records
