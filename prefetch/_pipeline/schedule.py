"""Which work there is for the readers: slots to open, parts of slots to fill.

Readers take *parts* of a batch, so that the number of threads and the depth of the ring are
independent of each other. Opening a slot (planning its batch and walking the database for it) is
done by one reader at a time, so that the walk stays in order without a lock; the others fill parts
of other slots meanwhile. An uncropped batch has the shape of its first record: no part is handed
out before the reader that opened the slot has found it.

A `Schedule` is not thread-safe: the prefetcher's lock guards it. Nothing here waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prefetch._ring.slot import Slot, SlotState

if TYPE_CHECKING:
    from prefetch._plan.order import Order
    from prefetch._ring.ring import Ring

_MIN_BYTES_TO_SPLIT = 256 * 1024  # a hand-off costs about 10 us, as long as copying this much
_MIN_RAW_BYTES_TO_SPLIT = 4 * 1024 * 1024  # a batch of 3x32x32 to 28, 2.4 MB, takes 0.11 ms
_MOST_TOGETHER = 4


class Opening(NamedTuple):
    """Work for a reader: plan a batch into an empty slot, unless that is done; find its shape."""

    slot: Slot
    is_planned: bool = False


class Part(NamedTuple):
    """Work for a reader: fill the places ``start`` to ``stop`` of a slot's batch."""

    slot: Slot
    number: int
    start: int
    stop: int


class Schedule:
    """The slots being filled, and the serial number of the batch that is planned next.

    Args:
        ring: Where empty slots come from.
        order: How many batches there are in all.
        num_threads: How many readers share the work.
        prefetch: Batches kept ahead of the consumer, also where more slots are free.

    Attributes:
        num_idle: Readers that wait on the ring's inbox.
        over: Whether no further slot is opened: a reader cannot work.
        first_wanted: Serial number of the first batch that is wanted. The consumer sets it, and
            the readers give up those before it.
        max_batches_per_call: How many light batches a reader opens and fills in one go. More saves
            hand-offs, but delays the first of them.
    """

    def __init__(self, ring: Ring, order: Order, *, num_threads: int, prefetch: int) -> None:
        self._ring = ring
        self._prefetch = prefetch
        self._order = order
        self._num_threads = num_threads
        self._filling: list[Slot] = []
        self._next_sequence = 0
        self._opening = False
        self._failed = -1  # the last failed batch: none is opened behind it while it is wanted
        self._dropped_before = 0
        self.num_idle = 0
        self.over = False
        self.first_wanted = 0
        self.max_batches_per_call = min(prefetch // 2, _MOST_TOGETHER)

    def find_job(self) -> Opening | Part | None:
        """Return a piece of work, the oldest batch's first; None if there is none."""
        slot = self._next_filling()
        return self.find_opening() if slot is None else self._next_part(slot)

    def find_early_opening(self) -> Opening | None:
        """Return a slot to open, where the next piece of work is none but that."""
        return self.find_opening() if self._next_filling() is None else None

    def find_opening(self) -> Opening | None:
        """Return a slot to open; None if there is none."""
        if not self._can_open():
            return None
        slot = self._ring.acquire()
        slot.sequence = self._upcoming
        self._next_sequence = slot.sequence + 1
        self._opening = True
        self._filling.append(slot)
        return Opening(slot)

    def _next_filling(self) -> Slot | None:
        """Return the slot of the oldest batch that has a part left."""
        for slot in self._filling:
            if not slot.discarded and slot.next_part < slot.num_parts:
                return slot
        return None

    def wake_idle(self) -> None:
        """Wake as many idle readers as there is work for."""
        if not self.num_idle:
            return
        work = int(self._can_open() or self.is_behind) + sum(
            # No generator, in which a handler's StopIteration would become RuntimeError.
            [slot.num_parts - slot.next_part for slot in self._filling if not slot.discarded]
        )
        for _ in range(min(work, self.num_idle)):
            self._ring.wake_reader()

    def planned(self) -> None:
        """Let the next slot be opened: the one before it has its batch planned and walked."""
        self._opening = False
        self.wake_idle()

    def shaped(self, slot: Slot) -> Part | None:
        """Open a slot's parts to all readers.

        Returns:
            The first part, for the caller; None if the batch is no longer wanted.
        """
        assert slot.data is not None
        if slot.discarded:
            self.retire(slot)
            return None
        nbytes = slot.data.nbytes
        slot.is_small_raw = slot.is_raw and nbytes < _MIN_RAW_BYTES_TO_SPLIT
        num_parts = 1
        if self._num_threads > 1 and nbytes >= _MIN_BYTES_TO_SPLIT and not slot.is_small_raw:
            num_parts = min(slot.size, 2 * self._num_threads)
        slot.part_size = -(-slot.size // num_parts)
        slot.num_parts = -(-slot.size // slot.part_size)
        part = self._next_part(slot)
        self.wake_idle()
        return part

    def part_done(self, slot: Slot) -> bool:
        """Count a finished part; return whether the batch is complete and wanted."""
        slot.parts_done += 1
        if slot.discarded:
            if slot.parts_done == slot.next_part:
                self.retire(slot)
            return False
        return slot.parts_done == slot.num_parts

    def finish(self, slot: Slot) -> None:
        """Take a slot off the schedule: its batch is ready, or has failed."""
        self._filling.remove(slot)
        self._ring.take_block(slot)
        if slot.failure is not None:
            self._failed = max(self._failed, slot.sequence)

    def retire(self, slot: Slot) -> None:
        """Take off a slot whose batch nobody wants; it comes back through the inbox."""
        self._filling.remove(slot)
        self._ring.take_block(slot)
        slot.give_back()

    @property
    def is_behind(self) -> bool:
        """Whether there may be batches left that are no longer wanted."""
        return self._dropped_before != self.first_wanted

    def discard_unwanted(self) -> None:
        """Tell the readers which of the batches that they work at nobody wants; by the consumer."""
        for slot in self._filling:
            if slot.sequence < self.first_wanted:
                slot.discarded = True

    def drop_unwanted(self) -> None:
        """Take off every batch that nobody wants, and that nobody works at; by a reader.

        Of the others whoever opens it, fills its last part or uploads it finds out.
        """
        self._dropped_before = self.first_wanted
        self.discard_unwanted()
        for slot in [slot for slot in self._filling if slot.discarded]:
            idle = slot.parts_done == slot.next_part
            if slot.state is SlotState.FILLING and slot.num_parts and idle:
                self.retire(slot)

    def is_coming(self, sequence: int) -> bool:
        """Return whether a reader was given some of the batch of this serial number."""
        return any(slot.sequence == sequence for slot in self._filling)

    def has_parts(self, sequence: int) -> bool:
        """Return whether a batch has parts that no reader has been given yet."""
        return any(
            slot.sequence == sequence and slot.next_part < slot.num_parts for slot in self._filling
        )

    def abandon(self) -> None:
        """Give up everything; only when no reader runs any more."""
        for slot in list(self._filling):
            self.retire(slot)

    def _can_open(self) -> bool:
        if self._opening or self.over or not self._ring.can_acquire:
            return False
        if self._failed >= self.first_wanted or self._ring.num_ahead >= self._prefetch:
            return False
        last = self._order.num_batches
        return last is None or self._upcoming < last

    @property
    def _upcoming(self) -> int:
        return max(self._next_sequence, self.first_wanted)

    @staticmethod
    def _next_part(slot: Slot) -> Part:
        number = slot.next_part
        slot.next_part += 1
        start = number * slot.part_size
        return Part(slot, number, start, min(start + slot.part_size, slot.size))
