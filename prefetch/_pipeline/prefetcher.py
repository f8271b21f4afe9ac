"""A feed's life: its readers are started with the first batch, and end when it is closed.

What the readers call is the `Coordinator`, what the loop calls the `Consumer`.
"""

from __future__ import annotations

import _thread
import asyncio
import atexit
import logging
import os
import threading
import time
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from memory import threads
from memory.threads import ThreadStart
from prefetch._errors.classes import FeedClosedError, ThreadStartError
from prefetch._errors.printable import counted
from prefetch._pipeline.assemble import assemble
from prefetch._pipeline.consumer import Consumer
from prefetch._pipeline.reader import Reader
from prefetch._pipeline.stats import take_snapshot
from prefetch._process.fork import is_forked
from prefetch._process.nested_calls import mark_entry
from prefetch._ring.lease import FeedEnd
from prefetch._transform.own_function import name_of_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefetch._pipeline.components import Components
    from prefetch._pipeline.consumer_state import Taken
    from prefetch._pipeline.stats import FeedStats
    from prefetch._plan.position import Position

mark_entry(__file__)

logger = logging.getLogger("prefetch")

_NOTICE_S: Final = 2.0
"""How long closing waits for people's own functions without a word."""

_AT_EXIT_S: Final = 5.0
"""How long the hook at exit waits for them, in all."""

_live: weakref.WeakSet[Prefetcher] = weakref.WeakSet()


