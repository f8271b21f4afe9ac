"""Which work there is for the readers: batches to open, parts of batches to fill.

Readers take *parts* of a batch, so that the number of threads and the depth of the ring are
independent of each other. One reader at a time opens a batch (plans it and walks the database for
it); the others fill parts of other batches.

A `Schedule` is not thread-safe: the coordinator's lock guards it. Nothing here waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prefetch._pipeline.light_batches import SpareReaders, is_small_raw
from prefetch._ring.filling import Filling, Parts
from prefetch._ring.slot_state import SlotState

if TYPE_CHECKING:
    from prefetch._plan.order import Order
    from prefetch._ring.ring import Ring

_MIN_BYTES_TO_SPLIT = 256 * 1024  # a hand-off costs about 10 us, as long as copying this much


class Opening(NamedTuple):
    """Work for a reader: plan a batch, unless that is done; find its shape."""

    filling: Filling
    is_planned: bool = False


class Part(NamedTuple):
    """Work for a reader: fill the places ``start`` to ``stop`` of a batch."""

    filling: Filling
    number: int
    start: int
    stop: int


class Schedule:
    """The batches being filled, and the serial number of the one that is planned next.

    Args:
        ring: Where empty slots come from.
        order: How many batches there are in all.
        num_threads: How many readers share the work.
        prefetch: Batches kept ahead of the consumer, also where more slots are free.
        least_bytes_to_share: Of a light batch that is for several readers; 0: any is.

    Attributes:
        num_idle: Readers that wait on the ring's inbox.
        over: Whether no further batch is opened: a reader cannot work.
        first_wanted: Serial number of the first batch that is wanted. The consumer sets it, and
            the readers give up those before it.
        spare: Readers that sleep since they are not needed.
    """

    def __init__(
        self,
        ring: Ring,
        order: Order,
        *,
        num_threads: int,
        prefetch: int,
        least_bytes_to_share: int = 0,
    ) -> None:
        self._ring = ring
        self._prefetch = prefetch
        self._num_batches = order.num_batches
        self._num_threads = num_threads
        self._filling: list[Filling] = []
        self._next_sequence = 0
        self._opening = False
        self._failed = -1  # the last failed batch: while it is wanted, none is opened behind it
        self._dropped_before = 0
        self.num_idle = 0
        self.over = False
        self.first_wanted = 0
        self.spare = SpareReaders(least_bytes_to_share)

    def find_job(self) -> Opening | Part | None:
        """Return a piece of work, the oldest batch's first; None if there is none."""
        filling = self._next_filling()
        if filling is None:
            return self.find_opening()
        assert filling.parts is not None
        return Part(filling, *filling.parts.give())

    def find_early_opening(self) -> Opening | None:
        """Return a batch to open, where the next piece of work is none but that."""
        return self.find_opening() if self._next_filling() is None else None

    def find_opening(self) -> Opening | None:
        """Return a batch to open; None if there is none."""
        if not self._can_open():
            return None
        sequence = max(self._next_sequence, self.first_wanted)
        filling = self._ring.acquire(sequence)
        self._next_sequence = sequence + 1
        self._opening = True
        self._filling.append(filling)
        return Opening(filling)

    def _next_filling(self) -> Filling | None:
        """Return the oldest batch that has a part left."""
        for filling in self._filling:
            parts = filling.parts
            if parts is not None and parts.num_given < parts.num and not filling.is_discarded:
                return filling
        return None

    def wake_idle(self) -> None:
        """Wake as many idle readers as there is work for."""
        if not self.num_idle:
            return
        work = int(self._can_open() or self.is_behind) + sum(
            # No generator, in which a handler's StopIteration would become RuntimeError.
            [
                filling.parts.num_left
                for filling in self._filling
                if filling.parts is not None and not filling.is_discarded
            ]
        )
        for _ in range(min(work, self.num_idle)):
            self._ring.wake_reader()

    def planning_done(self) -> None:
        """Allow the next batch to be opened; call once the previous one is planned and walked."""
        self._opening = False
        if self.num_idle:
            self.wake_idle()

    def split_into_parts(self, filling: Filling) -> Part | None:
        """Cut a batch in parts for all readers; call once the first record has fixed its shape.

        Returns:
            The first part, for the caller; None if the batch is no longer wanted.
        """
        assert filling.contents is not None
        assert filling.shape is not None
        if filling.is_discarded:
            self.retire(filling)
            return None
        size, nbytes = filling.size, filling.contents[0].nbytes
        if is_small_raw(filling.shape, nbytes):
            filling.parts = parts = Parts(size)
            parts.is_small_raw = True
            self.spare.note_light_batch(nbytes)
        else:
            self.spare.one_suffices = False
            is_split = self._num_threads > 1 and nbytes >= _MIN_BYTES_TO_SPLIT
            filling.parts = parts = Parts(size, min(size, 2 * self._num_threads) if is_split else 1)
        part = Part(filling, *parts.give())
        if self.num_idle:
            self.wake_idle()
        return part

    def part_done(self, filling: Filling) -> bool:
        """Count a finished part; return whether the batch is complete and wanted."""
        parts = filling.parts
        assert parts is not None
        is_last = parts.done()
        if filling.is_discarded:
            if parts.is_idle:
                self.retire(filling)
            return False
        return is_last

    def finish(self, filling: Filling) -> None:
        """Take a batch off the schedule: it is ready, or has failed."""
        self._filling.remove(filling)
        self._ring.take_block(filling.slot)
        if filling.failure is not None:
            self._failed = max(self._failed, filling.sequence)
            filling.contents = filling.more = None  # rows that are neither pushed nor served

    def retire(self, filling: Filling) -> None:
        """Take off a discarded batch; its slot comes back through the inbox."""
        self._filling.remove(filling)
        self._ring.take_block(filling.slot)
        filling.forget()

    @property
    def is_behind(self) -> bool:
        """Whether there may be batches left that are no longer wanted."""
        return self._dropped_before != self.first_wanted

    def discard_unwanted(self) -> None:
        """Mark the batches in work that are no longer wanted; by the consumer."""
        for filling in self._filling:
            if filling.sequence < self.first_wanted:
                filling.is_discarded = True

    def drop_unwanted(self) -> None:
        """Take off every batch that is no longer wanted and not in work; by a reader.

        The others are taken off by the reader that opens, fills or uploads them.
        """
        self._dropped_before = self.first_wanted
        self.discard_unwanted()
        for filling in [filling for filling in self._filling if filling.is_discarded]:
            parts = filling.parts
            if filling.slot.state is SlotState.FILLING and parts is not None and parts.is_idle:
                self.retire(filling)

    def is_coming(self, sequence: int) -> bool:
        """Return whether a reader was given some of the batch of this serial number."""
        return any(filling.sequence == sequence for filling in self._filling)

    def has_parts(self, sequence: int) -> bool:
        """Return whether a batch has parts that no reader has been given yet."""
        return any(
            filling.sequence == sequence and filling.parts is not None and filling.parts.num_left
            for filling in self._filling
        )

    def abandon(self) -> None:
        """Give up everything; only when no reader runs any more."""
        for filling in list(self._filling):
            self.retire(filling)

    def _can_open(self) -> bool:
        # One opening at a time: so the walk through the database is in order without a lock.
        if self._opening or self.over or not self._ring.can_acquire:
            return False
        first_wanted = self.first_wanted
        if self._failed >= first_wanted or self._ring.occupancy.num_ahead >= self._prefetch:
            return False
        last = self._num_batches
        return last is None or max(self._next_sequence, first_wanted) < last
