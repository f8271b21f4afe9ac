"""One place of the ring: memory for one batch, filled again and again.

On a device with memory of its own that is the device's; a block of host memory is lent to the slot
while its batch is filled and copied.

A slot goes FREE -> FILLING -> UPLOADING -> READY -> LEASED -> (DRAINING ->) FREE. A slot whose
batch nobody wants any more (an abandoned epoch) skips LEASED: dropping its lease brings it back
the same way. All fields are guarded by the prefetcher's lock, except where a method says otherwise.
"""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._ring.lease import Lease, LeaseEnd, export_array
from prefetch._ring.push_block import PushedMemory
from prefetch._ring.staged_memory import StagedMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from queue import SimpleQueue

    import numpy.typing as npt

    from memory import Blob, Device, Event, HostBuffer, Stream
    from prefetch._bad_records.policy import BadRecord
    from prefetch._plan.order import PlannedBatch
    from prefetch._ring.keep import Keeper
    from prefetch._ring.push_block import HostBlock
    from prefetch._source.mapped_records import MappedRecords
    from prefetch._source.packed_keys import PackedKeys
    from prefetch._source.source import Records
    from prefetch._transform.device import DeviceTransform
    from prefetch._transform.staged_rows import StagedRows


class SlotState(enum.Enum):
    """Where a slot stands in its life."""

    FREE = "free"
    FILLING = "filling"
    UPLOADING = "uploading"
    READY = "ready"
    LEASED = "leased"
    DRAINING = "draining"


class _HostMemory:
    """Host memory for a batch's data or labels, where the host's is all there is; never shrinks."""

    __slots__ = ("_address", "_buffer", "_device")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._buffer: HostBuffer | None = None
        self._address = 0

    def drop(self) -> None:
        """Let go of the memory; what was exported keeps it."""
        self._buffer = None

    @property
    def blocks(self) -> tuple[object, ...]:
        """What keeps the memory."""
        return (self._buffer,)

    @property
    def host_bytes(self) -> int:
        return 0 if self._buffer is None else self._buffer.nbytes

    def bind(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], lease: Lease, *, most_rows: int
    ) -> npt.NDArray[Any]:
        """Return a writable array over this memory that holds ``lease``.

        Where memory must be allocated, there is room for ``most_rows`` rows at once: a slot whose
        first batch is an epoch's short last one is not allocated twice.
        """
        nbytes = math.prod(shape) * dtype.itemsize
        host = self._buffer
        if host is None or host.nbytes < nbytes:
            # The old block goes first, and with it whatever refers to it: never both at once.
            host = self._buffer = None
            room = nbytes // shape[0] * max(shape[0], most_rows)
            host = self._buffer = self._device.alloc_host(room)
            self._address = host.array.__array_interface__["data"][0]
        return export_array(host, lease, address=self._address, shape=shape, dtype=dtype)


