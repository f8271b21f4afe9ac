"""``async for batch in feed`` gives what ``for`` gives and never blocks the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from databases import images_fixture

import prefetch
from prefetch._pipeline import light_batches
from prefetch._transform.host import RecordTransformer
from prefetch.testing import write_database

if TYPE_CHECKING:
    from pathlib import Path


source = images_fixture(10)


async def test_async_for_serves_the_same_epochs(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        for epoch in range(3):
            seen: list[int] = []
            async for batch in feed:
                assert batch.epoch == epoch
                seen += batch.label.numpy().tolist()
            assert seen == list(range(10))


async def test_breaking_out_goes_on_with_the_next_epoch(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        for epoch in range(5):
            async for batch in feed:
                assert (batch.epoch, batch.number) == (epoch, 0)
                break


async def test_a_cancelled_wait_takes_no_batch(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 2, "prefetch": 1, "threads": 1}) as feed:
        iterator = aiter(feed)
        seen: list[int] = []
        cancelled = 0
        while len(seen) < 10:
            wait = asyncio.ensure_future(anext(iterator))
            await asyncio.sleep(0)
            if wait.cancel():
                cancelled += 1
            try:
                batch = await wait
            except asyncio.CancelledError:
                batch = await anext(iterator)
            seen += batch.label.numpy().tolist()
            del batch, wait
        assert seen == list(range(10))
        assert feed._prefetcher.coordinator.gates._waiting == {}


async def test_the_end_and_errors_reach_an_async_consumer(tmp_path: Path) -> None:
    source = write_database(tmp_path / "db", [(b"0", b"\xff")])
    feed = prefetch.open({"source": source, "batch_size": 2})
    with pytest.raises(prefetch.RecordError, match="Datum"):
        await anext(aiter(feed))
    assert feed.closed
    with pytest.raises(prefetch.FeedClosedError):
        await anext(aiter(feed))


async def test_after_an_error_the_loop_goes_on_while_the_readers_end(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them is in the middle of a read, and does not end before the loop has gone on."""
    is_reading, has_gone_on = threading.Event(), threading.Event()

    def fill(_self: object, records: Any, *_: object) -> list[Any]:
        if bytes(records.keys[0]) == b"00000000":
            assert is_reading.wait(60)
            raise ValueError("on command")
        is_reading.set()
        assert has_gone_on.wait(60)
        return []

    monkeypatch.setattr(RecordTransformer, "fill", fill)
    monkeypatch.setattr(RecordTransformer, "fill_together", None)  # each batch by itself
    monkeypatch.setattr(light_batches, "_LEAST_BYTES_TO_SHARE", 0)  # and by whoever is free
    feed = prefetch.open({"source": source, "batch_size": 5, "prefetch": 2, "threads": 2})
    wait = asyncio.ensure_future(anext(aiter(feed)))
    while not feed.closed:  # noqa: ASYNC110 - it is no part of the loop
        await asyncio.sleep(0.001)
    assert not wait.done()
    has_gone_on.set()
    with pytest.raises(ValueError, match="on command"):
        await wait


async def test_several_tasks_share_one_iterator_without_losing_a_batch(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 1, "prefetch": 2}) as feed:
        iterator = aiter(feed)
        seen: list[int] = []

        async def consume() -> None:
            async for batch in iterator:
                seen.extend(batch.label.numpy().tolist())
                del batch
                await asyncio.sleep(0)

        await asyncio.gather(*(consume() for _ in range(4)))
        assert sorted(seen) == list(range(10))


async def test_tasks_that_wait_at_one_iterator_are_served_in_the_order_they_asked(
    source: Path,
) -> None:
    with prefetch.open({"source": source, "batch_size": 1, "max_batches_held": 32}) as feed:
        for _ in range(5):
            iterator = aiter(feed)
            batches = await asyncio.gather(*(anext(iterator) for _ in range(10)))
            assert [batch.number for batch in batches] == list(range(10))
            del batches