class Prefetcher:
    """Starts the readers, ends them, and cleans up behind them; thread-safe.

    Args:
        components: What it works with.
        clock: Seconds from some fixed point.

    Attributes:
        coordinator: What the readers call.
        consumer: What the loop calls.
    """

    def __init__(
        self, components: Components, *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self.components = components
        self.coordinator = assemble(components, on_over=self._clean_up)
        self.consumer = Consumer(self.coordinator, start=self._start, clock=clock)
        self._clock = clock
        self._pid = os.getpid()
        self._readers: list[Reader] = []
        self._reader_start = ThreadStart(())
        self._feed_end: FeedEnd | None = None
        self._predecessor: Prefetcher | None = None
        self._has_noted_wait = False
        _live.add(self)

    def attach(self, feed: object, predecessor: Prefetcher | None = None) -> None:
        """Stop when a feed is collected.

        Args:
            feed: The feed.
            predecessor: What has worked for it up to now, to be closed with the first batch.
        """
        self._feed_end = FeedEnd(feed, self.coordinator.ring.inbox)
        self._predecessor = predecessor

    def take_over(self, predecessor: Prefetcher, position: Position) -> bool:
        """Continue the predecessor's iterator; see `Delivery.take_over`."""
        return self.coordinator.delivery.take_over(predecessor.coordinator.delivery, position)

    def forgo(self) -> None:
        """Close without having worked: the predecessor continues."""
        self._predecessor = None
        self.close()

    def end_predecessor(self) -> None:
        """Close what has worked for the feed before; idempotent."""
        predecessor = self._predecessor
        if predecessor is not None:
            predecessor.close()
            self._predecessor = None

    # What may be asked at any time, without a lock ----------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether the readers have been asked to stop."""
        return self.coordinator.is_stopping

    @property
    def epoch(self) -> int:
        """Epoch of the batch served last; after the end of an epoch, the next one."""
        return self.coordinator.delivery.served.epoch

    def position(self) -> Position:
        """Return where a feed opened anew would continue: behind what the consumer has taken."""
        return self.coordinator.planner.position(self.coordinator.delivery.served.place)

    # Its life ----------------------------------------------------------------------------------

    def _start(self, taken: Taken, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """Start the readers at the first call; with an event loop without waiting until they run.

        With one, a failure shows where a batch is waited for. What an exception interrupts, the
        next call continues.
        """
        if is_forked(self._pid):
            raise FeedClosedError(
                f"the feed was opened in process {self._pid} and this is process {os.getpid()}: "
                f"threads do not survive a fork; open the feed in the child"
            )
        if self.coordinator.is_stopping:
            return
        self.components.check_start()
        taken.num_ready = 0  # even if some are ready by the time that the readers run
        self.end_predecessor()
        error = self.coordinator.guard.run(self._begin_readers, loop)
        start = self._reader_start
        if error is None and loop is None:
            start.settle()
            error = start.take_error()
        if error is not None:
            taken.fate = failure = self._start_failure(error)
            self.request_stop(f" since {type(failure).__name__} came while its readers started")
            raise failure
        self.consumer.started_in = self._pid

    def _start_failure(self, error: BaseException) -> BaseException:
        number, threads = self._reader_start.num_started, self.components.num_threads
        if not isinstance(error, RuntimeError) or number >= threads:
            return error
        failure = ThreadStartError(str(error), number=number, threads=threads)
        failure.__cause__ = error
        return failure

    def _begin_readers(self, loop: asyncio.AbstractEventLoop | None) -> BaseException | None:
        """Have the readers started on another thread; return why there is no further thread.

        With an event loop a failure is noted by the thread that finds it.
        """
        if not self._readers:
            readers = [
                Reader(self.coordinator, number, clock=self._clock)
                for number in range(self.components.num_threads)
            ]
            after = (readers, readers, ThreadStart(readers))
            self._readers, self.consumer.readers, self._reader_start = after
        start = self._reader_start
        if start.has_begun or self.coordinator.is_stopping:
            return None
        if loop is None:
            return start.begin()

        def check() -> None:
            error = start.take_error()
            if error is not None:
                self.coordinator.reader_failed(self._start_failure(error))

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
        """Ask every reader to end; see `Coordinator.request_stop`."""
        self.coordinator.request_stop(why)

    def abandon(self, *, wait: bool) -> None:
        """Ask every reader to end, for the finalizer of the last object that could take a batch.

        If no reader runs, nothing else would free what they share: it is freed here.

        Args:
            wait: Whether this thread may wait for locks; else another one is started that does.
        """
        if self._predecessor is not None:
            self._predecessor.request_stop()
        self.request_stop()
        if self.coordinator.num_running or self.consumer.is_cleaned_up:
            return
        if wait:
            self._clean_up()
        else:
            with suppress(RuntimeError):  # no further thread: the hook at exit does it
                _thread.start_new_thread(self._clean_up, ())

    def close(self, *, wait: bool = True) -> None:
        """Stop and join the readers and close the source; idempotent, from any thread.

        Memory of batches that the consumer holds stays valid.

        Args:
            wait: Whether this thread may wait; else the readers are only asked to end.
        """
        self._close(wait=wait)
        if wait and not is_forked(self._pid):
            self.coordinator.ring.keeper.join()

    def close_at_exit(self, until: float) -> None:
        """Close, but leave readers that are in a person's own function at a time as they are.

        Args:
            until: The time, of `time.monotonic`.
        """
        if is_forked(self._pid):
            return
        self._predecessor = None  # it has its own turn
        self._close(wait=True, until=until)
        if self.consumer.is_cleaned_up:
            self.coordinator.ring.keeper.join()

    def _close(self, *, wait: bool, until: float | None = None) -> None:
        """Close, without waiting for the keeper's thread."""
        if is_forked(self._pid):
            return  # the threads are the parent's, and the lock may be held by one of them
        self.request_stop()
        self.coordinator.gates.notify_all()
        if not wait:
            return
        self.end_predecessor()
        self._reader_start.settle()  # an exception may have come while they were started
        self._join_readers(until)
        self._clean_up()

    def _join_readers(self, until: float | None) -> None:
        """Wait until the readers have ended, but for those in a person's own function at a time."""
        notice = time.monotonic() + _NOTICE_S
        if until is not None:
            notice = min(notice, until)
        current = threading.current_thread()
        readers = [one for one in self._readers if one.ident is not None and one is not current]
        for reader in readers:
            reader.join(max(0.0, notice - time.monotonic()))
        readers = [one for one in readers if one.is_alive()]
        self._note_wait({one.ident for one in readers})
        for reader in readers:
            if until is not None:
                reader.join(max(0.0, until - time.monotonic()))
                # It is in none of the source's memory, and enters none once it returns. Any other
                # has to end before LMDB goes with the interpreter.
                if reader.ident in self._threads_inside():
                    continue
            reader.join()

    def _threads_inside(self) -> set[int]:
        """Return the threads that are in a person's own function."""
        return set().union(*(own.threads_inside.copy() for own in self.components.own_functions))

    def _note_wait(self, threads: set[int | None]) -> None:
        """Log once which functions closing waits for."""
        found = [
            (own, len(threads & own.threads_inside.copy())) for own in self.components.own_functions
        ]
        waits = [
            f"{own.option} `{name_of_function(own.function)}` on {counted(number, 'thread')}"
            for own, number in found
            if number
        ]
        if waits and not self._has_noted_wait:
            self._has_noted_wait = True
            logger.warning("close() waits for %s; Ctrl-C ends the wait", " and ".join(waits))

    async def join_async(self) -> None:
        """Wait until every reader has ended after `request_stop`, without blocking the loop."""
        self.coordinator.gates.notify_all()
        while True:
            waiter = self.coordinator.gates.future(asyncio.get_running_loop())
            if not self.coordinator.num_running:
                self.coordinator.gates.discard(waiter)
                break
            await self.coordinator.gates.wait_async(waiter, None)
        self._close(wait=True)

    def _clean_up(self) -> None:
        """Give back what the readers shared, after the last of them has ended; idempotent."""
        failure = self.coordinator.guard.run(self._drop_all)
        if failure is not None:
            # Not raised: the batches that were served are right, and close() may run while another
            # exception is handled, or in a finalizer. Only its text is logged: a log that keeps its
            # records would keep the ring's memory, which the error's traceback holds.
            text = str(failure)
            logger.error(
                "the feed was closed; an earlier failure had not been raised yet: %s", text
            )
        if self.consumer.is_cleaned_up or self.coordinator.num_running:
            return
        self.components.source.close()
        cache = self.components.transform.decoding.cache
        if cache is not None:
            cache.close()
        self.components.bad_records.close()
        if self.components.owns_device:
            self.components.device.close()
        self.consumer.is_cleaned_up = True  # last: what an exception interrupts is done again
        _live.discard(self)

    def _drop_all(self) -> BaseException | None:
        if self.consumer.is_cleaned_up or self.coordinator.num_running:
            return None
        return self.coordinator.drop_all()

    def stats(self) -> FeedStats:
        """Return a snapshot of the counters; takes no lock."""
        return take_snapshot(self.coordinator, waits=self.consumer.waits)


def _close_all() -> None:
    until = time.monotonic() + _AT_EXIT_S
    prefetchers = list(_live)
    for prefetcher in prefetchers:
        prefetcher.close(wait=False)  # all at once: they share the time
    for prefetcher in prefetchers:
        prefetcher.close_at_exit(until)


# Joins every reader before the interpreter, and LMDB with it, goes; but for those that are in a
# function which does not return: the source stays open for them.
atexit.register(_close_all)