class Slot:
    """Memory and bookkeeping of one batch on its way to the consumer.

    Attributes:
        number: Place in the ring, counted from 0.
        device: Where its memory is.
        state: Where the slot stands.
        sequence: Serial number of its batch in the feed's life.
        leased_as: (epoch, number) of the batch that the consumer holds, while it does.
        planned: The batch that it holds or is being filled with.
        size: N, the number of places in that batch.
        words: (N, 3) uint32 raw random words of that batch.
        records: The batch's values where they were walked in order, or its records where they have
            been used already; None where readers fetch them.
        indices: (N,) int64 record indices as delivered (substitutes named).
        keys: The records' keys, packed, by part number.
        bad: The bad records that others stand in for, in order, each by its number, by part number.
        news: Those of its bad records that are to be logged.
        is_raw: Whether its first record is raw, and found in a mapping of the file.
        is_guessed: Whether its shape is yet to be confirmed by its first record.
        is_small_raw: Whether it is raw and the batch is small, so that one reader fills several
            of them in one native call.
        num_parts: Parts of the batch; 0 until the first record has fixed the shape.
        next_part: The next part to be handed to a reader.
        parts_done: Parts that readers have finished.
        failure: (position in the batch, exception) of the first thing that went wrong.
        discarded: Whether the batch is no longer wanted.
        block: Host memory that is lent to the slot; None where it has its own, or none is needed.
        data: (N, ...) rows being filled: the batch's own, or in ``block``.
        labels: (N,) host array being filled; None where there are no labels.
        events: Events of the work that fills the device's memory, and of what the consumer has it
            kept until; while it is draining, of what is waited for.
        keeper: Waits for what it is kept until.
    """

    keeper: Keeper

    def __init__(
        self,
        number: int,
        device: Device,
        returns: SimpleQueue[Any],
        *,
        transform: DeviceTransform | None = None,
    ) -> None:
        self.number = number
        self.device = device
        self.state = SlotState.FREE
        self.sequence = -1
        self.leased_as = (-1, -1)
        self._returns = returns
        self._data_memory = _HostMemory(device)
        self._label_memory = _HostMemory(device)
        self._device_memory: PushedMemory | StagedMemory | None = None
        if transform is not None:
            self._device_memory = StagedMemory(device, transform)
        elif device.has_device_memory:
            self._device_memory = PushedMemory(device)
        self.block: HostBlock | None = None
        self.streams: list[Stream] = []
        self.events: list[Event] = []
        self.num_pending = 0
        self._lease_end: LeaseEnd | None = None
        self._reset()

    def _reset(self) -> None:
        self.planned: PlannedBatch | None = None
        self.size = 0
        self.words: npt.NDArray[np.uint32] | None = None
        self.records: Records | MappedRecords | None = None
        self.indices: npt.NDArray[np.int64] | None = None
        self.is_raw = False
        self.is_guessed = False
        self.is_small_raw = False
        self.keys: dict[int, PackedKeys] = {}
        self.bad: dict[int, dict[int, BadRecord]] = {}
        self.news: list[BadRecord] = []
        self.num_parts = 0
        self.next_part = 0
        self.parts_done = 0
        self.part_size = 0
        self.failure: tuple[int, BaseException] | None = None
        self.discarded = False
        self.data: npt.NDArray[Any] | StagedRows | None = None
        self.labels: npt.NDArray[Any] | None = None
        self.data_blob: Blob | None = None
        self.label_blob: Blob | None = None
        self.lease: Lease | None = None

    def __repr__(self) -> str:
        planned = self.planned
        batch = "" if planned is None else f" epoch {planned.epoch} batch {planned.number}"
        parts = f" {self.parts_done} of {self.num_parts} parts" if self.num_parts else ""
        return f"<Slot {self.number} {self.reported_state.value}{batch}{parts}>"

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory that the slot owns; what is lent to it is the ring's."""
        return self._data_memory.host_bytes + self._label_memory.host_bytes

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory that the slot owns."""
        return 0 if self._device_memory is None else self._device_memory.device_bytes

    def note_use(self, stream: Stream) -> None:
        """Remember a stream that was handed some of the slot; any thread, without a lock.

        The stream is kept alive until the slot is free again. list.append is atomic; a stream
        noted twice costs one more event.
        """
        if stream not in self.streams:
            self.streams.append(stream)

    def keep_until(self, waits: list[Callable[[], object]], *, name: str, batch: object) -> None:
        """Do not fill it again before all of ``waits`` have returned; while it is leased.

        Args:
            waits: Called on another thread.
            name: Of the batch, for errors.
            batch: What keeps the batch's memory, and its lease.
        """
        blocks = self._blocks
        # Of a feed that is closed the slot's memory has gone, and what the lease keeps is nothing.
        holds = batch if self.keeper.is_stopping else blocks
        self.events.append(self.keeper.keep(waits, name=name, holds=holds))

    @property
    def _blocks(self) -> tuple[object, ...]:
        """What keeps the memory that the consumer is handed."""
        if self._device_memory is not None:
            return self._device_memory.blocks
        return (*self._data_memory.blocks, *self._label_memory.blocks)

    @property
    def is_held(self) -> bool:
        """Whether the consumer has anything of its batch; without the lock it may be no more.

        Other than by `state` this is told at once: what comes back when nothing is left may be in
        the hands of a reader that has yet to take the lock.
        """
        end = self._lease_end
        return self.state is SlotState.LEASED and end is not None and end() is not None

    @property
    def reported_state(self) -> SlotState:
        """The state as `FeedStats` has it: a batch that was let go of has gone, taken in or not."""
        state = self.state
        is_gone = state is SlotState.LEASED and not self.is_held
        return SlotState.DRAINING if is_gone else state

    def begin(
        self,
        planned: PlannedBatch,
        *,
        words: npt.NDArray[np.uint32],
        records: Records | None,
    ) -> None:
        """Take up a batch: FREE -> FILLING, with a lease of its own."""
        self.planned = planned
        self.size = len(planned.records)
        self.words = words
        self.records = records
        self.indices = planned.records.copy()
        self.lease = Lease(self)
        self._lease_end = LeaseEnd(self.lease, self._returns, self)

    def shape(
        self,
        sample_shape: tuple[int, ...],
        *,
        dtype: np.dtype[Any],
        label_dtype: np.dtype[Any] | None,
        most_rows: int,
    ) -> None:
        """Give the batch its memory; only the reader that opened the slot calls this.

        Args:
            sample_shape: (C, H, W) or (H, W, C) of every sample; where the device transforms, (C,
                H, W) of every record's place in the staging memory.
            dtype: Element type of the data.
            label_dtype: Element type of the labels; None for no labels.
            most_rows: Samples of the largest batch that the slot will ever hold.
        """
        assert self.lease is not None
        shape = (self.size, *sample_shape)
        if self._device_memory is not None:
            assert self.block is not None
            self.data, self.labels = self._device_memory.bind(
                shape, dtype, label_dtype, self.block, most_rows=most_rows
            )
            return
        self.data = self._data_memory.bind(shape, dtype, self.lease, most_rows=most_rows)
        if label_dtype is not None:
            self.labels = self._label_memory.bind(
                (self.size,), label_dtype, self.lease, most_rows=most_rows
            )

    def contents(self) -> tuple[Blob | npt.NDArray[Any], Blob | npt.NDArray[Any] | None]:
        """Return the complete batch's data and labels: arrays where the host's is all there is."""
        if self.data_blob is not None:
            return self.data_blob, self.label_blob
        assert isinstance(self.data, np.ndarray)
        return self.data, self.labels

    def fail(self, position: int, error: BaseException) -> None:
        """Note what went wrong at a position; the first in the batch's order is kept."""
        if self.failure is None or position < self.failure[0]:
            self.failure = (position, error)

    def release_records(self) -> None:
        """Let go of the walked values; idempotent."""
        records, self.records = self.records, None
        if records is not None:
            records.release()

    def push(self, stream: Stream) -> None:
        """Queue the device's work; without the lock, by the reader of the last part."""
        assert self.lease is not None
        assert self._device_memory is not None
        self.data_blob, self.label_blob = self._device_memory.push(self.lease, stream, self.events)

    def leave_block(self) -> HostBlock | None:
        """Let go of the host memory that was lent; return it.

        It is free as soon as ``events`` have passed.
        """
        block, self.block = self.block, None
        if self._device_memory is not None:
            self._device_memory.leave()
            self.data = self.labels = None
        return block

    def forget(self) -> None:
        """Drop everything of the batch but the memory, the events and the noted streams.

        Dropping the lease puts the slot on the queue of returns, unless the consumer has it.
        """
        self.release_records()
        self._reset()

    def keep_memory_until(self, events: Sequence[Event]) -> None:
        """Keep the device's memory, beyond `close`, until every one of ``events`` has passed."""
        blocks = list(self._blocks)
        for event in events:
            event.notify(blocks.copy().clear)

    def close(self) -> None:
        """Let go of the memory for good; what the consumer still holds of it stays valid."""
        self.forget()
        self.streams.clear()
        self.events.clear()
        self.drop_memory()

    def drop_memory(self) -> None:
        """Let go of the memory, but not of the batch that is being handed over."""
        self._data_memory.drop()
        self._label_memory.drop()
        if self._device_memory is not None:
            self._device_memory.drop()

    def give_back(self) -> None:
        """Forget a batch that the consumer never got, and put the slot on the queue of returns."""
        leased = self.lease is not None
        self.forget()
        if not leased:  # planning failed, there was no lease yet
            self._returns.put(self)
