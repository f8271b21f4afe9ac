"""Iterators over a feed: for batches and, asynchronously, for what else they are served as."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from prefetch._pipeline.consumer_state import Claim, EndOfEpoch, Taken
from prefetch._process.nested_calls import is_nested, mark_entry

if TYPE_CHECKING:
    from memory import Device, Stream
    from prefetch._pipeline.prefetcher import Prefetcher
    from prefetch._ring.batch import Batch

mark_entry(__file__)

_Served = TypeVar("_Served")


class ServedFeed(Protocol):
    """A feed, as its iterators know it."""

    _prefetcher: Prefetcher

    @property
    def device(self) -> Device:
        """Where the batches are pushed."""
        ...

    def _translate_error(
        self, error: BaseException, prefetcher: Prefetcher, taken: Taken
    ) -> BaseException:
        """Handle an exception out of next(), and return the one that its caller gets."""
        ...

    def _note_end(self) -> None:
        """Warn, once, after an epoch that had nothing in it."""
        ...


class AsyncServing(ABC, Generic[_Served]):
    """Serves one epoch of a feed: for each batch, what `_serve` returns.

    Several tasks of an event loop may wait at it: they get theirs in the order they asked.
    """

    def __init__(self, feed: ServedFeed) -> None:
        self._feed = feed
        self._claim = Claim()
        self._turns: tuple[asyncio.AbstractEventLoop, asyncio.Lock] | None = None
        self._holder: Taken | None = None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _Served:
        """Return what the next batch is served as; raises as `FeedIterator` does.

        A wait that is cancelled takes no batch.

        Raises:
            StopAsyncIteration: The epoch is over.
        """
        prefetcher, taken = self._feed._prefetcher, Taken()  # noqa: SLF001 - the feed's own iterator
        turn = self._turn()
        try:
            async with turn:
                self._holder = taken
                batch = await prefetcher.consumer.take_async(self._claim, taken)
            served = self._serve(batch, prefetcher.consumer.stream)
            taken.batch, taken.is_over = None, True; return served  # fmt: skip # noqa: E702, TRY300
        except EndOfEpoch:
            self._feed._note_end()  # noqa: SLF001
            raise StopAsyncIteration from None
        except BaseException as error:
            if self._holder is taken and turn.locked():
                turn.release()  # the exception came between the block's last step and its end
            translated = self._feed._translate_error(error, prefetcher, taken)  # noqa: SLF001
            if prefetcher.closed and isinstance(error, Exception):  # a task that ends cannot wait
                await prefetcher.join_async()
            if translated is error:
                raise
            raise translated from None

    @abstractmethod
    def _serve(self, batch: Batch, stream: Stream | None) -> _Served:
        """Return what a batch is served as; may be asked again for the same one.

        Args:
            batch: The batch.
            stream: The one it was handed over on; None for the thread's current one.
        """

    def _turn(self) -> asyncio.Lock:
        """Return the lock that lets one task after the other wait: asyncio's is fair."""
        # A lock belongs to an event loop, and the iterator may be used on one after another.
        loop = asyncio.get_running_loop()
        turns = self._turns
        if turns is None or turns[0] is not loop:
            self._turns = turns = loop, asyncio.Lock()
        return turns[1]


class FeedIterator:
    """Serves one epoch of a feed, or its endless stream; made by ``iter(feed)``."""

    def __init__(self, feed: ServedFeed) -> None:
        self._feed = feed
        self._claim = Claim()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Batch:
        """Return the next batch; blocks until it is ready.

        Raises:
            StopIteration: The epoch is over.
            StaleIteratorError: A newer iterator of the feed has started.
            EpochsExhaustedError: Every configured epoch has been served.
            BatchesHeldError: The consumer holds as many batches as it may; try again after
                releasing one.
            FeedBusyError: A signal handler or a finalizer calls it in the middle of another call.
            FeedClosedError: The feed is closed.
            PrefetchError: What went wrong in this batch; the feed is closed then.
        """
        prefetcher, taken = self._feed._prefetcher, Taken()  # noqa: SLF001 - the feed's own iterator
        try:
            batch = prefetcher.consumer.take(self._claim, taken)
            # On one line, without a call: what interrupts it, comes before the batch is served, or
            # when the loop has it.
            taken.batch, taken.is_over = None, True; return batch  # fmt: skip # noqa: E702, TRY300
        except EndOfEpoch:
            self._feed._note_end()  # noqa: SLF001
            raise StopIteration from None
        except BaseException as error:
            translated = self._feed._translate_error(error, prefetcher, taken)  # noqa: SLF001
            if prefetcher.closed:  # by that failure: no thread of it outlives the exception
                prefetcher.close(wait=not is_nested())
            if translated is error:
                raise
            raise translated from None


class AsyncFeedIterator(AsyncServing["Batch"]):
    """Serves one epoch of a feed without blocking the event loop; made by ``aiter(feed)``.

    Several tasks of an event loop may wait at it: they get the batches in the order they asked.
    Raises as `FeedIterator` does; a wait that is cancelled takes no batch.
    """

    def _serve(self, batch: Batch, stream: Stream | None) -> Batch:  # noqa: ARG002
        return batch
