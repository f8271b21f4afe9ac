"""Records of a mapped database, by their places: found and used in one native call.

Between the plan of a batch and its rows no Python object is made of a record, its key or its place,
and the GIL is released. A single record, such as a bad one, is found again when it is looked at.
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

    FillResult: TypeAlias = list[Outcome] | IndexError | SourceError
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

    __slots__ = ("_found", "_keys", "_places", "_spans", "database", "is_raw", "mapping")

    def __init__(self, database: Database, mapping: Mapping, places: npt.NDArray[np.int64]) -> None:
        self.database = database
        self.mapping = mapping
        self.is_raw = False
        self._places = places
        self._found: Found | None = None
        self._spans: npt.NDArray[np.int64] | None = None
        self._keys: PackedKeys | None = None

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

        Blocks while pages are read, without the GIL.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The source is closed.
        """
        (result,) = fill_together([(self, words, data, labels)], recipe)
        return self.outcomes_of(result)

    def part(
        self,
        words: npt.NDArray[np.uint32],
        data: npt.NDArray[Any],
        labels: npt.NDArray[Any] | None,
    ) -> IndexedPart:
        """Return what the kernel is asked for."""
        return self._places, np.empty((4, len(self._places)), np.int64), words, data, labels

    def note_found(self, spans: npt.NDArray[np.int64], keys: bytes) -> None:
        """Note where the kernel has found the records of a `part`, and their keys."""
        self._spans = spans
        self._keys = PackedKeys(keys, spans[1])

    def outcomes_of(self, result: FillResult) -> list[Outcome]:
        """Return what became of the records, by what `fill_together` has returned for them.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
        """
        if isinstance(result, Exception):
            self.database.check()  # pages that were written over look like damage
            raise result
        return result

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


def fill_together(requests: Sequence[Request], recipe: Recipe) -> list[FillResult]:
    """Fill several parts in one native call.

    Args:
        requests: Records, all of one database, and the words, data and labels for each.
        recipe: What to do.

    Returns:
        For each what `MappedRecords.outcomes_of` takes.

    Raises:
        SourceError: The database was changed or truncated.
        FeedClosedError: The source is closed.
    """
    first = requests[0][0]
    parts = [records.part(words, data, labels) for records, words, data, labels in requests]
    found: list[FillResult] = []
    results = first.mapping.fill(parts, recipe)
    for request, part, result in zip(requests, parts, results, strict=True):
        if isinstance(result, Exception):
            found.append(result)
        else:
            outcomes, keys = result
            request[0].note_found(part[1], keys)
            found.append(outcomes)
    return found


def views(records: Sequence[memoryview] | MappedRecords) -> Sequence[memoryview]:
    """Return records as views of their values."""
    return records.values if isinstance(records, MappedRecords) else records
