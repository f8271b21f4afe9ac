"""Records of a mapped database, by their places: found and used in one native call.

Between the plan of a batch and its rows no Python object is made of a record, its key or its place,
and the GIL is held by nobody. Who wants to look at one record, a bad one, finds it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefetch._batch import PackedKeys
from prefetch._errors import CorruptDatabaseError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Self

    import numpy as np
    import numpy.typing as npt

    from prefetch._database import Database
    from prefetch._mapping import Mapping
    from prefetch._reference import Outcome, Recipe
    from prefetch._spans import Spans


class MappedRecords:
    """Some records, in the order they were asked for. Not thread-safe.

    The file stays mapped as long as this object or a view of a record is there.

    Args:
        database: One that is mapped.
        places: (n,) int64, the places of the records in key order.
    """

    __slots__ = ("_database", "_found", "_keys", "_places")

    def __init__(self, database: Database, places: npt.NDArray[np.int64]) -> None:
        self._database = database
        self._places = places
        self._found: tuple[Spans, Spans] | None = None
        self._keys: PackedKeys | None = None

    def __len__(self) -> int:
        return len(self._places)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.release()

    @property
    def keys(self) -> Spans:
        """The records' keys."""
        return self._find()[0]

    @property
    def values(self) -> Spans:
        """The records' values."""
        return self._find()[1]

    def first_raw_shape(self, *, is_uint8: bool) -> tuple[int, int, int] | None:
        """Return (channels, height, width) of the first record, if it is raw and sound, else None.

        Args:
            is_uint8: Whether it is for a batch of uint8.
        """
        return self._mapping().raw_shape(
            self._database.index(), int(self._places[0]), is_uint8=is_uint8
        )

    def fill(
        self,
        words: npt.NDArray[np.uint32],
        data: npt.NDArray[Any],
        labels: npt.NDArray[Any] | None,
        recipe: Recipe,
    ) -> list[Outcome]:
        """Fill rows from the records, as `prefetch._reference.fill` does from their values.

        Blocks while pages are read, without the GIL.

        Raises:
            SourceError: The database is damaged, or was changed or truncated.
            FeedClosedError: The source is closed.
        """
        try:
            mapping = self._mapping()
            outcomes, key_bytes, spans = mapping.fill(
                self._database.index(),
                self._places,
                words=words,
                data=data,
                labels=labels,
                recipe=recipe,
            )
        except CorruptDatabaseError:
            self._database.snapshot.check()  # pages that were written over look like damage
            raise
        self._keys = PackedKeys(key_bytes, spans[1])
        self._found = mapping.spans(spans)
        return outcomes

    def pack_keys(self) -> PackedKeys:
        """Return the keys, packed."""
        return PackedKeys.pack(self.keys) if self._keys is None else self._keys

    def release(self) -> None:
        """End every use of the records; idempotent. Views of them keep the file mapped."""
        self._found = None

    def _find(self) -> tuple[Spans, Spans]:
        if self._found is None:
            with self._database.using():
                pages, slots = self._database.index().places(self._places)
                self._found = self._mapping().find(pages, slots)
        return self._found

    def _mapping(self) -> Mapping:
        mapping = self._database.mapping()
        assert mapping is not None, "only records of a mapped database are found at use"
        return mapping


def views(records: Sequence[memoryview] | MappedRecords) -> Sequence[memoryview]:
    """Return records as views of their values."""
    return records.values if isinstance(records, MappedRecords) else records
