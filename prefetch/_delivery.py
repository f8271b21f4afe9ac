"""Which batch the consumer gets next, and what it may hold.

Batches are served by serial number, so their order never depends on the threads. Whatever went
wrong in a batch stays with it and is raised in its turn.

A `Delivery` is not thread-safe: the prefetcher's lock guards it. Nothing here waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefetch._bad_records import log
from prefetch._batch import Batch
from prefetch._errors import BatchesHeldError, EpochsExhaustedError, StaleIteratorError
from prefetch._slot import Slot, SlotState

if TYPE_CHECKING:
    from memory import Stream
    from prefetch._bad_records import BadRecords
    from prefetch._order import Order
    from prefetch._ring import Ring
    from prefetch._schedule import Schedule


class EndOfEpoch(Exception):  # noqa: N818 - a turn of events like StopIteration, not an error
    """The claim has served its epoch."""


class Claim:
    """One iterator's right to the feed's batches.

    Attributes:
        started: Whether its first next() has come.
        ended: Whether it has served the last batch of its epoch.
        end: Serial number of the batch after the last of its epoch; None for an endless stream.
    """

    __slots__ = ("end", "ended", "started")

    def __init__(self) -> None:
        self.started = False
        self.ended = False
        self.end: int | None = None


class Taken:
    """What one call of next() has taken, so that it can be put back if the call does not return.

    Attributes:
        slot: The slot; None so far.
    """

    __slots__ = ("slot",)

    def __init__(self) -> None:
        self.slot: Slot | None = None


class Delivery:
    """The batches that are ready, and the place of the consumer among them.

    Args:
        ring: The slots.
        schedule: Told which batches are no longer wanted.
        order: Where epochs begin and end.
        bad_records: Counts those of the batches served.
        prefetch: Batches kept ahead of the consumer.
        max_batches_held: Batches that it may hold at a time.

    Attributes:
        serving: Serial number of the batch served next.
        epoch: Epoch of the batch served last; after the end of an epoch, the next one.
        num_ready: Batches that stand ready without a fault.
        batches: Batches taken in all.
        samples: Samples in them.
        ready_sum: Batches that stood ready at each of these times, summed up.
    """

    def __init__(
        self,
        ring: Ring,
        schedule: Schedule,
        order: Order,
        bad_records: BadRecords,
        *,
        prefetch: int,
        max_batches_held: int,
    ) -> None:
        self._ring = ring
        self._schedule = schedule
        self._order = order
        self._bad_records = bad_records
        self._prefetch = prefetch
        self._max_batches_held = max_batches_held
        self._ready: dict[int, Slot] = {}
        self._claim: Claim | None = None
        self._taken_from_epoch = False
        self.serving = 0
        self.epoch = order.first_epoch
        self.num_ready = 0
        self.batches = 0
        self.samples = 0
        self.ready_sum = 0

    def add(self, slot: Slot) -> None:
        """Take in a complete or failed batch: -> READY."""
        slot.state = SlotState.READY
        self._put(slot)

    def claim(self, claim: Claim) -> None:
        """Make sure that the claim is the one being served, and has something to come.

        Raises:
            EndOfEpoch: It has served its epoch.
            StaleIteratorError: Another claim has taken over.
            EpochsExhaustedError: It is new, and every configured epoch has been served.
        """
        if claim.ended:
            raise EndOfEpoch
        if claim is not self._claim:
            self._begin(claim)
        if claim.end is not None and self.serving >= claim.end:
            claim.ended = True
            if self._order.last_batch != "wrap":
                self.epoch += 1
                self._taken_from_epoch = False
            raise EndOfEpoch

    def make_room(self) -> None:
        """Let the ring grow with what the consumer holds, so that ``prefetch`` stay ahead of it.

        Raises:
            BatchesHeldError: The consumer holds as many batches as it may.
        """
        ring = self._ring
        # What has come back since may be in a reader's hands: asked of each slot where it matters.
        if ring.num_leased >= self._max_batches_held:
            held = [slot.leased_as for slot in ring.slots if slot.is_held]
            if len(held) >= self._max_batches_held:
                raise BatchesHeldError(
                    max_batches_held=self._max_batches_held, batches=tuple(sorted(held))
                )
        if len(ring.slots) < ring.num_leased + self._prefetch:
            for _ in range(ring.num_held + self._prefetch - len(ring.slots)):
                ring.grow()

    def take(self, taken: Taken) -> Slot | None:
        """Take the next batch's slot: READY -> LEASED; None if it is not ready yet.

        Args:
            taken: Where the slot is noted as well.

        Raises:
            Exception: What went wrong in it, as it happened.
        """
        slot = self._ready.get(self.serving)
        if slot is None:
            return None
        if slot.bad:
            # They count even where the batch has failed: they may be why, and come before.
            slot.news = self._bad_records.count(
                bad for part in sorted(slot.bad) for bad in slot.bad.pop(part).values()
            )
        if slot.failure is not None:
            raise slot.failure[1]
        planned = slot.planned
        assert planned is not None
        size, ring = slot.size, self._ring
        # Nothing is called from here on, so that Ctrl-C comes before all of this or behind it: what
        # `_pop` does, and the ring's counting, is written out.
        del self._ready[self.serving]
        taken.slot = slot
        slot.state = SlotState.LEASED
        ring.num_ahead -= 1
        ring.num_leased += 1
        self.batches += 1
        self.samples += size
        self.ready_sum += self.num_ready
        self.num_ready -= 1
        slot.leased_as = (planned.epoch, planned.number)
        self.serving += 1
        self.epoch = planned.epoch
        self._taken_from_epoch = True
        return slot

    def put_back(self, slot: Slot) -> None:
        """Undo the last `take`: LEASED -> READY; the consumer could not be given the batch."""
        self.serving -= 1
        self.batches -= 1
        self.samples -= slot.size
        self._ring.unlease(slot)
        self._put(slot)

    def abandon(self) -> None:
        """Drop everything that is ready."""
        for number in list(self._ready):
            self._pop(number).give_back()

    def _put(self, slot: Slot) -> None:
        self._ready[slot.sequence] = slot
        self.num_ready += slot.failure is None

    def _pop(self, sequence: int) -> Slot:
        slot = self._ready.pop(sequence)
        self.num_ready -= slot.failure is None
        return slot

    def _begin(self, claim: Claim) -> None:
        if claim.started:
            raise StaleIteratorError(
                "a newer iterator of this feed has started, and a feed serves one at a time; "
                "open a second feed for a second loop (they share the database)"
            )
        order = self._order
        claim.started = True
        self._claim = claim
        if order.last_batch == "wrap":
            claim.end = order.num_batches
            exhausted = claim.end is not None and self.serving >= claim.end
        else:
            if self._taken_from_epoch:
                self.epoch += 1
                self._taken_from_epoch = False
                self._skip_to(order.first_of_epoch(self.epoch))
            exhausted = order.epochs is not None and self.epoch >= order.epochs
            claim.end = None if exhausted else order.first_of_epoch(self.epoch + 1)
        if exhausted:
            assert order.epochs is not None
            raise EpochsExhaustedError(order.epochs)

    def _skip_to(self, sequence: int) -> None:
        self.serving = sequence
        for number in [number for number in self._ready if number < sequence]:
            self._pop(number).give_back()
        self._schedule.skip_to(sequence)


def hand_over(slot: Slot, stream: Stream | None = None) -> Batch:
    """Make the consumer's batch of a slot that was just taken, and order its device work.

    The consumer's stream is made to wait for the copies; the host does not wait. Called without
    the lock: the slot is nobody else's until its lease is gone.

    Args:
        slot: The slot.
        stream: The consumer's stream; None for the calling thread's current one.

    Raises:
        DeviceError: The consumer's stream takes no more work; the slot is as it was.
    """
    planned, lease = slot.planned, slot.lease
    assert planned is not None
    assert lease is not None
    assert slot.indices is not None
    data, labels = slot.contents()
    batch = Batch(
        data,
        labels,
        device=slot.device,
        lease=lease,
        epoch=planned.epoch,
        number=planned.number,
        indices=slot.indices,
        keys=[slot.keys[part] for part in sorted(slot.keys)],
    )
    if slot.events:
        if stream is None:
            stream = slot.device.current_stream()
        slot.note_use(stream)
        for event in slot.events:
            stream.wait(event)
    if slot.news:
        log(slot.news)
    slot.forget()
    return batch