async def test_a_task_that_is_cancelled_in_its_turn_makes_room_for_those_behind_it(
    source: Path,
) -> None:
    with prefetch.open({"source": source, "batch_size": 1, "max_batches_held": 32}) as feed:
        iterator = aiter(feed)
        waits = [asyncio.ensure_future(anext(iterator)) for _ in range(5)]
        await asyncio.sleep(0)
        waits[0].cancel()
        waits[2].cancel()
        batches = await asyncio.gather(*waits, return_exceptions=True)
        served = [batch.number for batch in batches if isinstance(batch, prefetch.Batch)]
        assert served == [0, 1, 2]


async def test_every_task_behind_the_last_batch_is_told_of_the_end(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        iterator = aiter(feed)
        ends = await asyncio.gather(*(anext(iterator, None) for _ in range(6)))
        assert [None if batch is None else batch.number for batch in ends] == [
            *(0, 1, 2),
            *(None, None, None),
        ]


def test_an_iterator_may_be_waited_at_on_one_event_loop_after_another(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 1, "max_batches_held": 32}) as feed:
        iterator = aiter(feed)

        async def take(num: int) -> list[int]:
            batches = await asyncio.gather(*(anext(iterator) for _ in range(num)))
            return [batch.number for batch in batches]

        assert asyncio.run(take(3)) == [0, 1, 2]
        assert asyncio.run(take(3)) == [3, 4, 5]


async def test_closing_wakes_a_waiting_task(source: Path) -> None:
    feed = prefetch.open({"source": source, "batch_size": 2, "prefetch": 1, "max_batches_held": 2})
    iterator = aiter(feed)
    first = await anext(iterator)
    waits = [asyncio.ensure_future(anext(iterator)) for _ in range(1)]
    await asyncio.sleep(0)
    feed.close()
    results = await asyncio.gather(*waits, return_exceptions=True)
    assert all(isinstance(r, prefetch.FeedClosedError | prefetch.Batch) for r in results)
    assert first.label.numpy().tolist() == [0, 1]


async def test_a_thread_that_cannot_start_reaches_an_async_consumer(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == "ringfeed-reader-2":
            raise RuntimeError("can't start new thread")
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    feed = prefetch.open({"source": source, "batch_size": 2, "prefetch": 1, "threads": 4})
    seen: list[int] = []
    with pytest.raises(prefetch.ThreadStartError, match=r"-reader-2 .*3 of 4") as caught:  # noqa: PT012
        while True:  # those that have started go on until it is known
            async for batch in feed:
                seen += batch.indices.tolist()
                del batch
    assert seen == [place % 10 for place in range(len(seen))]
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert feed.closed


async def test_the_loop_goes_on_while_a_thread_is_not_heard_of(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that finds no memory for its first steps: for want of more it is taken for dead."""
    may_start = threading.Event()
    real = threading.Thread.start

    def late(thread: threading.Thread) -> None:
        assert may_start.wait(60)
        real(thread)

    monkeypatch.setattr(threading.Thread, "start", late)
    monkeypatch.setattr("memory.threads.LIMIT_S", 1.0)
    feed = prefetch.open({"source": source, "threads": 1})
    wait = asyncio.ensure_future(anext(aiter(feed)))
    for _ in range(5):  # in which the loop does other things
        await asyncio.sleep(0)
    assert not wait.done()
    with pytest.raises(prefetch.ThreadStartError, match="not heard of for"):
        await wait
    assert feed.closed
    (reader,) = feed._prefetcher._readers
    may_start.set()
    while reader.ident is None or reader.is_alive():  # noqa: ASYNC110 - as above
        await asyncio.sleep(0.001)


async def test_a_wait_that_is_cancelled_counts_as_one(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prefetch.open({"source": source, "batch_size": 2, "threads": 1}) as feed:
        monkeypatch.setattr(
            feed._prefetcher.coordinator.delivery, "take", lambda _: False
        )  # none is ready
        wait = asyncio.ensure_future(anext(aiter(feed)))
        await asyncio.sleep(0.01)
        wait.cancel()
        with pytest.raises(asyncio.CancelledError):
            await wait
        assert feed.stats().waits == 1
        assert feed.stats().wait_s > 0
