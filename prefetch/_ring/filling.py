"""What belongs to one filling of a slot: from the plan of its batch until the consumer has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from memory import Stream
    from prefetch._bad_records.policy import BadRecord
    from prefetch._plan.order import PlannedBatch
    from prefetch._ring.lease import Lease
    from prefetch._ring.push_block import HostBlock
    from prefetch._ring.slot import Slot
    from prefetch._source.packed_keys import PackedKeys
    from prefetch._source.records import Records


class FoundShape(NamedTuple):
    """What each record of a batch takes, and how that is known.

    Attributes:
        sample: (C, H, W) or (H, W, C) of every sample; where the device transforms, (C, H, W) of
            every record's place in the staging memory.
        is_raw: Whether the first record is raw, and found in a mapping of the file.
        is_guessed: Whether the shape is yet to be confirmed by the first record.
    """

    sample: tuple[int, ...]
    is_raw: bool = False
    is_guessed: bool = False


class Parts:
    """The parts of a batch: how many there are, were given to readers, and are done.

    Args:
        size: Places in the batch.
        num: Parts to cut it in, at most.

    Attributes:
        num: Parts in all.
        num_given: Those that readers were given.
        num_done: Those that readers have finished.
        is_small_raw: Whether the batch is raw and small, so that one reader fills several of its
            kind in one native call.
    """

    # Of the class until they are set, so that a small batch costs few steps.
    num = 1
    num_given = 0
    num_done = 0
    is_small_raw = False

    def __init__(self, size: int, num: int = 1) -> None:
        self._size = self._part_size = size
        if num > 1:
            self._part_size = -(-size // num)  # rounded up: the last part may be smaller
            self.num = -(-size // self._part_size)

    @property
    def num_left(self) -> int:
        """Parts that no reader was given yet."""
        return self.num - self.num_given

    @property
    def is_idle(self) -> bool:
        """Whether no reader is at any of them."""
        return self.num_done == self.num_given

    def give(self) -> tuple[int, int, int]:
        """Give the next part to a reader: its number, its first place, and the one behind it."""
        number = self.num_given
        self.num_given = number + 1
        start = number * self._part_size
        return number, start, min(start + self._part_size, self._size)

    def done(self) -> bool:
        """Count a part as done; return whether it was the last."""
        self.num_done += 1
        return self.num_done == self.num


class Filling:
    """One filling of one slot: made when it begins, over when the slot is free again.

    The reader that has opened it writes what it plans and finds, and readers write what they have
    filled; failures, parts and discarding are guarded by the coordinator's lock.

    Args:
        slot: The slot, which is free.
        sequence: Serial number of the batch in the feed's life.
        block: Host memory that is lent to the slot; None where it needs none.

    Attributes:
        lease: The batch's hold on the slot; None when it is over, or the consumer's.
        planned: The batch; None until it is planned.
        indices: (N,) int64 record indices as delivered: substitutes are named.
        words: (N, 3) uint32 raw random words.
        records: The values that were walked in order; None where readers fetch them.
        shape: What each record takes.
        contents: Data and labels, None for no labels: an array or `StagedRows`, and an array, to be
            filled; once they are pushed, Blobs.
        more: The batch's other fields by name, arrays or Blobs as the contents; None where batches
            have none.
        parts: How far they are filled; None before the first record has fixed the shape.
        keys: The records' keys, packed, by part number.
        bad: The bad records that were replaced, in order, each by its number, by part number.
        bad_to_log: Those of them that are to be logged.
        failure: (position in the batch, exception) of the first thing that went wrong.
        is_discarded: Whether the batch is no longer wanted.
    """

    # Of the class until they are set, so that a small batch costs few steps.
    planned: PlannedBatch | None = None
    indices: npt.NDArray[np.int64] | None = None
    words: npt.NDArray[np.uint32] | None = None
    records: Records | None = None
    shape: FoundShape | None = None
    contents: tuple[Any, Any] | None = None
    more: dict[str, Any] | None = None
    parts: Parts | None = None
    bad_to_log: tuple[BadRecord, ...] = ()
    failure: tuple[int, BaseException] | None = None
    is_discarded = False

    def __init__(self, slot: Slot, sequence: int, block: HostBlock | None = None) -> None:
        self.slot = slot
        self.sequence = sequence
        self.lease: Lease | None = slot.begin(self, block)
        self.keys: dict[int, PackedKeys] = {}
        self.bad: dict[int, dict[int, BadRecord]] = {}

    def describe(self) -> str:
        """Say which batch it is and how far it has come, with a space before each."""
        planned, parts = self.planned, self.parts
        if self.lease is None:
            return ""
        batch = "" if planned is None else f" epoch {planned.epoch} batch {planned.number}"
        return batch + (f" {parts.num_done} of {parts.num} parts" if parts is not None else "")

    @property
    def name(self) -> tuple[int, int]:
        """Epoch and number of the batch; (-1, -1) before it is planned."""
        return (-1, -1) if self.planned is None else (self.planned.epoch, self.planned.number)

    @property
    def size(self) -> int:
        """N, the number of places in the batch; 0 before it is planned."""
        return 0 if self.planned is None else len(self.planned.records)

    @property
    def is_small_raw(self) -> bool:
        """See `Parts`."""
        return self.parts is not None and self.parts.is_small_raw

    def fail(self, position: int, error: BaseException) -> None:
        """Note what went wrong at a position; the first in the batch's order is kept."""
        if self.failure is None or position < self.failure[0]:
            self.failure = (position, error)

    def push(self, stream: Stream) -> None:
        """Queue the device's work; without the lock, by the reader of the last part."""
        assert self.lease is not None
        self.contents = self.slot.push(self.lease, stream)
        if self.more is not None:
            slot = self.slot
            self.add_fields(slot.memory.field_blobs(self.lease, slot.events[-1]))

    def add_fields(self, fields: dict[str, Any]) -> None:
        """Add fields to the contents; one called label takes the place of the records' labels."""
        assert self.contents is not None
        data, labels = self.contents
        self.contents = data, fields.pop("label", labels)
        self.more = fields

    def release_records(self) -> None:
        """Release the walked values; idempotent."""
        records = self.records
        if records is not None:
            self.records = None
            records.release()

    def forget(self) -> None:
        """Drop all that holds memory; idempotent.

        Unless the consumer has anything of the batch, that ends the lease, and puts the slot on the
        queue of returns.
        """
        if self.records is not None:
            self.release_records()
        # In one assignment: the lease ends here, or with what the consumer has of the contents. The
        # failure's traceback keeps what the reader had in its hands.
        self.words = self.failure = self.contents = self.more = self.lease = None
