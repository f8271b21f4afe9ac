"""The meeting place of the readers and the consumer: one lock, two ways to wait.

The lock guards the ring, the schedule and the delivery. It is held for bookkeeping only, never
while a page may fault, an image is decoded, a copy is queued or anybody waits. Why no wait can
hang:

* Readers wait on the ring's inbox, a SimpleQueue, where slots come back from finalizers, which may
  take no lock. A thread that makes work while readers are idle puts a wake-up there. One that is
  spare waits elsewhere, while another one is at work or waits on the inbox.
* The consumer waits at a gate of its own, without the lock, or on a future of its event loop. Both
  are notified after what they wait for has become true; see `Gates`.
* A signal handler or a finalizer may run on a thread that holds the lock. What they may call
  (position(), stats(), closing without waiting) takes none: it reads what is replaced as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prefetch._errors.classes import FeedClosedError
from prefetch._pipeline.gates import Gates
from prefetch._pipeline.interruptible_lock import InterruptibleLock
from prefetch._pipeline.reader_jobs import Opening, Part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from prefetch._pipeline.components import Components
    from prefetch._pipeline.delivery import Delivery
    from prefetch._pipeline.planner import Planner
    from prefetch._pipeline.reader_jobs import Schedule
    from prefetch._ring.filling import Filling
    from prefetch._ring.ring import Ring


class Coordinator:
    """Gives the readers their work, and takes what they have done; thread-safe.

    Args:
        components: What the feed works with.
        ring: The slots.
        planner: Plans batches.
        schedule: What is being filled.
        delivery: What is ready.
        on_over: Called by the last reader that ends after `request_stop`, without the lock.

    Attributes:
        guard: The lock, as the consumer takes it.
        lock: The lock itself; it guards ring, schedule and delivery.
        gates: Where consumers wait.
        is_stopping: Whether the readers are to end.
        num_running: Readers that have begun and not ended.
        busy_s: Seconds that readers spent on work.
    """

    def __init__(
        self,
        components: Components,
        *,
        ring: Ring,
        planner: Planner,
        schedule: Schedule,
        delivery: Delivery,
        on_over: Callable[[], object],
    ) -> None:
        self.components = components
        self.guard = InterruptibleLock()
        self.lock = self.guard.lock
        self.gates = Gates()
        self.ring = ring
        self.planner = planner
        self.schedule = schedule
        self.delivery = delivery
        self.is_stopping = False
        self.num_running = 0
        self.busy_s = 0.0
        self._on_over = on_over
        self._why_closed = ""
        self._failure: BaseException | None = None
        self._is_failure_raised = False

    # What readers call ------------------------------------------------------------------------

    def reader_began(self) -> bool:
        """Count a reader in; return whether it is to work at all."""
        # Readers count themselves: Ctrl-C in the middle of a thread's start leaves it open whether
        # there will be one.
        with self.lock:
            if self.is_stopping:
                return False
            self.num_running += 1
            return True

    def next_job(
        self, busy_s: float = 0.0, planned: Opening | None = None
    ) -> Opening | Part | None:
        """Return a reader's next piece of work, None when it is to end; blocks until there is.

        Args:
            busy_s: What the piece before took, in seconds.
            planned: The next piece, from `early_opening`.
        """
        ring, schedule = self.ring, self.schedule
        while True:
            with self.lock:
                self.busy_s += busy_s
                busy_s = 0.0
                if schedule.is_behind:
                    self.delivery.drop_unwanted()
                self._collect()
                if self.is_stopping:
                    return None
                num_not_idle = self.num_running - schedule.num_idle
                is_spare = planned is None and schedule.spare.is_spare(num_not_idle)
                job = None if is_spare else planned or schedule.find_job()
                unneeded = ring.take_unneeded() if isinstance(job, Opening) else ()
                if job is None:
                    # Idle from here on, under the lock that has seen no work: a wake-up that is put
                    # from now on finds this reader too. One too many costs one extra poll.
                    self._note_idle(is_spare=is_spare)
                if schedule.num_idle:
                    if job is not None:
                        schedule.wake_idle()
                    ring.call_for_block()
            if job is not None:
                for slot in unneeded:
                    slot.close()  # without the lock: freeing pinned memory takes its time
                return job
            self._wait_for_work(is_spare=is_spare)

    def _note_idle(self, *, is_spare: bool) -> None:
        """Count a reader that falls idle, or asleep as a spare one; with the lock."""
        if is_spare:
            self.schedule.spare.num += 1
        else:
            self.schedule.num_idle += 1
        if self._failure is not None:
            self.gates.notify_all()  # this may have been the last reader at work

    def _wait_for_work(self, *, is_spare: bool) -> None:
        """Wait as an idle reader that found none."""
        if is_spare:
            self.schedule.spare.sleep()
            return
        arrival = self.ring.inbox.get()
        with self.lock:
            self.schedule.num_idle -= 1
            self.ring.accept(arrival)

    def next_opening(self) -> Opening | None:
        """Return another batch to open for a reader that has opened one; never waits."""
        with self.lock:
            return None if self.is_stopping else self.schedule.find_opening()

    def early_opening(self) -> Opening | None:
        """Return a batch to open for a reader before it hands over what it has filled."""
        with self.lock:
            # Where planning reads the database, the filled batch comes first.
            if self.is_stopping or self.planner.reads:
                return None
            self._collect()
            return self.schedule.find_early_opening()

    def plan(self, filling: Filling) -> None:
        """Plan a batch; by the one reader that opens it. Then the next one may be opened."""
        try:
            self.planner.plan_into(filling)
        finally:
            with self.lock:
                self.schedule.planning_done()

    def split_into_parts(self, filling: Filling) -> Part | None:
        """Give a batch's parts to all readers; return the first, None if the batch is discarded."""
        with self.lock:
            return self.schedule.split_into_parts(filling)

    def parts_done(self, parts: Sequence[Part]) -> list[Filling]:
        """Count parts as done; return the batches that the caller is to finish and `publish`."""
        to_finish = []
        has_more_to_do = self.ring.pool is not None or self.components.works_on_batches
        with self.lock:
            for part in parts:
                filling = part.filling
                if not self.schedule.part_done(filling):
                    continue
                filling.release_records()
                if has_more_to_do and filling.failure is None:
                    filling.slot.upload()
                    to_finish.append(filling)
                else:
                    self._publish(filling)
        return to_finish

    def fail(self, filling: Filling, position: int, error: BaseException) -> None:
        """Note what went wrong in a batch, at a position of it; it is raised in its turn."""
        with self.lock:
            filling.fail(position, error)

    def publish(self, filling: Filling) -> None:
        """Publish a batch whose copies to the device are queued, or that has failed."""
        with self.lock:
            self._publish(filling)

    def _publish(self, filling: Filling) -> None:
        if filling.is_discarded:
            self.schedule.retire(filling)
            return
        self.schedule.finish(filling)
        self.delivery.add(filling)
        if filling.sequence == self.delivery.served.next:
            self.gates.notify_all()

    def reader_failed(self, error: BaseException) -> None:
        """Note that a reader could not work at all; raised when no batch is on its way."""
        with self.lock:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Open no further batch, and raise the error behind those on their way."""
        if self._failure is None:
            self._failure = error
            self.schedule.over = True
            self.gates.notify_all()

    def reader_ended(self) -> None:
        """Count a reader out; the last one cleans up, if the feed is closed."""
        with self.lock:
            self.num_running -= 1
            self.schedule.spare.wake_all()  # it may have been the one that sufficed
            self.gates.notify_all()
        if self.is_stopping:
            self._on_over()

    def _collect(self) -> None:
        """Take in what has come back; with the lock."""
        ring = self.ring
        ring.collect()
        if ring.failure is not None:
            self._fail(ring.failure)
        if ring.is_abandoned:
            self.request_stop()
        elif self.is_stopping:
            # The wake-ups by which readers stop were taken in with the rest. The flag is set before
            # they are put, so the reader that took one sees it here and puts them again.
            self._wake_all()

    # What others call -------------------------------------------------------------------------

    def failure_of_next(self) -> BaseException | None:
        """Return why the batch served next will never be ready; None if it will; with the lock."""
        if self._failure is None or self._is_coming():
            return None
        self._is_failure_raised = True
        return self._failure

    def _is_coming(self) -> bool:
        schedule, serving = self.schedule, self.delivery.served.next
        if not self.num_running or not schedule.is_coming(serving):
            return False  # a reader may have died at it
        num_waiting = schedule.num_idle + schedule.spare.num
        return num_waiting < self.num_running or schedule.has_parts(serving)

    def request_stop(self, why: str = "") -> None:
        """Make every reader end, without waiting for it and without a lock; idempotent.

        Safe in a finalizer.

        Args:
            why: For the error of a later next(), if this is what closes the feed.
        """
        # A flag and one wake-up a reader, and no lock: the thread may hold it already.
        if not self.is_stopping:
            self._why_closed = why
        self.is_stopping = True
        self.ring.keeper.stop()
        self._wake_all()

    def _wake_all(self) -> None:
        for _ in range(self.components.num_threads):
            self.ring.inbox.put(None)
        self.schedule.spare.wake_in_any_case(self.components.num_threads)

    def closed_error(self, cure: str) -> FeedClosedError:
        """Return the error of a call that a closed feed refuses; it says why the feed is closed."""
        return FeedClosedError(f"the feed is closed{self._why_closed}; {cure}")

    def drop_all(self) -> BaseException | None:
        """Drop all batches but those that are held, when no reader runs; with the lock.

        Returns:
            A failure that no next() has raised; only once.
        """
        pending = [taken.filling for taken in self.delivery.served.in_hand if taken.is_pending]
        self.schedule.abandon()
        self.delivery.abandon()
        self.ring.close({filling.slot for filling in pending if filling is not None})
        failure = None if self._is_failure_raised else self._failure or self.ring.failure
        self._is_failure_raised = True
        return failure
