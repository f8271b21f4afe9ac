"""The meeting place of the readers and the consumer: one lock, two ways to wait.

The lock guards the ring, the schedule and the delivery. It is held for bookkeeping only, never
while a page may fault, an image is decoded, a copy is queued or anybody waits. The rules that keep
every wait short of a hang:

* Readers wait on the ring's inbox, a SimpleQueue: slots come back to it from finalizers, which may
  take no lock. Whoever makes work while readers are idle puts a wake-up there. A reader declares
  itself idle under the lock, after it has seen that there is no work, so that a wake-up put from
  then on finds it. A wake-up too many costs one look around.
* The consumer waits at a gate of its own, without the lock, or on a future of its event loop. Both
  are told under the lock, after what they wait for has become true.
* Stopping sets a flag and puts one wake-up a reader. It takes no lock, so that a finalizer can do
  it. The last reader to leave gives back what all of them shared.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
import os
import sys
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING

from memory import _thread_start
from memory._thread_start import ThreadStart
from prefetch._delivery import Claim, Delivery, Taken, hand_over
from prefetch._errors import BatchesHeldError, FeedClosedError, ThreadStartError
from prefetch._news import News
from prefetch._reader import Reader
from prefetch._ring import Ring
from prefetch._rng_states import RngStates
from prefetch._schedule import Opening, Part, Schedule
from prefetch._slot import Slot, SlotState
from prefetch._state import Position
from prefetch._stats import FeedStats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memory import Stream
    from prefetch._assembly import Assembly
    from prefetch._batch import Batch
    from prefetch._source import Walker


logger = logging.getLogger("prefetch")

_PAGES_INDEXED_AT_ONCE = 65536  # 0.1 s from the page cache

_live: weakref.WeakSet[Prefetcher] = weakref.WeakSet()


class Prefetcher:
    """Runs the readers and hands their batches to the consumer, in order; thread-safe.

    Args:
        assembly: What it works with.
        clock: Seconds from some fixed point.

    Attributes:
        assembly: What it works with.
        consumer_stream: The stream that batches are handed over on; None for the one that is
            current on the consumer's thread.
    """

    def __init__(
        self, assembly: Assembly, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.assembly = assembly
        self.consumer_stream: Stream | None = None
        self._clock = clock
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._news = News()
        self._async_waiters: set[asyncio.Future[None]] = set()
        self._ring = Ring(
            assembly.device, assembly.prefetch + 1, transform=assembly.device_transform
        )
        self._schedule = Schedule(
            self._ring,
            assembly.order,
            num_threads=assembly.num_threads,
            prefetch=assembly.prefetch,
        )
        self._delivery = Delivery(
            self._ring,
            self._schedule,
            assembly.order,
            assembly.bad_records,
            prefetch=assembly.prefetch,
            max_batches_held=assembly.max_batches_held,
        )
        self._walker: Walker | None = (
            assembly.source.walker() if assembly.order.is_sequential else None
        )
        self._rng = RngStates(
            assembly.augmentation,
            assembly.order,
            keep=assembly.prefetch + assembly.max_batches_held + 3,
        )
        # Where the index takes a while, the first epoch is walked, so that it starts at once; and
        # afterwards the file has been read.
        walks = assembly.source.num_leaf_pages > _PAGES_INDEXED_AT_ONCE
        self._indexed_from_epoch = assembly.order.first_epoch + int(walks)
        self._readers: list[Reader] = []
        self._reader_start = ThreadStart(())
        self._num_running = 0
        self._stopping = False
        self._why_closed = ""
        self._cleaned_up = False
        self._failure: BaseException | None = None
        self._told_of_failure = False
        self._told_of_stall = False
        self._waits = 0
        self._wait_s = 0.0
        self._busy_s = 0.0
        _live.add(self)

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
                        self._notify()  # perhaps nobody is left who works at anything
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
    def most_together(self) -> int:
        """How many light batches a reader fills in one go."""
        return self._schedule.most_together

    def plan_into(self, slot: Slot) -> None:
        """Plan the slot's batch and walk its records; by the one reader that opens a slot."""
        try:
            planned = self.assembly.order.plan(slot.sequence)
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
        if self.assembly.source.can_do_without_walker():
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
                if slot.failure is None and self.assembly.device.has_device_memory:
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
            self._notify()

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
            self._notify()
        if self._stopping:
            self._clean_up()

    def _publish(self, slot: Slot) -> None:
        if slot.discarded:
            self._schedule.retire(slot)
            return
        self._schedule.finish(slot)
        self._delivery.add(slot)
        if slot.sequence == self._delivery.serving:
            self._notify()

    # What the consumer calls -------------------------------------------------------------------

    def take(self, claim: Claim) -> Batch:
        """Return the claim's next batch; blocks until it is ready.

        Raises:
            EndOfEpoch: The epoch is over.
            StaleIteratorError: Another claim has taken over.
            EpochsExhaustedError: A new claim, and every configured epoch has been served.
            BatchesHeldError: The consumer holds as many batches as it may.
            FeedClosedError: The feed is closed.
            Exception: What went wrong in the claim's next batch, as it happened.
        """
        self._start()
        taken = Taken()
        try:
            try:
                slot = self._wait_for(claim, taken)
            except BatchesHeldError:
                gc.collect()  # a reference cycle may be all that holds them
                slot = self._wait_for(claim, taken)
            return hand_over(slot, self.consumer_stream)
        except BaseException:
            self._put_back(taken)
            raise

    def _put_back(self, taken: Taken) -> None:
        """Serve a batch again that the consumer was not given: of an error, or of Ctrl-C."""
        slot = taken.slot
        if slot is None or slot.planned is None:
            return  # nothing was taken, or Ctrl-C came when the batch was made already
        with self._lock:
            self._delivery.put_back(slot)

    def _wait_for(self, claim: Claim, taken: Taken) -> Slot:
        began: float | None = None
        try:
            while True:
                with self._lock:
                    slot = self._poll(claim, taken)
                    if slot is not None:
                        return slot
                    gate = self._news.gate()
                if began is None:
                    began = self._clock()
                self._wait_and_tell(gate)
        finally:
            if began is not None:
                with self._lock:
                    self._waits += 1
                    self._wait_s += self._clock() - began

    async def take_async(self, claim: Claim) -> Batch:
        """Return the claim's next batch without blocking the event loop; raises as `take`.

        A wait that is cancelled takes no batch.
        """
        self._start(asyncio.get_running_loop())
        taken = Taken()
        try:
            try:
                slot = await self._wait_for_async(claim, taken)
            except BatchesHeldError:
                gc.collect()
                slot = await self._wait_for_async(claim, taken)
            return hand_over(slot, self.consumer_stream)
        except BaseException:
            self._put_back(taken)
            raise

    async def _wait_for_async(self, claim: Claim, taken: Taken) -> Slot:
        began: float | None = None
        while True:
            with self._lock:
                slot = self._poll(claim, taken)
                if slot is not None:
                    if began is not None:
                        self._waits += 1
                        self._wait_s += self._clock() - began
                    return slot
                waiter = self._wait_for_news()
            if began is None:
                began = self._clock()
            await self._until_or_tell(waiter)

    def _wait_for_news(self) -> asyncio.Future[None]:
        """Return a future that the next `_notify` resolves; with the lock."""
        waiter = asyncio.get_running_loop().create_future()
        self._async_waiters.add(waiter)
        return waiter

    async def _until(self, waiter: asyncio.Future[None]) -> None:
        try:
            await waiter
        finally:
            with self._lock:
                self._async_waiters.discard(waiter)

    def _wait_and_tell(self, gate: threading.Lock) -> None:
        """Wait for news; log, once, what everybody is doing if there is none for too long."""
        if not self._news.wait(gate, self._patience_s):
            self._tell_of_stall()

    async def _until_or_tell(self, waiter: asyncio.Future[None]) -> None:
        """Do so on an event loop."""
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
        return None if self._told_of_stall else self.assembly.stall_warning_s

    def _tell_of_stall(self) -> None:
        with self._lock:
            if self._told_of_stall:
                return
            self._told_of_stall = True
            report = self._stall_report()
        logger.warning("%s", report)  # without the lock: a handler may do anything

    def _stall_report(self) -> str:
        """Say what every reader and slot is doing; with the lock."""
        waited_s, number = self.assembly.stall_warning_s, self._delivery.serving
        lines = [f"next() has waited {waited_s} s for batch {number} of the feed:"]
        lines += [f"{reader.name}: {reader.doing}" for reader in self._readers]
        lines += [repr(slot) for slot in self._ring.slots]
        return "\n  ".join(lines)

    def _poll(self, claim: Claim, taken: Taken) -> Slot | None:
        """Take the claim's next slot, None if it is not ready; with the lock, never waits."""
        if self._stopping and not claim.ended:
            raise self.closed_error("open another one")
        self._delivery.claim(claim)
        self._collect()
        try:
            self._delivery.make_room()
            slot = self._delivery.take(taken)
        finally:
            # For the slots just collected, also if there is no room; and one batch fewer is ahead.
            self._schedule.wake_idle()
        if slot is None and self._failure is not None and not self._is_coming():
            self._told_of_failure = True
            raise self._failure
        return slot

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
        if self._stopping:
            self._wake_all()

    def _wake_all(self) -> None:
        for _ in range(self.assembly.num_threads):
            self._ring.inbox.put(None)

    def _notify(self) -> None:
        """Wake every consumer that waits; with the lock."""
        self._news.notify_all()
        for waiter in self._async_waiters:
            _resolve_soon(waiter)

    def position(self) -> Position:
        """Return where a feed would go on that was opened anew: what the consumer has taken."""
        with self._lock:
            serving = self._delivery.serving
        order = self.assembly.order
        epoch, served = order.resume_point(serving)
        return Position(epoch, served, order.seed, self._rng.before(serving))

    @property
    def epoch(self) -> int:
        """Epoch of the batch served last; after the end of an epoch, the next one."""
        return self._delivery.epoch

    # Its life ----------------------------------------------------------------------------------

    def _start(self, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Start the readers at the first call; with an event loop without waiting until they run.

        What comes of it shows then where a batch is waited for.
        """
        if self._pid != os.getpid():
            raise FeedClosedError(
                f"the feed was opened in process {self._pid} and this is process {os.getpid()}: "
                f"threads do not survive a fork; open the feed in the child"
            )
        if self._readers:
            return
        try:
            with self._lock:
                if self._readers or self._stopping:
                    return
                self._readers = [
                    Reader(self, number, clock=self._clock)
                    for number in range(self.assembly.num_threads)
                ]
                self._reader_start = ThreadStart(self._readers)
            if loop is None:
                self._reader_start.run()
            else:
                self._start_on(loop)
        except BaseException as error:
            self.request_stop(f" since {type(error).__name__} came while its readers started")
            self.close()
            number, threads = self._reader_start.num_started, self.assembly.num_threads
            if isinstance(error, RuntimeError) and number < threads:
                raise ThreadStartError(str(error), number=number, threads=threads) from error
            raise

    def _start_on(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the readers; a failure is noted from whatever thread finds it out."""
        start = self._reader_start

        def check() -> None:
            try:
                start.check()
            except BaseException as error:  # noqa: BLE001 - raised again where the consumer waits
                number, threads = start.num_started, self.assembly.num_threads
                failure = ThreadStartError(str(error), number=number, threads=threads)
                failure.__cause__ = error
                self.reader_failed(failure)

        def over() -> None:
            check()
            with suppress(RuntimeError):  # the loop is closed, and its timers with it
                loop.call_soon_threadsafe(timer.cancel)

        def give_up() -> None:
            start.give_up()
            check()

        timer = loop.call_later(_thread_start.LIMIT_S, give_up)
        try:
            start.begin(over)
        except BaseException:
            timer.cancel()
            raise

    def request_stop(self, why: str = "") -> None:
        """Make every reader end, without waiting for it and without a lock; idempotent.

        Safe in a finalizer. The last reader to end gives back what all shared.

        Args:
            why: What to say of it to whoever asks for a batch later, if this is what closes it.
        """
        if not self._stopping:
            self._why_closed = why
        self._stopping = True
        self._wake_all()

    def abandon(self) -> None:
        """Stop as `request_stop` does, for a finalizer of the only one who could still ask.

        Where no reader runs that could do it later, what they would share is given back here:
        nobody else can hold the lock then.
        """
        self.request_stop()
        if not self._num_running:
            self._clean_up()

    def close(self) -> None:
        """Stop and join the readers and close the source; idempotent, from any thread.

        Memory of batches that the consumer holds stays valid.
        """
        if self._pid != os.getpid():
            return  # the threads are the parent's, and the lock may be held by one of them
        self.request_stop()
        with self._lock:
            self._notify()
        self._reader_start.settle()  # Ctrl-C may have come while they were started
        for reader in self._readers:
            if reader.ident is not None and reader is not threading.current_thread():
                reader.join()
        self._clean_up()

    async def join_async(self) -> None:
        """Wait until every reader has ended after `request_stop`, without blocking the loop."""
        while True:
            with self._lock:
                waiter = self._wait_for_news() if self._num_running else None
            if waiter is None:
                break
            await self._until(waiter)
        self.close()

    @property
    def closed(self) -> bool:
        """Whether the prefetcher has been told to stop."""
        return self._stopping

    def closed_error(self, cure: str) -> FeedClosedError:
        """Return the error for what a closed feed is asked for: it says why it is closed."""
        return FeedClosedError(f"the feed is closed{self._why_closed}; {cure}")

    def _clean_up(self) -> None:
        """Give back what the readers shared, once, after the last of them has ended."""
        with self._lock:
            if self._cleaned_up or self._num_running:
                return
            self._cleaned_up = True
            self._schedule.abandon()
            self._delivery.abandon()
            self._ring.close()
            untold = None if self._told_of_failure else self._failure or self._ring.failure
        if untold is not None:
            # Not raised: the batches that were served are right, and close() may run in an
            # exception's wake, or in a finalizer. Its words only: whoever keeps the log's records
            # would keep with the error, by way of its traceback, the ring's memory.
            what = str(untold)
            logger.error("the feed was closed after a failure that no next() has told: %s", what)
        self.assembly.source.close()
        self.assembly.bad_records.close()
        if self.assembly.owns_device:
            self.assembly.device.close()
        _live.discard(self)

    def stats(self) -> FeedStats:
        """Return a snapshot of the counters."""
        with self._lock:
            ring, expected = self._ring, self.assembly.expected_memory
            self._collect()
            self._schedule.wake_idle()
            num_held = ring.num_held
            num_let_go = ring.num_in(SlotState.LEASED) - num_held
            return FeedStats(
                batches=self._delivery.batches,
                samples=self._delivery.samples,
                wait_s=self._wait_s,
                waits=self._waits,
                mean_ready=self._delivery.ready_sum / max(self._delivery.batches, 1),
                busy_s=self._busy_s,
                threads=self.assembly.num_threads,
                prefetch=self.assembly.prefetch,
                slots=len(ring.slots),
                slots_free=ring.num_in(SlotState.FREE),
                slots_filling=ring.num_in(SlotState.FILLING) + ring.num_in(SlotState.UPLOADING),
                slots_ready=ring.num_in(SlotState.READY),
                slots_leased=num_held,
                slots_draining=ring.num_in(SlotState.DRAINING) + num_let_go,
                ring_host_bytes=None if expected is None else expected.host_bytes,
                ring_device_bytes=None if expected is None else expected.device_bytes,
                host_bytes=sum(slot.host_bytes for slot in ring.slots),
                device_bytes=sum(slot.device_bytes for slot in ring.slots),
                bad_records=len(self.assembly.bad_records),
                device=self.assembly.device.name,
            )


def _resolve_soon(waiter: asyncio.Future[None]) -> None:
    """Resolve a future of an event loop, from any thread."""
    loop = waiter.get_loop()
    if not loop.is_closed():
        loop.call_soon_threadsafe(_resolve, waiter)


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _close_all() -> None:
    for prefetcher in list(_live):
        prefetcher.close()


# Joins every reader before the interpreter, and LMDB with it, goes.
atexit.register(_close_all)
