"""The ring of slots: which are free, and how they come back.

What comes back arrives on one SimpleQueue, ``inbox``, that every idle reader waits on; so do bare
wake-ups (None) and events that have passed. The ring grows with what the consumer holds; slots not
needed again for a while leave it with their memory.

Where the device has memory of its own, a batch waits there for its consumer. The host's memory is
needed only while a batch is filled and copied: a few blocks of it are lent to the slots in turn.

The ring is not thread-safe; the coordinator's lock guards it. Only ``inbox`` may be used freely.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from memory import DeviceError
from prefetch._ring.block_pool import BlockPool
from prefetch._ring.budget import num_host_batches
from prefetch._ring.filling import Filling
from prefetch._ring.keep_until import Keeper
from prefetch._ring.lease import FeedEnd, LeaseEnd
from prefetch._ring.slot import Occupancy, Slot
from prefetch._ring.slot_state import SlotState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from memory import Device, Event
    from prefetch._transform.device import DeviceTransform


@dataclass(frozen=True, slots=True)
class _EventPassed:
    """An event has passed, or failed: one that a draining slot waits for, or a block's copy's."""

    slot: Slot | None
    event: Event


Arrival: TypeAlias = "LeaseEnd | FeedEnd | _EventPassed | None"

_PATIENCE = 64  # batches: a loop that holds some now and then keeps the slots for them


class Ring:
    """Slots, and the queue on which they come back.

    Args:
        device: Where the slots have their memory.
        num_slots: How many there are at the start; `grow` adds more.
        transform: What the device does to each batch; None where the host does it.

    Attributes:
        keeper: Waits for what batches are kept until.
        inbox: What has come back, and wake-ups.
        num_wake_ups: Those of readers, in the inbox.
        slots: All slots.
        occupancy: How many of them have a batch.
        pool: The host memory that is lent to slots; None where each has its own.
        failure: The first thing that went wrong as slots came back; None so far.
        is_abandoned: Whether the feed has been collected.
    """

    def __init__(
        self, device: Device, num_slots: int, *, transform: DeviceTransform | None = None
    ) -> None:
        self.inbox: SimpleQueue[Arrival] = SimpleQueue()
        self.keeper = Keeper(device)
        self.num_wake_ups = 0
        self.slots: list[Slot] = []
        self.occupancy = Occupancy()
        self.failure: Exception | None = None
        self.is_abandoned = False
        self._device = device
        self._transform = transform
        self._free: deque[Slot] = deque()
        self.pool: BlockPool | None = None
        if device.has_device_memory:
            self.pool = BlockPool(device, num_host_batches(num_slots))
        self._num_at_start = num_slots
        self._num_made = 0
        self._batches_unneeded = 0
        for _ in range(num_slots):
            self.grow()

    def grow(self) -> None:
        """Add a free slot; its memory is allocated when it is first filled."""
        slot = Slot(
            self._num_made,
            self._device,
            self.inbox,
            occupancy=self.occupancy,
            keeper=self.keeper,
            transform=self._transform,
        )
        after = (self._num_made + 1, [*self.slots, slot], deque((*self._free, slot)))
        # In one assignment: a signal may interrupt the consumer, whose call this is.
        self._num_made, self.slots, self._free = after

    def wake_reader(self) -> None:
        """Wake a reader that waits at the inbox."""
        self.num_wake_ups += 1
        self.inbox.put(None)

    def close(self, in_hand: Collection[Slot | None] = ()) -> None:
        """Free all memory; what the consumer still holds of it stays valid.

        Memory that the consumer's streams still use stays valid until they are done.

        Args:
            in_hand: Slots whose batch is being handed over at this moment: it remains as it is.
        """
        self.collect()
        for slot in self.slots:
            if slot.state is SlotState.DRAINING:
                slot.keep_memory_until(slot.events)
            if slot in in_hand:
                slot.memory.drop()
            else:
                slot.close()
        if self.pool is not None:
            self.pool.drop()

    @property
    def num_free(self) -> int:
        """Slots that are free."""
        return len(self._free)

    @property
    def can_acquire(self) -> bool:
        """Whether a slot can be filled at once: one is free, and memory to be lent to it."""
        return bool(self._free) and (self.pool is None or bool(self.pool.free))

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory that slots have, or are lent."""
        own = sum(slot.memory.host_bytes for slot in self.slots)
        return own if self.pool is None else own + self.pool.nbytes

    @property
    def num_held(self) -> int:
        """How many slots' batches the consumer has something of; see `Slot.is_held`."""
        return sum([slot.is_held for slot in self.slots])

    def acquire(self, sequence: int) -> Filling:
        """Begin to fill a free slot, with a block of host memory for it; see `can_acquire`.

        Args:
            sequence: Serial number of the batch.
        """
        pool = self.pool
        # The one that became free last: its memory is likeliest in the processor's cache.
        filling = Filling(self._free[-1], sequence, None if pool is None else pool.free[-1])
        self._free.pop()
        if pool is not None:
            pool.free.pop()
        return filling

    def take_block(self, slot: Slot) -> None:
        """Take back what was lent to a slot that is filled no more; all its copies are queued."""
        block = slot.leave_block()
        if block is not None:
            assert self.pool is not None
            # The last event is of all copies: they are of one stream.
            self.pool.take_back(block, slot.events[-1] if slot.events else None)

    def call_for_block(self) -> None:
        """Have a wake-up come when a block gets free, if none is; while a reader waits for work."""
        # Only then: a reader that works looks for blocks itself before its next piece.
        if self.pool is not None:
            self.pool.call_back(partial(self._note_failure_of, self._call_back, None))

    def take_unneeded(self) -> list[Slot]:
        """Take slots out that the consumer has not needed for a while; mostly there are none.

        To be asked after each `acquire`. They are the caller's to close, without any lock: giving
        pinned memory back takes its time.
        """
        # Those held, or draining, count as needed.
        unneeded = min(
            self.occupancy.num_ahead + len(self._free) - self._num_at_start, len(self._free)
        )
        self._batches_unneeded = self._batches_unneeded + 1 if unneeded > 0 else 0
        if self._batches_unneeded < _PATIENCE:
            return []
        self._batches_unneeded = 0
        taken = [self._free.popleft() for _ in range(unneeded)]
        self.slots = [slot for slot in self.slots if slot not in taken]
        return taken

    def collect(self) -> None:
        """Take in all that has come back, without waiting; by a reader, or to close the ring."""
        # Never by the consumer: a signal that interrupted it here would lose a slot.
        if self.pool is not None and self.pool.is_copying:
            self._note_failure_of(self.pool.collect)
        inbox = self.inbox
        while not inbox.empty():
            try:
                arrival = inbox.get_nowait()
            except Empty:  # an idle reader was faster
                return
            self.accept(arrival)

    def accept(self, arrival: Arrival) -> None:
        """Take in one arrival; never raises what the device does.

        If the device fails while a slot's last uses are recorded, the slot is never reused. The
        error is kept in ``failure``: this may run in a call that is not the consumer's.
        """
        if arrival is None:
            self.num_wake_ups -= 1
        else:
            self._note_failure_of(self._accept, arrival)

    def _note_failure_of(self, step: Callable[..., object], *arguments: object) -> None:
        try:
            step(*arguments)
        except Exception as error:  # noqa: BLE001 - raised again where the consumer waits
            self.failure = self.failure or error

    def _call_back(self, slot: Slot | None, event: Event) -> None:
        event.notify(partial(self.inbox.put, _EventPassed(slot, event)))

    def _accept(self, arrival: Arrival) -> None:
        if isinstance(arrival, LeaseEnd):
            slot: Slot = arrival.slot
            for event in slot.drain():
                self._call_back(slot, event)
            if slot.state is SlotState.FREE:
                self._free.append(slot)
        elif isinstance(arrival, FeedEnd):
            self.is_abandoned = True
        elif isinstance(arrival, _EventPassed):
            if not arrival.event.done():
                raise DeviceError(
                    self._device.name,
                    operation="waiting for the last use of a batch",
                    reason="the device cannot tell any more whether its work has run",
                )
            if arrival.slot is None:
                assert self.pool is not None
                self.pool.collect()
            elif arrival.slot.event_passed():
                self._free.append(arrival.slot)
