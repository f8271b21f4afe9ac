"""Which batch the consumer gets next, and what it may hold.

Batches are served by serial number, so their order never depends on the threads. Whatever went
wrong in a batch stays with it and is raised in its turn.

A `Delivery` is not thread-safe: the prefetcher's lock guards it, but for what says otherwise.
Nothing here waits.

Signals interrupt the consumer between any two calls, and may raise anything. So what the consumer's
thread changes here it changes in one assignment, behind everything that it calls: an exception
comes before all of it, or behind all of it. What takes several steps is left to the readers, which
no signal reaches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from prefetch._bad_records.policy import log
from prefetch._errors.classes import (
    BatchesHeldError,
    EpochsExhaustedError,
    StaleIteratorError,
    TooManyBadRecordsError,
)
from prefetch._ring.batch import Batch
from prefetch._ring.slot import Slot, SlotState

if TYPE_CHECKING:
    from memory import Stream
    from prefetch._bad_records.policy import BadRecords
    from prefetch._pipeline.schedule import Schedule
    from prefetch._plan.order import Order
    from prefetch._ring.ring import Ring


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
    """What one call of next() has taken, until the loop has it.

    Attributes:
        slot: The batch's slot; None so far.
        batch: The batch, once it is made, until the loop has it.
        sequence: Its serial number.
        epoch: Its epoch.
        size: Samples in it.
        num_ready: Batches that stood ready when the call began; -1 before they are counted.
        is_over: Whether the loop has it.
        is_lost: Whether the call ended in an exception: the batch is still to be served.
        fate: The error that is the batch's own, or the feed's; None for any other.
    """

    # Of the class until they are set: most calls need no more than half of them.
    slot: Slot | None = None
    batch: Batch | None = None
    sequence = -1
    epoch = -1
    size = 0
    num_ready = -1
    is_over = False
    is_lost = False
    fate: BaseException | None = None

    @property
    def is_pending(self) -> bool:
        """Whether its call is still at it: the batch is neither the loop's nor lost."""
        return not (self.is_over or self.is_lost)


