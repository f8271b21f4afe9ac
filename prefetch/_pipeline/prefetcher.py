"""The meeting place of the readers and the consumer: one lock, two ways to wait.

The lock guards the ring, the schedule and the delivery. It is held for bookkeeping only, never
while a page may fault, an image is decoded, a copy is queued or anybody waits. The rules that keep
every wait short of a hang:

* Readers wait on the ring's inbox, a SimpleQueue: slots come back to it from finalizers, which may
  take no lock. Whoever makes work while readers are idle puts a wake-up there. A reader declares
  itself idle under the lock, after it has seen that there is no work, so that a wake-up put from
  then on finds it. A wake-up too many costs one look around.
* The consumer waits at a gate of its own, without the lock, or on a future of its event loop. Both
  are told after what they wait for has become true; see `Gates`.
* Stopping sets a flag and puts one wake-up a reader. It takes no lock, so that a finalizer can do
  it. The last reader to leave gives back what all of them shared.
* A signal handler or a finalizer may come to a thread that holds the lock. What they may call -
  position(), stats(), closing without waiting - takes none: it reads what is replaced as a whole.
  The lock knows its thread, so that a next() there is refused.
* An exception out of a signal handler may interrupt the consumer anywhere. What it changes is
  changed in one assignment, and what takes several steps is done by readers, which signals never
  reach.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import gc
import logging
import os
import sys
import threading
import time
import weakref
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from memory import SyncedMemoryError, threads
from memory.threads import ThreadStart
from prefetch._errors.classes import (
    BatchesHeldError,
    FeedBusyError,
    FeedClosedError,
    ThreadStartError,
)
from prefetch._pipeline.delivery import Claim, Delivery, Taken, hand_over
from prefetch._pipeline.gates import Gates
from prefetch._pipeline.reader import Reader
from prefetch._pipeline.schedule import Opening, Part, Schedule
from prefetch._pipeline.stats import FeedStats
from prefetch._plan.draw_states import DrawStates
from prefetch._plan.position import Position
from prefetch._process.nested import mark_entry
from prefetch._process.nvtx import ranged
from prefetch._ring.lease import FeedEnd
from prefetch._ring.ring import Ring
from prefetch._ring.slot import Slot, SlotState

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory import Stream
    from prefetch._pipeline.components import Components
    from prefetch._ring.batch import Batch
    from prefetch._source.source import Walker


mark_entry(__file__)

_Result = TypeVar("_Result")

logger = logging.getLogger("prefetch")

_live: weakref.WeakSet[Prefetcher] = weakref.WeakSet()


class Prefetcher:
    """Runs the readers and hands their batches to the consumer, in order; thread-safe.

    Args:
        components: What it works with.
        clock: Seconds from some fixed point.

    Attributes:
        components: What it works with.
        consumer_stream: The stream that batches are handed over on; None for the one that is
            current on the consumer's thread.
    """

    def __init__(
        self, components: Components, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.components = components
        self.consumer_stream: Stream | None = None
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._gates = Gates()
        self._ring = Ring(
            components.device, components.prefetch + 1, transform=components.device_transform
        )
        self._schedule = Schedule(
            self._ring,
            components.order,
            num_threads=components.num_threads,
            prefetch=components.prefetch,
        )
        self._delivery = Delivery(
            self._ring,
            self._schedule,
            components.order,
            components.bad_records,
            prefetch=components.prefetch,
            max_batches_held=components.max_batches_held,
        )
        self._walker: Walker | None = (
            components.source.walker() if components.order.is_sequential else None
        )
        self._rng = DrawStates(
            components.augmentation,
            components.order,
            keep=components.prefetch + components.max_batches_held + 3,
        )
        # Where the index takes a while, the first epoch is walked, so that it starts at once; and
        # afterwards the file has been read.
        walks = components.source.is_slow_to_index
        self._indexed_from_epoch = components.order.first_epoch + int(walks)
        self._readers: list[Reader] = []
        self._reader_start = ThreadStart(())
        self._has_started = False
        self._num_running = 0
        self._feed_end: FeedEnd | None = None
        self._predecessor: Prefetcher | None = None
        self._stopping = False
        self._why_closed = ""
        self._cleaned_up = False
        self._failure: BaseException | None = None
        self._told_of_failure = False
        self._has_warned_of_stall = False
        self._waits = 0
        self._wait_s = 0.0
        self._busy_s = 0.0
        _live.add(self)

    def attach(self, feed: object, predecessor: Prefetcher | None = None) -> None:
        """Stop when a feed is collected.

        Args:
            feed: The feed.
            predecessor: What has worked for it up to now, to be closed with the first batch.
        """
        self._feed_end = FeedEnd(feed, self._ring.inbox)
        self._predecessor = predecessor

    def forgo(self) -> None:
        """Close without having worked: the predecessor goes on."""
        self._predecessor = None
        self.close()

    def end_predecessor(self) -> None:
        """Close what has worked for the feed before; idempotent."""
        predecessor = self._predecessor
        if predecessor is not None:
            predecessor.close()
            self._predecessor = None

    # What readers call -------------------------------------------------------------------------

    def next_job(
        self, busy_s: float = 0.0, planned: Opening | None = None
    ) -> Opening | Part | None:
        """Return a reader's next piece of work, None when it is to end; blocks until there is.

        Args:
            busy_s: What the piece before took, in seconds.
            planned: The next piece, from `early_opening`.
        """
        inbox = self._ring.inbox
        while True:
            with self._lock:
                self._busy_s += busy_s
                busy_s = 0.0
                self._delivery.drop_unwanted()
                self._collect()
                if self._stopping:
                    return None
                job = planned or self._schedule.find_job()
                unneeded = self._ring.take_unneeded() if isinstance(job, Opening) else []
                if job is not None:
                    self._schedule.wake_idle()
                else:
                    self._schedule.num_idle += 1
                    if self._failure is not None:
                        self._gates.notify_all()  # perhaps nobody is left who works at anything
                if self._schedule.num_idle:
                    self._ring.call_for_block()
            if job is not None:
                for slot in unneeded:
                    slot.close()
                return job
            arrival = inbox.get()
            with self._lock:
                self._schedule.num_idle -= 1
                self._ring.accept(arrival)

    def next_opening(self) -> Opening | None:
        """Return another slot to open for a reader that has opened one; never waits."""
        with self._lock:
            return None if self._stopping else self._schedule.find_opening()

    def early_opening(self) -> Opening | None:
        """Return a slot to open for a reader before it hands over what it has filled.

        Only where a batch is planned without anything being read, which may take long.
        """
        with self._lock:
            if self._stopping or self._walker is not None:
                return None
            self._collect()
            return self._schedule.find_early_opening()

    @property
    def max_batches_per_call(self) -> int:
        """How many light batches a reader fills in one go."""
        return self._schedule.max_batches_per_call

    def plan_into(self, slot: Slot) -> None:
        """Plan the slot's batch and walk its records; by the one reader that opens a slot."""
        try:
            planned = self.components.order.plan(slot.sequence)
            assert planned is not None, "num_batches bounds the serial numbers"
            slot.planned = planned  # an error from here on says which batch it was for
            words = self._rng.words(planned)
            records = None
            if self._walker is not None and planned.epoch >= self._indexed_from_epoch:
                self._leave_walker()
            if self._walker is not None:
                records = self._walker.take(int(planned.records[0]), len(planned.records))
            slot.begin(planned, words=words, records=records)
        finally:
            with self._lock:
                self._schedule.planned()

    def _leave_walker(self) -> None:
        """Have the readers find the records themselves, if they are faster at that."""
        self._indexed_from_epoch = sys.maxsize
        if self.components.source.can_do_without_walker():
            self._walker = None

    def shaped(self, slot: Slot) -> Part | None:
        """Open the slot's parts to all readers; return the first, None if it is not wanted."""
        with self._lock:
            return self._schedule.shaped(slot)

    def parts_done(self, parts: Iterable[tuple[Part, BaseException | None]]) -> list[Slot]:
        """Count finished parts, each with its error; return the batches the caller is to upload."""
        to_upload = []
        with self._lock:
            for part, error in parts:
                slot = part.slot
                if error is not None:
                    slot.fail(part.start, error)
                if not self._schedule.part_done(slot):
                    continue
                slot.release_records()
                if slot.failure is None and self.components.device.has_device_memory:
                    slot.state = SlotState.UPLOADING
                    to_upload.append(slot)
                else:
                    self._publish(slot)
        return to_upload

    def publish(self, slot: Slot, error: BaseException | None) -> None:
        """Publish a batch: its copies to the device are queued, or ``error`` is its end."""
        with self._lock:
            if error is not None:
                slot.fail(0, error)
            self._publish(slot)

    def reader_failed(self, error: BaseException) -> None:
        """Note that a reader could not work at all; raised when no batch is on its way."""
        with self._lock:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Open no further batch, and raise the error behind those on their way; with the lock."""
        if self._failure is None:
            self._failure = error
            self._schedule.over = True
            self._gates.notify_all()

    def reader_began(self) -> bool:
        """Count a reader in; return whether it is to work at all.

        Readers count themselves: Ctrl-C in the middle of a thread's start leaves it open whether
        there will be one.
        """
        with self._lock:
            if self._stopping:
                return False
            self._num_running += 1
            return True

    def reader_ended(self) -> None:
        """Count a reader out; the last one gives back what all shared."""
        with self._lock:
            self._num_running -= 1
            self._gates.notify_all()
        if self._stopping:
            self._clean_up()

    def _publish(self, slot: Slot) -> None:
        if slot.discarded:
            self._schedule.retire(slot)
            return
        self._schedule.finish(slot)
        self._delivery.add(slot)
        if slot.sequence == self._delivery.serving:
            self._gates.notify_all()

    # What the consumer calls -------------------------------------------------------------------

    @ranged("next")
    def take(self, claim: Claim, taken: Taken) -> Batch:
        """Return the claim's next batch; blocks until it is ready.

        Args:
            claim: The iterator's.
            taken: The call's. The batch counts as served once that is over.

        Raises:
            EndOfEpoch: The epoch is over.
            StaleIteratorError: Another claim has taken over.
            EpochsExhaustedError: A new claim, and every configured epoch has been served.
            BatchesHeldError: The consumer holds as many batches as it may.
            FeedBusyError: This thread is in the middle of another call of the feed.
            FeedClosedError: The feed is closed.
            Exception: What went wrong in the claim's next batch, as it happened; ``taken.fate``.
        """
        self._start(taken)
        try:
            self._wait_for(claim, taken)
        except BatchesHeldError:
            gc.collect()  # a reference cycle may be all that holds them
            self._wait_for(claim, taken)
        return self._hand_over(taken)

    def lose(self, taken: Taken) -> None:
        """Have a batch served again that the loop was not given, of whatever exception."""
        taken.is_lost = True
        if self._cleaned_up and taken.slot is not None:
            taken.batch = None
            taken.slot.forget()

    def _hand_over(self, taken: Taken) -> Batch:
        try:
            return hand_over(taken, self.consumer_stream)
        except SyncedMemoryError as error:
            if self._stopping:  # by another thread, meanwhile, and the device with it
                raise self.closed_error("open another one") from None
            taken.fate = error
            raise

    def _locked(self, step: Callable[..., _Result], *arguments: Any) -> _Result:
        """Do something with the lock, on a thread that signals interrupt.

        Raises:
            FeedBusyError: This thread has the lock already.
        """
        lock = self._lock
        is_mine: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]  # noqa: SLF001
        if is_mine():
            raise FeedBusyError(
                "next() was called by a signal handler, or by a finalizer, within another call of "
                "the feed on the same thread; call only close(), stats() and state_dict() there"
            )
        try:
            with lock:
                return step(*arguments)
        finally:
            if is_mine():  # a tracer's exception came between the block's last step and its end
                lock.release()

    def _wait_for(self, claim: Claim, taken: Taken) -> None:
        began: float | None = None
        try:
            while (gate := self._locked(self._poll_or, self._gates.gate, claim, taken)) is not None:
                if began is None:
                    self._refuse_reader()
                    began = self._clock()
                # The flag is set without the lock: it may be since the poll, and the gates opened.
                if not self._stopping and not self._gates.wait(gate, self._patience_s):
                    self._tell_of_stall()
        finally:
            if began is not None:
                self._locked(self._count_wait, self._clock() - began)

    def _refuse_reader(self) -> None:
        """Refuse that a reader, in a finalizer, waits for what it is to read itself.

        Raises:
            FeedBusyError: This is one of the feed's readers.
        """
        if threading.current_thread() in self._readers:
            raise FeedBusyError(
                "next() was called by a finalizer on a thread that reads for the feed, and would "
                "wait for itself"
            )

    def _count_wait(self, waited_s: float) -> None:
        self._waits, self._wait_s = self._waits + 1, self._wait_s + waited_s

    async def take_async(self, claim: Claim, taken: Taken) -> Batch:
        """Return the claim's next batch without blocking the event loop; raises as `take`.

        A wait that is cancelled takes no batch.
        """
        self._start(taken, asyncio.get_running_loop())
        try:
            await self._wait_for_async(claim, taken)
        except BatchesHeldError:
            gc.collect()
            await self._wait_for_async(claim, taken)
        return self._hand_over(taken)

    async def _wait_for_async(self, claim: Claim, taken: Taken) -> None:
        future = partial(self._gates.future, asyncio.get_running_loop())
        began: float | None = None
        try:
            while (waiter := self._locked(self._poll_or, future, claim, taken)) is not None:
                if began is None:
                    began = self._clock()
                if self._stopping:
                    self._gates.discard(waiter)
                else:
                    await self._until_or_tell(waiter)
        finally:
            if began is not None:
                self._locked(self._count_wait, self._clock() - began)

    async def _until(self, waiter: asyncio.Future[None]) -> None:
        try:
            await waiter
        finally:
            self._gates.discard(waiter)

    async def _until_or_tell(self, waiter: asyncio.Future[None]) -> None:
        """Wait for news; log, once, what everybody is doing if there is none for too long."""
        patience_s = self._patience_s
        if patience_s is None:
            await self._until(waiter)
            return
        timer = waiter.get_loop().call_later(patience_s, self._tell_of_stall)
        try:
            await self._until(waiter)
        finally:
            timer.cancel()

    @property
    def _patience_s(self) -> float | None:
        """How long to wait before the log says why; None for no limit."""
        return None if self._has_warned_of_stall else self.components.stall_warning_s

    def _tell_of_stall(self) -> None:
        if self._has_warned_of_stall:
            return
        self._has_warned_of_stall = True
        logger.warning("%s", self._stall_report())

    def _stall_report(self) -> str:
        """Say what every reader and slot is doing."""
        waited_s, number = self.components.stall_warning_s, self._delivery.serving
        lines = [f"next() has waited {waited_s} s for batch {number} of the feed:"]
        lines += [f"{reader.name}: {reader.doing}" for reader in self._readers]
        lines += [repr(slot) for slot in self._ring.slots]
        return "\n  ".join(lines)

    def _poll_or(self, wait: Callable[[], _Result], claim: Claim, taken: Taken) -> _Result | None:
        """Take the claim's next slot and return None, or return what to wait at; with the lock."""
        return None if self._poll(claim, taken) else wait()

    def _poll(self, claim: Claim, taken: Taken) -> bool:
        """Take the claim's next slot; return False if it is not ready; with the lock, never waits.

        What it calls may be interrupted anywhere, and is then called again.
        """
        delivery, schedule = self._delivery, self._schedule
        if self._stopping and not claim.ended:
            raise self.closed_error("open another one")
        if taken.num_ready < 0:
            taken.num_ready = delivery.num_ready
        try:
            delivery.claim(claim)
            delivery.make_room()
            is_taken = delivery.take(taken)
        finally:
            schedule.wake_idle()  # one batch fewer is ahead, or wanted, or a slot more is there
        if not is_taken and self._failure is not None and not self._is_coming():
            self._told_of_failure = True
            taken.fate = self._failure
            raise taken.fate
        return is_taken

    def _is_coming(self) -> bool:
        """Return whether the batch served next will ever be ready: a reader may have died at it."""
        schedule, serving = self._schedule, self._delivery.serving
        if not self._num_running or not schedule.is_coming(serving):
            return False
        return schedule.num_idle < self._num_running or schedule.has_parts(serving)

    def _collect(self) -> None:
        """Take in what has come back; with the lock.

        Wake-ups are taken in with it, those that tell readers to stop too. The flag is set before
        those are put, so that whoever took one sees it here and puts them again.
        """
        self._ring.collect()
        if self._ring.failure is not None:
            self._fail(self._ring.failure)
        if self._ring.is_abandoned:
            self.request_stop()
        elif self._stopping:
            self._wake_all()

    def _wake_all(self) -> None:
        for _ in range(self.components.num_threads):
            self._ring.inbox.put(None)

    def position(self) -> Position:
        """Return where a feed would go on that was opened anew: what the consumer has taken."""
        served, order = self._delivery.served, self.components.order
        place = served.place
        epoch, num_served = order.resume_point(place)
        return Position(epoch, num_served, order.seed, self._rng.before(place))

    @property
    def epoch(self) -> int:
        """Epoch of the batch served last; after the end of an epoch, the next one."""
        return self._delivery.served.epoch

    # Its life ----------------------------------------------------------------------------------

    def _start(self, taken: Taken, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Start the readers at the first call; with an event loop without waiting until they run.

        What comes of it shows then where a batch is waited for. What an exception interrupts, the
        next call goes on with.
        """
        if self._pid != os.getpid():
            raise FeedClosedError(
                f"the feed was opened in process {self._pid} and this is process {os.getpid()}: "
                f"threads do not survive a fork; open the feed in the child"
            )
        if self._has_started or self._stopping:
            return
        taken.num_ready = 0  # whatever is ready by the time that the readers run
        self.end_predecessor()
        error = self._locked(self._begin_readers, loop)
        start = self._reader_start
        if error is None and loop is None:
            start.settle()
            error = start.take_error()
        if error is not None:
            taken.fate = failure = self._start_failure(error)
            self.request_stop(f" since {type(failure).__name__} came while its readers started")
            raise failure
        self._has_started = True

    def _start_failure(self, error: BaseException) -> BaseException:
        number, threads = self._reader_start.num_started, self.components.num_threads
        if not isinstance(error, RuntimeError) or number >= threads:
            return error
        failure = ThreadStartError(str(error), number=number, threads=threads)
        failure.__cause__ = error
        return failure

    def _begin_readers(self, loop: asyncio.AbstractEventLoop | None) -> BaseException | None:
        """Have the readers started on another thread; return why there is no further thread.

        With an event loop a failure is noted from whatever thread finds it out.
        """
        if not self._readers:
            readers = [
                Reader(self, number, clock=self._clock)
                for number in range(self.components.num_threads)
            ]
            after = (readers, ThreadStart(readers))
            self._readers, self._reader_start = after
        start = self._reader_start
        if start.has_begun or self._stopping:
            return None
        if loop is None:
            return start.begin()

        def check() -> None:
            error = start.take_error()
            if error is not None:
                self.reader_failed(self._start_failure(error))

        def over() -> None:
            check()
            with suppress(RuntimeError):  # the loop is closed, and its timers with it
                loop.call_soon_threadsafe(timer.cancel)

        def give_up() -> None:
            start.give_up()
            check()

        timer = loop.call_later(threads.LIMIT_S, give_up)
        error = start.begin(over)
        if error is not None:
            timer.cancel()
        return error

    def request_stop(self, why: str = "") -> None:
        """Make every reader end, without waiting for it and without a lock; idempotent.

        Safe in a finalizer. The last reader to end gives back what all shared.

        Args:
            why: What to say of it to whoever asks for a batch later, if this is what closes it.
        """
        if not self._stopping:
            self._why_closed = why
        self._stopping = True
        self._ring.keeper.stop()
        self._wake_all()

    def abandon(self, *, wait: bool) -> None:
        """Stop as `request_stop` does, for a finalizer of the only one who could still ask.

        Where no reader runs that could do it later, what they would share is given back here.

        Args:
            wait: Whether this thread may wait for locks; else another one is started that does.
        """
        if self._predecessor is not None:
            self._predecessor.request_stop()
        self.request_stop()
        if self._num_running or self._cleaned_up:
            return
        if wait:
            self._clean_up()
        else:
            with suppress(RuntimeError):  # no further thread: at exit it is seen to
                _thread.start_new_thread(self._clean_up, ())

    def close(self, *, wait: bool = True) -> None:
        """Stop and join the readers and close the source; idempotent, from any thread.

        Memory of batches that the consumer holds stays valid.

        Args:
            wait: Whether this thread may wait; else the readers are only told.
        """
        self._close(wait=wait)
        if wait and self._pid == os.getpid():
            self._ring.keeper.join()

    def _close(self, *, wait: bool) -> None:
        """Close, but do not wait for what batches are kept until."""
        if self._pid != os.getpid():
            return  # the threads are the parent's, and the lock may be held by one of them
        self.request_stop()
        self._gates.notify_all()
        if not wait:
            return
        self.end_predecessor()
        self._reader_start.settle()  # an exception may have come while they were started
        for reader in self._readers:
            if reader.ident is not None and reader is not threading.current_thread():
                reader.join()
        self._clean_up()

    async def join_async(self) -> None:
        """Wait until every reader has ended after `request_stop`, without blocking the loop."""
        self._gates.notify_all()
        while True:
            waiter = self._gates.future(asyncio.get_running_loop())
            if not self._num_running:
                self._gates.discard(waiter)
                break
            await self._until(waiter)
        self._close(wait=True)

    @property
    def closed(self) -> bool:
        """Whether the prefetcher has been told to stop."""
        return self._stopping

    def closed_error(self, cure: str) -> FeedClosedError:
        """Return the error for what a closed feed is asked for: it says why it is closed."""
        return FeedClosedError(f"the feed is closed{self._why_closed}; {cure}")

    def _clean_up(self) -> None:
        """Give back what the readers shared, after the last of them has ended; idempotent."""
        untold = self._locked(self._drop_all)
        if untold is not None:
            # Not raised: the batches that were served are right, and close() may run in an
            # exception's wake, or in a finalizer. Its words only: whoever keeps the log's records
            # would keep with the error, by way of its traceback, the ring's memory.
            what = str(untold)
            logger.error("the feed was closed after a failure that no next() has told: %s", what)
        if self._cleaned_up or self._num_running:
            return
        self.components.source.close()
        self.components.bad_records.close()
        if self.components.owns_device:
            self.components.device.close()
        self._cleaned_up = True  # last: what an exception interrupts is done again
        _live.discard(self)

    def _drop_all(self) -> BaseException | None:
        """Drop all batches but those that are held; return a failure that nobody has heard of."""
        if self._cleaned_up or self._num_running:
            return None
        in_hand = {taken.slot for taken in self._delivery.served.in_hand if taken.is_pending}
        self._schedule.abandon()
        self._delivery.abandon()
        self._ring.close(in_hand)
        untold = None if self._told_of_failure else self._failure or self._ring.failure
        self._told_of_failure = True
        return untold

    def stats(self) -> FeedStats:
        """Return a snapshot of the counters; takes no lock."""
        ring, expected, served = self._ring, self.components.expected_memory, self._delivery.served
        served = served.counted()
        slots = list(ring.slots)
        states = Counter(slot.reported_state for slot in slots)
        return FeedStats(
            batches=served.batches,
            samples=served.samples,
            wait_s=self._wait_s,
            waits=self._waits,
            mean_ready=served.ready_sum / max(served.batches, 1),
            busy_s=self._busy_s,
            threads=self.components.num_threads,
            prefetch=self.components.prefetch,
            slots=len(slots),
            slots_free=states[SlotState.FREE],
            slots_filling=states[SlotState.FILLING] + states[SlotState.UPLOADING],
            slots_ready=states[SlotState.READY],
            slots_leased=states[SlotState.LEASED],
            slots_draining=states[SlotState.DRAINING],
            ring_host_bytes=None if expected is None else expected.host_bytes,
            ring_device_bytes=None if expected is None else expected.device_bytes,
            host_bytes=ring.host_bytes,
            device_bytes=sum(slot.device_bytes for slot in slots),
            bad_records=len(self.components.bad_records),
            device=self.components.device.name,
        )


def _close_all() -> None:
    for prefetcher in list(_live):
        prefetcher.close()


# Joins every reader before the interpreter, and LMDB with it, goes.
atexit.register(_close_all)
