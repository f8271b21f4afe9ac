"""The consumer: takes the next batch, and waits for it, on a thread or in an event loop.

Signals interrupt it anywhere, and may raise anything: what it changes is changed in one assignment,
and what takes several steps is done by readers, which signals never reach.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from memory import SyncedMemoryError
from prefetch._errors.classes import BatchesHeldError, FeedBusyError
from prefetch._pipeline.hand_over import hand_over
from prefetch._process.nested_calls import mark_entry
from prefetch._process.nvtx import ranged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from memory import Stream
    from prefetch._pipeline.consumer_state import Claim, Taken
    from prefetch._pipeline.coordinator import Coordinator
    from prefetch._pipeline.reader import Reader
    from prefetch._ring.batch import Batch

mark_entry(__file__)

_Waiter = TypeVar("_Waiter")

logger = logging.getLogger("prefetch")


class Consumer:
    """Takes batches for the loop, in order; thread-safe.

    Args:
        coordinator: Where they are ready.
        start: Starts the readers: called by every call until `started_in` is this process.
        clock: Seconds from some fixed point.

    Attributes:
        stream: The stream that batches are handed over on; None for the one that is current on the
            consumer's thread.
        readers: The readers, for `stall reports <Consumer.report_stall>`.
        started_in: Id of the process that the readers run in; -1 before they do.
        is_cleaned_up: Whether the feed is closed, and nothing of it is left to be served.
        waits: How many calls found no batch ready, and for how many seconds they have waited.
    """

    def __init__(
        self,
        coordinator: Coordinator,
        *,
        start: Callable[[Taken, asyncio.AbstractEventLoop | None], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.stream: Stream | None = None
        self.readers: Sequence[Reader] = ()
        self.started_in = -1
        self.is_cleaned_up = False
        self.waits = (0, 0.0)
        self._coordinator = coordinator
        self._start = start
        self._clock = clock
        self._stall_warning_s = coordinator.components.stall_warning_s

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
        # Not started yet, or forked since: in place of `is_forked`, a call for every batch.
        if os.getpid() != self.started_in:
            self._start(taken, None)
        try:
            self._wait_for(claim, taken)
        except BatchesHeldError:
            gc.collect()  # a reference cycle may be all that holds them
            self._wait_for(claim, taken)
        return self._hand_over(taken)

    async def take_async(self, claim: Claim, taken: Taken) -> Batch:
        """Return the claim's next batch without blocking the event loop; raises as `take`.

        A wait that is cancelled takes no batch.
        """
        if os.getpid() != self.started_in:
            self._start(taken, asyncio.get_running_loop())
        try:
            await self._wait_for_async(claim, taken)
        except BatchesHeldError:
            gc.collect()
            await self._wait_for_async(claim, taken)
        return self._hand_over(taken)

    def lose(self, taken: Taken) -> None:
        """Have a batch served again that an exception kept from the loop."""
        taken.is_lost = True
        if self.is_cleaned_up:
            taken.drop()

    def _hand_over(self, taken: Taken) -> Batch:
        try:
            return hand_over(taken, self.stream)
        except SyncedMemoryError as error:
            if self._coordinator.is_stopping:  # by another thread, meanwhile, and the device too
                raise self._coordinator.closed_error("open another one") from None
            taken.fate = error
            raise

    def _wait_for(self, claim: Claim, taken: Taken) -> None:
        coordinator, gates = self._coordinator, self._coordinator.gates
        gate = self._poll(claim, taken, gates.gate)
        if gate is None:
            return
        began = self._begin_wait()
        try:
            while gate is not None:
                # The flag is set without the lock: it may be since the poll, and the gates opened.
                if not coordinator.is_stopping and not gates.wait(gate, self._patience_s):
                    self.report_stall()
                gate = self._poll(claim, taken, gates.gate)
        finally:
            self._end_wait(began)

    async def _wait_for_async(self, claim: Claim, taken: Taken) -> None:
        coordinator, gates = self._coordinator, self._coordinator.gates
        make_future = partial(gates.future, asyncio.get_running_loop())
        future = self._poll(claim, taken, make_future)
        if future is None:
            return
        began = self._begin_wait()
        try:
            while future is not None:
                if coordinator.is_stopping:
                    gates.discard(future)
                elif not await gates.wait_async(future, self._patience_s):
                    self.report_stall()
                future = self._poll(claim, taken, make_future)
        finally:
            self._end_wait(began)

    def _poll(
        self, claim: Claim, taken: Taken, make_waiter: Callable[[], _Waiter]
    ) -> _Waiter | None:
        """Take the claim's next batch and return None, or return what to wait at; never waits.

        What it calls may be interrupted anywhere; the next call then does it again.
        """
        coordinator = self._coordinator
        guard = coordinator.guard
        if guard.is_mine():  # asked here: this is every batch's way
            guard.refuse_nested()
        try:
            with guard.lock:
                if coordinator.is_stopping and not claim.ended:
                    raise coordinator.closed_error("open another one")
                if coordinator.delivery.poll(claim, taken):
                    return None
                taken.fate = coordinator.failure_of_next()
                if taken.fate is not None:
                    raise taken.fate
                # Under the lock that has seen no batch: what is published now opens this gate.
                return make_waiter()
        finally:
            if guard.is_mine():
                guard.release_if_mine()

    def _begin_wait(self) -> float:
        """Return when a wait began.

        Raises:
            FeedBusyError: A reader, in a finalizer, would wait for what it is to read itself.
        """
        if threading.current_thread() in self.readers:
            raise FeedBusyError(
                "next() was called on a thread that reads for the feed, by a finalizer or by "
                "per_record or per_batch, and would wait for itself"
            )
        return self._clock()

    def _end_wait(self, began: float) -> None:
        self._coordinator.guard.run(self._count_wait, self._clock() - began)

    def _count_wait(self, waited_s: float) -> None:
        waits, wait_s = self.waits
        self.waits = waits + 1, wait_s + waited_s

    @property
    def _patience_s(self) -> float | None:
        """How long to wait before the log says why; None for no limit."""
        return self._stall_warning_s

    def report_stall(self) -> None:
        """Log, once, what every reader and slot is doing."""
        if self._stall_warning_s is None:
            return
        waited_s, self._stall_warning_s = self._stall_warning_s, None
        number = self._coordinator.delivery.served.next
        lines = [f"next() has waited {waited_s} s for batch {number} of the feed:"]
        lines += [f"{reader.name}: {reader.doing}" for reader in self.readers]
        lines += [repr(slot) for slot in self._coordinator.ring.slots]
        logger.warning("%s", "\n  ".join(lines))