class Served(NamedTuple):
    """What has been served at one moment; replaced as a whole, so that no lock is needed to look.

    Attributes:
        next: Serial number of the batch taken next, but for those that calls have lost.
        epoch: Epoch of the batch taken last; after the end of an epoch, the next one.
        is_begun: Whether one of that epoch's batches has been taken.
        in_hand: What calls have taken, the oldest first: of those that are over, only the last.
        batches: Batches served before those in hand.
        samples: Samples in them.
        ready_sum: Batches that stood ready when these were asked for, summed up.
    """

    next: int
    epoch: int
    is_begun: bool
    in_hand: tuple[Taken, ...]
    batches: int
    samples: int
    ready_sum: int

    @property
    def place(self) -> int:
        """Serial number of the first batch that the loop does not have."""
        pending = [taken.sequence for taken in self.in_hand if not taken.is_over]
        return min(pending, default=self.next)

    @property
    def lost(self) -> Taken | None:
        """The first batch that a call has taken and lost."""
        return next((taken for taken in self.in_hand if taken.is_lost), None)

    def counted(self) -> Served:
        """Return the same, with the batches counted that the loop has."""
        over = [taken for taken in self.in_hand if taken.is_over]
        return self._replace(
            in_hand=tuple(taken for taken in self.in_hand if not taken.is_over),
            batches=self.batches + len(over),
            samples=self.samples + sum(taken.size for taken in over),
            ready_sum=self.ready_sum + sum(taken.num_ready for taken in over),
        )


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
        served: What has been served; to be read without the lock.
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
        self._num_failed = 0
        self._claim: Claim | None = None
        self.served = Served(0, order.first_epoch, False, (), 0, 0, 0)

    @property
    def serving(self) -> int:
        """Serial number of the batch taken next."""
        return self.served.next

    @property
    def num_ready(self) -> int:
        """Batches that stand ready without a fault."""
        return len(self._ready) - self._num_failed

    def add(self, slot: Slot) -> None:
        """Take in a complete or failed batch: -> READY; by a reader."""
        slot.state = SlotState.READY
        self._num_failed += slot.failure is not None
        self._ready[slot.sequence] = slot

    def claim(self, claim: Claim) -> None:
        """Make sure that the claim is the one being served, and has something to come.

        Raises:
            EndOfEpoch: It has served its epoch.
            StaleIteratorError: Another claim has taken over.
            EpochsExhaustedError: It is new, and every configured epoch has been served.
        """
        if claim.ended and self.served.lost is None:
            raise EndOfEpoch
        if claim is not self._claim:
            self._begin(claim)
        if self._schedule.is_behind:
            self._schedule.discard_unwanted()
        served = self.served
        if claim.end is not None and served.next >= claim.end and served.lost is None:
            if self._order.last_batch == "wrap":
                claim.ended = True
            else:
                after = served._replace(epoch=served.epoch + 1, is_begun=False)
                claim.ended, self.served = True, after
            raise EndOfEpoch

    def make_room(self) -> None:
        """Let the ring grow with what the consumer holds, so that ``prefetch`` stay ahead of it.

        Raises:
            BatchesHeldError: The consumer holds as many batches as it may.
        """
        ring = self._ring
        # What has come back since may be in a reader's hands: asked of each slot where it matters.
        if ring.num_leased >= self._max_batches_held and self.served.lost is None:
            held = [slot.leased_as for slot in ring.slots if slot.is_held]
            if len(held) >= self._max_batches_held:
                raise BatchesHeldError(
                    max_batches_held=self._max_batches_held, batches=tuple(sorted(held))
                )
        lacking = ring.num_leased + self._prefetch - len(ring.slots)
        # What has come back to the inbox will be no more of these; where no batch is taken, and no
        # call may come to ask again, it is counted.
        returned = ring.inbox.qsize() - ring.num_wake_ups
        if lacking > 0 and (lacking > returned or self.served.next not in self._ready):
            for _ in range(ring.num_held + self._prefetch - len(ring.slots)):
                ring.grow()

    def take(self, taken: Taken) -> bool:
        """Take the next batch's slot: READY -> LEASED; return False if it is not ready yet.

        Args:
            taken: Where it is noted.

        Raises:
            Exception: What went wrong in it, as it happened; noted as its fate.
        """
        served = self.served
        sequence, _, _, in_hand, batches, samples, ready_sum = served
        pending = []
        for earlier in in_hand:
            if earlier.is_lost:
                self._take_again(earlier, taken)
                return True
            if earlier.is_over:
                batches += 1
                samples += earlier.size
                ready_sum += earlier.num_ready
            else:
                pending.append(earlier)
        slot = self._ready.get(sequence)
        if slot is None:
            return False
        if slot.bad:
            self._count_bad(slot, taken)
        if slot.failure is not None:
            taken.fate = slot.failure[1]
            raise taken.fate
        planned = slot.planned
        assert planned is not None
        epoch = planned.epoch
        taken.slot, taken.sequence, taken.epoch, taken.size = slot, sequence, epoch, slot.size
        slot.leased_as = (epoch, planned.number)
        now = Served(sequence + 1, epoch, True, (*pending, taken), batches, samples, ready_sum)
        ring = self._ring
        after = (now, SlotState.LEASED, ring.num_ahead - 1, ring.num_leased + 1)
        self.served, slot.state, ring.num_ahead, ring.num_leased = after
        del self._ready[sequence]
        return True

    def _take_again(self, lost: Taken, taken: Taken) -> None:
        """Take what a call has lost to an exception; the slot is LEASED already."""
        served = self.served.counted()
        taken.slot, taken.batch = lost.slot, lost.batch
        taken.sequence, taken.epoch, taken.size = lost.sequence, lost.epoch, lost.size
        in_hand = tuple(taken if other is lost else other for other in served.in_hand)
        self.served = served._replace(epoch=taken.epoch, is_begun=True, in_hand=in_hand)
        self._ready.pop(taken.sequence, None)  # where the exception came before `take` had done so

    def _count_bad(self, slot: Slot, taken: Taken) -> None:
        """Count a batch's bad records; also where it has failed: they may be why."""
        bad = [bad for part in sorted(slot.bad) for bad in slot.bad[part].values()]
        try:
            news = self._bad_records.count(bad)
        except TooManyBadRecordsError as error:
            taken.fate = error
            raise
        slot.news = slot.news or news
        slot.bad = {}

    def drop_unwanted(self) -> None:
        """Give back what is ready and no longer wanted; by a reader."""
        schedule = self._schedule
        if schedule.is_behind:
            for number in [number for number in self._ready if number < schedule.first_wanted]:
                self._pop(number).give_back()
            schedule.drop_unwanted()

    def abandon(self) -> None:
        """Drop everything that is ready; only when no reader runs any more."""
        for number in list(self._ready):
            self._pop(number).give_back()
        for taken in self.served.in_hand:
            if taken.is_lost and taken.slot is not None:
                taken.batch = None
                taken.slot.forget()

    def _pop(self, sequence: int) -> Slot:
        slot = self._ready.pop(sequence)
        self._num_failed -= slot.failure is not None
        return slot

    def _begin(self, claim: Claim) -> None:
        if claim.started:
            raise StaleIteratorError(
                "a newer iterator of this feed has started, and a feed serves one at a time; "
                "open a second feed for a second loop (they share the database)"
            )
        order, schedule, served = self._order, self._schedule, self.served
        if order.last_batch == "wrap":
            first = schedule.first_wanted
            end = order.num_batches
            exhausted = end is not None and served.place >= end
        else:
            served, first = self._next_epoch(served)
            exhausted = order.epochs is not None and served.epoch >= order.epochs
            end = None if exhausted else order.first_of_epoch(served.epoch + 1)
        # An exhausted feed has no claim, so that whoever asks again is told again.
        after = (not exhausted, end, None if exhausted else claim, served, first)
        claim.started, claim.end, self._claim, self.served, schedule.first_wanted = after
        if exhausted:
            assert order.epochs is not None
            raise EpochsExhaustedError(order.epochs)

    def _next_epoch(self, served: Served) -> tuple[Served, int]:
        """Return where the next iterator starts, and the first batch that is wanted then."""
        first = self._order.first_of_epoch(served.epoch)
        if not served.is_begun or (served.lost is not None and served.place <= first):
            return served, self._schedule.first_wanted  # nothing of the epoch has been served
        for taken in served.in_hand:
            if taken.is_lost and taken.slot is not None:
                taken.batch = None
                taken.slot.forget()
        first = self._order.first_of_epoch(served.epoch + 1)
        in_hand = tuple(taken for taken in served.in_hand if not taken.is_lost)
        return (
            served._replace(next=first, epoch=served.epoch + 1, is_begun=False, in_hand=in_hand),
            first,
        )


def hand_over(taken: Taken, stream: Stream | None = None) -> Batch:
    """Make the consumer's batch of a slot that was just taken, and order its device work.

    The consumer's stream is made to wait for the copies; the host does not wait. Called without
    the lock: the slot is nobody else's until its lease is gone. May be called again where an
    exception came in between.

    Args:
        taken: What was taken; the batch is noted there until the loop has it.
        stream: The consumer's stream; None for the calling thread's current one.

    Raises:
        DeviceError: The consumer's stream takes no more work; the slot is as it was.
    """
    slot, batch = taken.slot, taken.batch
    assert slot is not None
    if batch is None:
        batch = taken.batch = _made_of(slot, stream)
    slot.forget()
    return batch


def _made_of(slot: Slot, stream: Stream | None) -> Batch:
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
        news, slot.news = slot.news, []
        log(news)
    return batch
