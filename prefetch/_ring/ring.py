"""The ring of slots: which are free, and how they come back.

Returned slots arrive on one SimpleQueue, ``inbox``, that every idle reader waits on; so do bare
wake-ups (None) and slots whose device work has passed. A slot whose memory was handed to device
streams is DRAINING until an event on each of them, recorded *after* the lease has come back, has
passed: the last reference may die on any thread, so the stream that is current there says nothing.
No thread ever blocks in such a wait; the events call back into the inbox.

The ring grows with what the consumer holds. Slots that it has let go of, and not needed again for
a while, leave the ring with their memory.

Where the device has memory of its own, a batch waits there for its consumer, and is held there. The
host's memory is needed only while a batch is filled and copied: a few blocks of it are lent to the
slots in turn. One that comes back is free when the copy from it has run. Readers look for that when
they look for work; only while one of them waits and no block is free do the copies' events call
back into the inbox.

A slot, or block, of whose last uses the device cannot tell is never filled again: what `accept`
meets with is kept in ``failure``, for it may come from a call that is no consumer's.

Only readers, and who closes the ring, take in what has come back: a signal that interrupted the
consumer at it would lose a slot.

The ring is not thread-safe; the prefetcher's lock guards it. Only ``inbox`` may be used freely.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, TypeAlias

from memory import ClosedError, DeviceError
from prefetch._ring.budget import num_host_batches
from prefetch._ring.keep import Keeper
from prefetch._ring.lease import FeedEnd, LeaseEnd
from prefetch._ring.push_block import HostBlock
from prefetch._ring.slot import Slot, SlotState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from memory import Device, Event
    from prefetch._transform.device import DeviceTransform


@dataclass(frozen=True, slots=True)
class _EventPassed:
    """An event has passed, or failed: one that a draining slot waits for, or a block's copy's."""

    slot: Slot | None
    event: Event


class _Copied:
    """A block of host memory that is free when the copies from it have run.

    Attributes:
        block: The block.
        event: Passes then.
        calls: Whether the event calls back, or has.
    """

    __slots__ = ("block", "calls", "event")

    def __init__(self, block: HostBlock, event: Event) -> None:
        self.block = block
        self.event = event
        self.calls = False


Arrival: TypeAlias = "LeaseEnd | FeedEnd | Slot | _EventPassed | None"


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
        blocks: The host memory that is lent to slots; none where each has its own.
        num_ahead: Slots whose batch is ready or on its way.
        num_leased: Slots whose batch the consumer has, or has let go of since they were collected.
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
        self.num_ahead = 0
        self.num_leased = 0
        self.failure: Exception | None = None
        self.is_abandoned = False
        self._device = device
        self._transform = transform
        self._free: deque[Slot] = deque()
        num_blocks = num_host_batches(num_slots) if device.has_device_memory else 0
        self.blocks = [HostBlock(device) for _ in range(num_blocks)]
        self._free_blocks = list(self.blocks)
        self._copied: list[_Copied] = []
        self._num_at_start = num_slots
        self._num_made = 0
        self._batches_unneeded = 0
        for _ in range(num_slots):
            self.grow()

    def grow(self) -> None:
        """Add a free slot; its memory is allocated when it is first filled."""
        slot = Slot(self._num_made, self._device, self.inbox, transform=self._transform)
        slot.keeper = self.keeper
        after = (self._num_made + 1, [*self.slots, slot], deque((*self._free, slot)))
        # In one assignment: a signal may interrupt the consumer, whose call this is.
        self._num_made, self.slots, self._free = after

    def wake_reader(self) -> None:
        """Wake a reader that waits at the inbox."""
        self.num_wake_ups += 1
        self.inbox.put(None)

    def close(self, in_hand: Collection[Slot | None] = ()) -> None:
        """Let go of all memory; what the consumer still holds of it stays valid.

        So does what his streams may still be at work on, until they have passed.

        Args:
            in_hand: Slots whose batch is being handed over at this moment: it remains as it is.
        """
        self.collect()
        for slot in self.slots:
            if slot.state is SlotState.DRAINING:
                slot.keep_memory_until(slot.events)
            if slot in in_hand:
                slot.drop_memory()
            else:
                slot.close()
        for block in self.blocks:
            block.drop()

    @property
    def num_free(self) -> int:
        """Slots that are free."""
        return len(self._free)

    @property
    def can_acquire(self) -> bool:
        """Whether a slot can be filled at once: one is free, and memory to be lent to it."""
        return bool(self._free) and (bool(self._free_blocks) or not self.blocks)

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory that slots have, or are lent."""
        own = sum(slot.host_bytes for slot in self.slots)
        return own + sum(block.nbytes for block in self.blocks)

    def num_in(self, state: SlotState) -> int:
        """Return how many slots are in ``state``."""
        return sum([slot.state is state for slot in self.slots])

    @property
    def num_held(self) -> int:
        """How many slots' batches the consumer has something of; see `Slot.is_held`."""
        return sum([slot.is_held for slot in self.slots])

    def acquire(self) -> Slot:
        """Take a free slot, and a block of host memory for it: FREE -> FILLING; see `can_acquire`.

        It is the one that became free last: its memory is likeliest in the processor's cache.
        """
        slot = self._free.pop()
        slot.state = SlotState.FILLING
        self.num_ahead += 1
        if self.blocks:
            slot.block = self._free_blocks.pop()
        return slot

    def take_block(self, slot: Slot) -> None:
        """Take back what was lent to a slot that is filled no more; all its copies are queued."""
        block = slot.leave_block()
        if block is None:
            return
        if slot.events:
            self._copied.append(_Copied(block, slot.events[-1]))  # of all: they are of one stream
        else:
            self._free_blocks.append(block)

    def call_for_block(self) -> None:
        """Have a wake-up come when a block gets free, if none is; while a reader waits for work."""
        if self._free_blocks:
            return
        for copied in self._copied:
            if not copied.calls:
                copied.calls = True
                self._noting_failure(self._call_back, None, copied.event)

    def take_unneeded(self) -> list[Slot]:
        """Take slots out that the consumer has not needed for a while; mostly there are none.

        To be asked after each `acquire`. They are the caller's to close, without any lock: giving
        pinned memory back takes its time.
        """
        # Those held, or draining, count as needed.
        unneeded = min(self.num_ahead + len(self._free) - self._num_at_start, len(self._free))
        self._batches_unneeded = self._batches_unneeded + 1 if unneeded > 0 else 0
        if self._batches_unneeded < _PATIENCE:
            return []
        self._batches_unneeded = 0
        taken = [self._free.popleft() for _ in range(unneeded)]
        self.slots = [slot for slot in self.slots if slot not in taken]
        return taken

    def collect(self) -> None:
        """Take in whatever has come back, without waiting."""
        if self._copied:
            self._noting_failure(self._free_copied)
        inbox = self.inbox
        while not inbox.empty():
            try:
                arrival = inbox.get_nowait()
            except Empty:  # an idle reader was faster
                return
            self.accept(arrival)

    def accept(self, arrival: Arrival) -> None:
        """Take in one arrival; never raises what the device does."""
        self._noting_failure(self._accept, arrival)

    def _noting_failure(self, step: Callable[..., object], *arguments: object) -> None:
        try:
            step(*arguments)
        except Exception as error:  # noqa: BLE001 - raised again where the consumer waits
            self.failure = self.failure or error

    def _free_copied(self) -> None:
        for copied in [copied for copied in self._copied if copied.event.done()]:
            self._copied.remove(copied)
            self._free_blocks.append(copied.block)

    def _call_back(self, slot: Slot | None, event: Event) -> None:
        event.notify(partial(self.inbox.put, _EventPassed(slot, event)))

    def _accept(self, arrival: Arrival) -> None:
        if arrival is None:
            self.num_wake_ups -= 1
            return
        if isinstance(arrival, LeaseEnd):
            self._drain(arrival.slot)
        elif isinstance(arrival, Slot):
            self._drain(arrival)
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
                self._free_copied()
                return
            arrival.slot.num_pending -= 1
            if arrival.slot.num_pending == 0:
                self._set_free(arrival.slot)

    def _drain(self, slot: Slot) -> None:
        """LEASED (or unwanted) -> DRAINING or FREE: the lease is gone, device work may not be."""
        if slot.state is SlotState.LEASED:
            self.num_leased -= 1
        else:
            self.num_ahead -= 1
        if not slot.events and not slot.streams:
            self._set_free(slot)
            return
        slot.state = SlotState.DRAINING
        pending = [event for event in self._last_uses(slot) if not event.done()]
        slot.streams.clear()
        slot.events[:] = pending
        if not pending:
            self._set_free(slot)
            return
        slot.num_pending = len(pending)
        for event in pending:
            self._call_back(slot, event)

    def _last_uses(self, slot: Slot) -> list[Event]:
        events = list(slot.events)
        for stream in slot.streams:
            try:
                events.append(stream.record())
            except ClosedError:
                continue  # closing a stream finishes its work first
        return events

    def _set_free(self, slot: Slot) -> None:
        slot.state = SlotState.FREE
        slot.events.clear()
        self._free.append(slot)
