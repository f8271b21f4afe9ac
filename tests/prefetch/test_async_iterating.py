"""``async for batch in feed`` gives what ``for`` gives and never blocks the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

import prefetch
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Ten records."""
    return write_database(tmp_path / "ten", fingerprinted_images(10))


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


async def test_the_end_and_errors_reach_an_async_consumer(source: Path) -> None:
    feed = prefetch.open({"source": source, "batch_size": 2, "transform": {"crop_size": 9}})
    with pytest.raises(prefetch.RecordError, match="crop"):
        await anext(aiter(feed))
    assert feed.closed
    with pytest.raises(prefetch.FeedClosedError):
        await anext(aiter(feed))


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
