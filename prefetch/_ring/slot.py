"""One place of the ring: memory for one batch, filled again and again.

On a device with memory of its own that is the device's; a block of host memory is lent to the slot
while its batch is filled and copied. What belongs to one batch is in a `Filling`; the transitions
are a table in `slot_state`. The coordinator's lock guards all of it, but for what says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from memory import ClosedError
from prefetch._ring.lease import Lease, LeaseEnd
from prefetch._ring.push_block import PushedMemory
from prefetch._ring.slot_memory import HostMemory
from prefetch._ring.slot_state import BEGIN, DRAIN, PUBLISH, SET_FREE, TAKE, UPLOAD, SlotState
from prefetch._ring.staged_memory import StagedMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from queue import SimpleQueue

    import numpy as np
    import numpy.typing as npt

    from memory import Blob, Device, Event, Stream
    from prefetch._ring.keep_until import Keeper
    from prefetch._ring.push_block import HostBlock
    from prefetch._ring.slot_memory import DeviceMemory, SlotMemory
    from prefetch._transform.device import DeviceTransform
    from prefetch._transform.label_form import Field
    from prefetch._transform.staged_rows import StagedRows


class SlotContent(Protocol):
    """What a slot knows of its `Filling`."""

    @property
    def name(self) -> tuple[int, int]:
        """Epoch and number of the batch; (-1, -1) before it is planned."""
        ...

    def describe(self) -> str:
        """Say which batch it is, and how far it has come, with a space before each."""
        ...

    def forget(self) -> None:
        """Drop all that holds memory; idempotent."""
        ...


class Occupancy:
    """How many of a ring's slots have a batch; the slots count themselves.

    Attributes:
        num_ahead: Slots whose batch is ready or on its way.
        num_leased: Slots whose batch the consumer has, or has dropped since they were collected.
    """

    __slots__ = ("num_ahead", "num_leased")

    def __init__(self) -> None:
        self.num_ahead = 0
        self.num_leased = 0


class Slot:
    """Memory of one batch on its way to the consumer, and where it stands.

    Args:
        number: Place in the ring, counted from 0.
        device: Where its memory is.
        returns: Where the slot's `LeaseEnd` arrives.
        occupancy: Counts the ring's slots.
        keeper: Waits for what batches are kept until.
        transform: What the device does to each batch; None where the host does it.

    Attributes:
        memory: What the consumer is handed.
        state: Where the slot stands.
        filling: What it is filled with; None while it is free.
        block: Host memory that is lent to the slot; None where it has its own, or none is needed.
        streams: Those that were handed some of the batch.
        events: Events of the work that fills the device's memory, and of what the consumer has it
            kept until; while it is draining, of what is waited for.
        num_pending: Events that a draining slot still waits for.
    """

    def __init__(
        self,
        number: int,
        device: Device,
        returns: SimpleQueue[Any],
        *,
        occupancy: Occupancy,
        keeper: Keeper,
        transform: DeviceTransform | None = None,
    ) -> None:
        self.number = number
        self.device = device
        self.state = SlotState.FREE
        self.filling: SlotContent | None = None
        self.block: HostBlock | None = None
        self.streams: list[Stream] = []
        self.events: list[Event] = []
        self.num_pending = 0
        self._returns = returns
        self._occupancy = occupancy
        self._keeper = keeper
        self._lease_end: LeaseEnd | None = None
        self._host_memory: HostMemory | None = None
        self._device_memory: DeviceMemory | None = None
        if transform is not None:
            self._device_memory = StagedMemory(device, transform)
        elif device.has_device_memory:
            self._device_memory = PushedMemory(device)
        else:
            self._host_memory = HostMemory(device)
        memory = self._device_memory or self._host_memory
        assert memory is not None
        self.memory: SlotMemory = memory

    def __repr__(self) -> str:
        filling = self.filling
        batch = "" if filling is None else filling.describe()
        return f"<Slot {self.number} {self.reported_state.name.lower()}{batch}>"

    @property
    def is_held(self) -> bool:
        """Whether the consumer has anything of its batch; without the lock it may be no more.

        Unlike `state` this is never late: the `LeaseEnd` may still be with a reader that has not
        taken the lock.
        """
        end = self._lease_end
        return self.state is SlotState.LEASED and end is not None and end() is not None

    @property
    def reported_state(self) -> SlotState:
        """The state as `FeedStats` has it: a dropped batch has gone, collected or not."""
        state = self.state
        is_gone = state is SlotState.LEASED and not self.is_held
        return SlotState.DRAINING if is_gone else state

    # Called by the batch's holder, on any thread, without a lock ------------------------------

    def note_use(self, stream: Stream) -> None:
        """Remember a stream that was handed some of the slot.

        The stream is kept alive until the slot is free again.
        """
        # list.append is atomic; a stream that two threads note at once costs one more event.
        if stream not in self.streams:
            self.streams.append(stream)

    def keep_until(self, waits: list[Callable[[], object]], *, name: str, batch: object) -> None:
        """Do not fill it again before all of ``waits`` have returned; while it is leased.

        Args:
            waits: Called on another thread.
            name: Of the batch, for errors.
            batch: What keeps the batch's memory, and its lease.
        """
        # A closed feed's slot has no memory any more: only the batch keeps it.
        holds = batch if self._keeper.is_stopping else self.memory.blocks
        self.events.append(self._keeper.keep(waits, name=name, holds=holds))

    # Transitions ------------------------------------------------------------------------------

    def begin(self, filling: SlotContent, block: HostBlock | None = None) -> Lease:
        """Begin to fill it with a batch: FREE -> FILLING; return the batch's lease.

        Args:
            filling: The batch.
            block: Host memory that is lent to the slot until `leave_block`.
        """
        lease = Lease(self)
        self._lease_end = LeaseEnd(lease, self._returns, self)
        self.state, self.filling, self.block = BEGIN[self.state], filling, block
        self._occupancy.num_ahead += 1
        return lease

    def upload(self) -> None:
        """Begin to queue its copies to the device: FILLING -> UPLOADING."""
        self.state = UPLOAD[self.state]

    def publish(self) -> None:
        """Let its batch, or that one's failure, be taken: FILLING or UPLOADING -> READY."""
        self.state = PUBLISH[self.state]

    def take(self) -> None:
        """Give its batch to the consumer, on whose thread this is: READY -> LEASED."""
        occupancy = self._occupancy
        # Counted in one assignment: a signal comes before all of it or behind all of it.
        after = (TAKE[self.state], occupancy.num_ahead - 1, occupancy.num_leased + 1)
        self.state, occupancy.num_ahead, occupancy.num_leased = after

    def drain(self) -> Sequence[Event]:
        """Take it back, the lease is gone: -> FREE, or DRAINING while the device works on it.

        Returns:
            The events to wait for; each is to be followed by `event_passed`.
        """
        if self.state is SlotState.LEASED:
            self._occupancy.num_leased -= 1
        else:
            self._occupancy.num_ahead -= 1
        if not self.events and not self.streams:
            self._set_free()
            return ()
        self.state = DRAIN[self.state]
        # Recorded here and not where the lease ended: that may be on any thread, with any current
        # stream.
        pending = [event for event in self._last_uses() if not event.done()]
        self.streams.clear()
        self.events[:] = pending
        self.num_pending = len(pending)
        if not pending:
            self._set_free()
        return pending

    def event_passed(self) -> bool:
        """Count an event of `drain` that has passed; return whether the slot is FREE now."""
        self.num_pending -= 1
        if self.num_pending == 0:
            self._set_free()
        return self.num_pending == 0

    def _set_free(self) -> None:
        self.state = SET_FREE[self.state]
        self.filling = None
        self.events.clear()

    def _last_uses(self) -> list[Event]:
        events = list(self.events)
        for stream in self.streams:
            try:
                events.append(stream.record())
            except ClosedError:
                continue  # closing a stream finishes its work first
        return events

    # Memory -----------------------------------------------------------------------------------

    def bind(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        label_dtype: np.dtype[Any] | None,
        lease: Lease,
        *,
        most_rows: int,
        fields: tuple[Field, ...] = (),
    ) -> tuple[npt.NDArray[Any] | StagedRows, npt.NDArray[Any] | None]:
        """Return where the batch's data and labels are to be filled in.

        Args:
            shape: (N, C, H, W) or (N, H, W, C) of the data; where the device transforms, (N, C, H,
                W) of the records' places in the staging memory.
            dtype: Element type of the data.
            label_dtype: Element type of the labels; None for no labels.
            lease: The batch's.
            most_rows: Samples of the largest batch that the slot will ever hold. Memory for so many
                is allocated at once: the first batch may be an epoch's short last one.
            fields: What the batch has besides; on a device with memory of its own there is room
                for it in the block.
        """
        if self._host_memory is not None:
            return self._host_memory.bind(shape, dtype, label_dtype, lease, most_rows=most_rows)
        assert self.block is not None
        assert self._device_memory is not None
        return self._device_memory.bind(
            shape, dtype, label_dtype, self.block, most_rows=most_rows, fields=fields
        )

    def push(self, lease: Lease, stream: Stream) -> tuple[Blob, Blob | None]:
        """Queue the device's work and return the batch's data and labels; see `DeviceMemory`.

        Without the lock, by the reader of the last part.
        """
        assert self._device_memory is not None
        return self._device_memory.push(lease, stream, self.events)

    def leave_block(self) -> HostBlock | None:
        """Return the host memory that was lent; it is free as soon as ``events`` have passed."""
        block = self.block
        if block is not None:
            self.block = None
            assert self._device_memory is not None
            self._device_memory.leave()
        return block

    def keep_memory_until(self, events: Sequence[Event]) -> None:
        """Keep the device's memory, beyond `close`, until every one of ``events`` has passed."""
        blocks = list(self.memory.blocks)
        for event in events:
            event.notify(blocks.copy().clear)

    def close(self) -> None:
        """Free the memory for good; what the consumer still holds of it stays valid."""
        if self.filling is not None:
            self.filling.forget()
        self.streams.clear()
        self.events.clear()
        self.memory.drop()
