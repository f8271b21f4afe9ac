"""What fills a part of a batch: the protocol of the host's and the device's way."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from prefetch._record.faults import Fault
    from prefetch._source.mapped_records import MappedRecords


def never_cancelled() -> None:
    """Do nothing: the check of a filler that cannot be cancelled."""


class StoredImage(NamedTuple):
    """What a record holds, before any crop.

    Attributes:
        channels: 1 or more.
        height: In pixels.
        width: In pixels.
        encoded: Whether it has to be decoded.
    """

    channels: int
    height: int
    width: int
    encoded: bool


class RecordFiller(Protocol):
    """What fills a slot's rows from records, for one thread."""

    def sample_shape(
        self, records: Sequence[memoryview] | MappedRecords, /
    ) -> tuple[int, ...] | Fault:
        """Return the shape of what a slot has for each record, by the first of its batch."""

    def stored_image(self, records: Sequence[memoryview] | MappedRecords, /) -> StoredImage | Fault:
        """Return what the first of some records holds, or what is wrong with it."""

    def fill(
        self,
        records: Sequence[memoryview] | MappedRecords,
        words: NDArray[np.uint32],
        data: Any,
        labels: NDArray[Any] | None,
        /,
    ) -> list[Fault]:
        """Fill rows of the slot and their labels from records; return the bad ones."""
