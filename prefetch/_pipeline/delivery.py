"""Which batch the consumer gets next.

Batches are served by serial number, so their order never depends on the threads. An error in a
batch stays with it and is raised in its turn.

A `Delivery` is not thread-safe: the coordinator's lock guards it, but for what says otherwise.
Nothing here waits.

Signals interrupt the consumer between any two steps, and their handlers may raise anything. So what
the consumer's thread changes it changes in one assignment, which has happened or not. What takes
several steps is left to the readers, which no signal reaches, or is done again by the next call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefetch._errors.classes import (
    EpochsExhaustedError,
    StaleIteratorError,
    TooManyBadRecordsError,
)
from prefetch._pipeline.consumer_state import EndOfEpoch, Served
from prefetch._ring.slot_state import SlotState

if TYPE_CHECKING:
    from prefetch._bad_records.policy import BadRecords
    from prefetch._pipeline.consumer_state import Claim, Taken
    from prefetch._pipeline.held_batches import HeldBatches
    from prefetch._pipeline.reader_jobs import Schedule
    from prefetch._plan.order import Order
    from prefetch._plan.position import Position
    from prefetch._ring.filling import Filling
    from prefetch._ring.ring import Ring


class Delivery:
    """The batches that are ready, and the place of the consumer among them.

    Args:
        ring: The slots.
        schedule: Is notified of batches that are no longer wanted.
        order: Where epochs begin and end.
        bad_records: Counts those of the batches served.
        held: What the consumer may hold.

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
        held: HeldBatches,
    ) -> None:
        self._ring = ring
        self._schedule = schedule
        self._order = order
        self._bad_records = bad_records
        self._held = held
        self._ready: dict[int, Filling] = {}
        self._num_failed = 0
        self._claim: Claim | None = None
        self._adopted: tuple[Claim, bool] | None = None
        self.served = Served(0, order.first_epoch, False, (), 0, 0, 0)

    def take_over(self, earlier: Delivery, position: Position) -> bool:
        """Continue the iterator that another delivery serves; before any reader runs.

        Nothing of the iterator changes before it asks for a batch here.

        Args:
            earlier: The other one, of the same epochs, shared out otherwise.
            position: Where it is, and this one begins.

        Returns:
            Whether that is within an epoch, of which that iterator serves the rest.
        """
        claim, served = earlier._claim, earlier.served
        is_over = self._order.last_batch != "wrap" and position.epoch > served.epoch
        if claim is None and earlier._adopted is not None:
            claim, is_over = earlier._adopted
        if claim is None or claim.ended:
            return False
        is_begun = not is_over and earlier._is_epoch_begun()
        self._adopted = claim, is_over
        self.served = self.served._replace(is_begun=is_begun)
        return is_begun

    @property
    def num_ready(self) -> int:
        """Batches that stand ready without a fault."""
        return len(self._ready) - self._num_failed

    def add(self, filling: Filling) -> None:
        """Take in a complete or failed batch: its slot is READY; by a reader."""
        filling.slot.publish()
        self._num_failed += filling.failure is not None
        self._ready[filling.sequence] = filling

    def poll(self, claim: Claim, taken: Taken) -> bool:
        """Take the claim's next batch, and wake readers; return False if it is not ready yet.

        Where an exception interrupts it, it is to be called again.

        Raises:
            Exception: As `claim`, `HeldBatches.make_room` and `take`.
        """
        ring, schedule = self._ring, self._schedule
        if taken.num_ready < 0:
            taken.num_ready = self.num_ready
        try:
            # Mostly the two have nothing to do; a small batch would feel a call of each.
            if claim is not self._claim or self.served.next == claim.end or schedule.is_behind:
                self.claim(claim)
            leased, held = ring.occupancy.num_leased, self._held
            if leased >= held.max_batches_held or leased + held.prefetch > len(ring.slots):
                served = self.served
                held.make_room(
                    is_next_ready=served.next in self._ready, is_repeat=served.lost is not None
                )
            return self.take(taken)
        finally:
            # One batch fewer is ahead, or wanted, or a slot more is there.
            if schedule.num_idle:
                schedule.wake_idle()

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
                # One assignment: a signal between two would end the epoch without counting it.
                after = served._replace(epoch=served.epoch + 1, is_begun=False)
                claim.ended, self.served = True, after
            raise EndOfEpoch

    def take(self, taken: Taken) -> bool:
        """Take the next batch: its slot is LEASED; return False if it is not ready yet.

        Args:
            taken: Where it is noted.

        Raises:
            Exception: What went wrong in it, as it happened; noted as its fate.
        """
        sequence, _, _, in_hand, batches, samples, ready_sum = self.served
        # Mostly there was one call before, and it has returned.
        if len(in_hand) > 1 or (in_hand and not in_hand[0].is_over):
            lost = self.served.lost
            if lost is not None:
                self._take_again(lost, taken)
                return True
            in_hand = tuple([earlier for earlier in in_hand if not earlier.is_over])
        else:
            in_hand = ()
        filling = self._ready.get(sequence)
        if filling is None:
            return False
        if filling.bad or filling.failure is not None:
            self._raise_failure(filling, taken)
        planned = filling.planned
        assert planned is not None
        taken.filling = filling
        batches, samples = batches + 1, samples + len(planned.records)
        ready_sum, in_hand = ready_sum + taken.num_ready, (*in_hand, taken)
        self.served = Served(
            sequence + 1, planned.epoch, True, in_hand, batches, samples, ready_sum
        )  # fmt: skip
        # An exception from here on makes it a lost batch, and `_take_again` does the rest.
        filling.slot.take()
        del self._ready[sequence]
        return True

    def _take_again(self, lost: Taken, taken: Taken) -> None:
        """Take what a call has lost to an exception; the slot may be LEASED already."""
        served, filling = self.served, lost.filling
        assert filling is not None
        assert filling.planned is not None
        taken.filling, taken.batch = filling, lost.batch
        in_hand = [taken if other is lost else other for other in served.in_hand]
        self.served = served._replace(
            epoch=filling.planned.epoch,
            is_begun=True,
            in_hand=tuple([other for other in in_hand if not other.is_over]),
            ready_sum=served.ready_sum + taken.num_ready - lost.num_ready,
        )
        if filling.slot.state is SlotState.READY:
            filling.slot.take()
        self._ready.pop(filling.sequence, None)

    def _raise_failure(self, filling: Filling, taken: Taken) -> None:
        """Count a batch's bad records, and raise what went wrong in it.

        Count them even if the batch failed: too many of them may be the cause, and that error comes
        first.
        """
        if filling.bad:
            bad = [bad for part in sorted(filling.bad) for bad in filling.bad[part].values()]
            try:
                to_log = self._bad_records.count(bad)
            except TooManyBadRecordsError as error:
                taken.fate = error
                raise
            filling.bad_to_log = filling.bad_to_log or tuple(to_log)
            filling.bad = {}
        if filling.failure is not None:
            taken.fate = filling.failure[1]
            raise taken.fate

    def drop_unwanted(self) -> None:
        """Give back what is ready and no longer wanted; by a reader."""
        schedule = self._schedule
        if schedule.is_behind:
            for number in [number for number in self._ready if number < schedule.first_wanted]:
                self._pop(number).forget()
            schedule.drop_unwanted()

    def abandon(self) -> None:
        """Drop all batches that are ready; only when no reader runs any more."""
        for number in list(self._ready):
            self._pop(number).forget()
        for taken in self.served.in_hand:
            if taken.is_lost:
                taken.drop()

    def _pop(self, sequence: int) -> Filling:
        filling = self._ready.pop(sequence)
        self._num_failed -= filling.failure is not None
        return filling

    def _begin(self, claim: Claim) -> None:
        adopted = self._adopted
        if adopted is not None and claim is adopted[0]:
            self._continue(claim, is_over=adopted[1])
            return
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
        # An exhausted feed has no claim, so that a further call raises the error again. All in one
        # assignment: a claim that a signal left half begun would serve the wrong epoch.
        started, begun = not exhausted, None if exhausted else claim
        after = (started, end, begun, None, served, first)
        claim.started, claim.end, self._claim, self._adopted, self.served, schedule.first_wanted = (
            after
        )
        if exhausted:
            assert order.epochs is not None
            raise EpochsExhaustedError(order.epochs)

    def _continue(self, claim: Claim, *, is_over: bool) -> None:
        """Begin to serve what another delivery has served up to here.

        Raises:
            EndOfEpoch: Its epoch was over there, and it had not been asked again.
        """
        if is_over:
            claim.ended = True
            raise EndOfEpoch
        order = self._order
        is_endless = order.last_batch == "wrap"
        end = order.num_batches if is_endless else order.first_of_epoch(self.served.epoch + 1)
        claim.end, self._claim, self._adopted = end, claim, None

    def _is_epoch_begun(self) -> bool:
        """Return whether the loop has any batch of the epoch."""
        served = self.served
        if served.lost is None or not served.is_begun:
            return served.is_begun
        return served.place > self._order.first_of_epoch(served.epoch)

    def _next_epoch(self, served: Served) -> tuple[Served, int]:
        """Return where the next iterator starts, and the first batch that is wanted then."""
        if not self._is_epoch_begun():
            return served, self._schedule.first_wanted
        for taken in served.in_hand:
            if taken.is_lost:
                taken.drop()
        first = self._order.first_of_epoch(served.epoch + 1)
        after = served.without_lost()
        return after._replace(next=first, epoch=served.epoch + 1, is_begun=False), first
