"""feed.reshard: what remains of an epoch is shared out anew while the loop runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import prefetch
from prefetch._pipeline import consumer
from prefetch._pipeline.hand_over import hand_over
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NUM = 23


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    source = write_database(tmp_path / "db", fingerprinted_images(NUM, (1, 4, 4)))
    return {"source": source, "batch_size": 2, "shuffle": True, "seed": 3}


@pytest.fixture
def feed(options: dict[str, Any]) -> Iterator[prefetch.Feed]:
    with prefetch.open(options) as feed:
        yield feed


def _served(batches: Any) -> list[tuple[int, list[int]]]:
    return [(batch.epoch, batch.indices.tolist()) for batch in batches]


def _as_resumed(
    options: dict[str, Any], state: dict[str, Any], rank: int, world_size: int
) -> list[list[tuple[int, list[int]]]]:
    """Return what a feed serves that loads a state as one rank: the rest, and an epoch more."""
    shard = {"rank": rank, "world_size": world_size}
    with prefetch.open(options, shard=shard) as feed:
        feed.load_state_dict(state)
        return [_served(feed), _served(feed)]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("last_batch", ["partial", "drop"])
@pytest.mark.parametrize("policy", ["pad", "drop"])
def test_the_running_loop_goes_on_as_a_feed_that_loads_the_state_does(
    options: dict[str, Any], last_batch: str, policy: str, *, shuffle: bool
) -> None:
    options |= {"shuffle": shuffle, "last_batch": last_batch}
    first = {"rank": 1, "world_size": 2, "policy": policy}
    with prefetch.open(options, shard=first) as feed:
        batches = iter(feed)
        next(batches), next(batches)
        state = feed.state_dict()
        feed.reshard(2, 3)
        assert (2, 3) == (feed.rank, feed.world_size)
        assert {**state, "world_size": 3} == feed.state_dict()
        options["shard"] = {"policy": policy}
        assert _as_resumed(options, state, 2, 3) == [_served(batches), _served(feed)]


def test_all_ranks_together_serve_every_record_once(options: dict[str, Any]) -> None:
    shards = [{"rank": rank, "world_size": 2} for rank in range(2)]
    served: list[int] = []
    feeds = [prefetch.open(options, shard=shard) for shard in shards]
    loops = [iter(feed) for feed in feeds]
    for loop in loops:
        served += next(loop).indices.tolist()
    state = feeds[0].state_dict()
    assert state == feeds[1].state_dict()
    feeds.append(prefetch.open(options, shard={"rank": 2, "world_size": 3}))
    feeds[2].load_state_dict(state)
    for rank in range(2):
        feeds[rank].reshard(rank, 3)
    for loop in [*loops, iter(feeds[2])]:
        for batch in loop:
            served += batch.indices[~batch.is_padding].tolist()
    assert list(range(NUM)) == sorted(served)
    assert feeds[0].state_dict() == feeds[1].state_dict() == feeds[2].state_dict()
    for feed in feeds:
        feed.close()


def test_what_the_loop_holds_stays_as_it_is(feed: prefetch.Feed) -> None:
    batches = iter(feed)
    held = [next(batches) for _ in range(3)]
    before = [batch.data.numpy().copy() for batch in held]
    feed.reshard(0, 2)
    assert 9 == sum(map(len, batches))
    for batch, pixels in zip(held, before, strict=True):
        assert pixels.tolist() == batch.data.numpy().tolist()


def test_before_the_first_batch_the_loop_has_its_new_share(feed: prefetch.Feed) -> None:
    batches = iter(feed)
    feed.reshard(1, 2)
    assert NUM // 2 + 1 == sum(map(len, batches))


def test_behind_the_last_batch_the_epoch_is_over(feed: prefetch.Feed) -> None:
    batches = iter(feed)
    for _ in range(len(feed)):
        next(batches)
    feed.reshard(0, 2)
    with pytest.raises(StopIteration):
        next(batches)
    with pytest.raises(StopIteration):
        next(batches)
    assert {1} == {epoch for epoch, _ in _served(feed)}


@pytest.mark.parametrize("is_over", [False, True])
def test_a_new_loop_serves_the_next_epoch_and_ends_the_running_one(
    feed: prefetch.Feed, *, is_over: bool
) -> None:
    batches = iter(feed)
    for _ in range(len(feed) if is_over else 3):
        next(batches)
    feed.reshard(0, 2)
    assert {1} == {epoch for epoch, _ in _served(feed)}
    with pytest.raises(prefetch.StaleIteratorError):
        next(batches)


def test_after_an_epoch_the_next_one_is_shared_anew(feed: prefetch.Feed) -> None:
    assert NUM == sum(map(len, feed))
    feed.reshard(0, 2)
    assert [(1, 12)] == [(1, sum(map(len, feed)))]
    feed.set_epoch(5)
    assert {5} == {epoch for epoch, _ in _served(feed)}
    assert (0, 2) == (feed.rank, feed.world_size)


def test_set_epoch_within_an_epoch_starts_it_anew(feed: prefetch.Feed) -> None:
    batches = iter(feed)
    next(batches)
    feed.reshard(0, 2)
    feed.set_epoch(0)
    assert 12 == sum(map(len, feed))


def test_a_loaded_state_stays_where_no_batch_was_taken_since(
    options: dict[str, Any], feed: prefetch.Feed
) -> None:
    next(iter(feed))
    state = feed.state_dict()
    feed.load_state_dict(state)
    feed.reshard(1, 2)
    feed.set_epoch(0)
    assert _as_resumed(options, state, 1, 2)[0] == _served(feed)


def test_it_may_be_called_again_and_again(feed: prefetch.Feed) -> None:
    served = []
    batches = iter(feed)
    for rank, world_size in ((0, 2), (0, 2), (1, 2), (2, 3), (0, 1)):
        served.append(len(next(batches)))
        feed.reshard(rank, world_size)
    assert ([2] * 5, 2 + 3 * 4 + 6) == (served, feed.state_dict()["served"])
    assert NUM - 20 == sum(map(len, batches))


def test_it_may_be_called_twice_in_a_row(feed: prefetch.Feed) -> None:
    batches = iter(feed)
    next(batches)
    feed.reshard(0, 2)
    feed.reshard(0, 1)
    assert NUM - 2 == sum(map(len, batches))
    feed.reshard(1, 2)
    feed.reshard(0, 1)
    assert {1} == {epoch for epoch, _ in _served(feed)}


def test_a_loop_that_was_abandoned_in_between_is_not_taken_up_again(feed: prefetch.Feed) -> None:
    next(iter(feed))
    feed.reshard(0, 2)
    feed.reshard(1, 2)
    assert {1} == {epoch for epoch, _ in _served(feed)}


def test_within_next_it_is_refused_and_the_batch_is_served(feed: prefetch.Feed) -> None:
    """As by a signal handler that interrupts the call behind the taking of a batch."""
    errors: list[BaseException] = []

    def interrupted(*arguments: Any) -> Any:
        with pytest.raises(prefetch.FeedBusyError, match="call it between two batches") as caught:
            feed.reshard(0, 2)
        errors.append(caught.value)
        return hand_over(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consumer, "hand_over", interrupted)
        assert 2 == len(next(iter(feed)))
    assert (1, 1) == (len(errors), feed.world_size)


def test_an_endless_stream_goes_on_too(options: dict[str, Any]) -> None:
    with prefetch.open(options, last_batch="wrap") as feed:
        batches = iter(feed)
        for _ in range(20):
            next(batches)
        state = feed.state_dict()
        feed.reshard(1, 2)
        ours = [next(batches).indices.tolist() for _ in range(10)]
        with prefetch.open(options, last_batch="wrap", shard={"rank": 1, "world_size": 2}) as other:
            other.load_state_dict(state)
            theirs = iter(other)
            assert [next(theirs).indices.tolist() for _ in range(10)] == ours


def test_an_asynchronous_loop_goes_on_too(options: dict[str, Any]) -> None:
    async def consume() -> int:
        num = 0
        with prefetch.open(options) as feed:
            async for batch in feed:
                num += len(batch)
                if batch.number == 2 and feed.world_size == 1:
                    feed.reshard(0, 2)
        return num

    assert 6 + 9 == asyncio.run(consume())


def test_arrays_of_ones_own_are_filled_on(options: dict[str, Any]) -> None:
    images = np.empty((2, 1, 4, 4), np.float32)
    with prefetch.open(options) as feed:
        num = 0
        for filled in feed.into(images):
            num += filled.n
            if filled.number == 2 and feed.world_size == 1:
                feed.reshard(0, 2)
    assert 6 + 9 == num


@pytest.mark.parametrize("ranks", [(2, 2), (-1, 2), (0, 0)])
def test_a_rank_that_cannot_be_is_refused(feed: prefetch.Feed, ranks: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="expected a rank from 0 and a world_size above it"):
        feed.reshard(*ranks)
    with pytest.raises(TypeError):
        feed.reshard(0.5, 2)  # type: ignore[arg-type]
    assert (0, 1) == (feed.rank, feed.world_size)


@pytest.mark.parametrize(
    ("more", "option"),
    [
        ({"rng": "caffe"}, "rng"),
        ({"shard": {"policy": "caffe"}, "last_batch": "wrap", "shuffle": False}, "shard.policy"),
    ],
)
def test_streams_that_belong_to_a_rank_are_not_shared_anew(
    options: dict[str, Any], more: dict[str, Any], option: str
) -> None:
    with (
        prefetch.open(options | more) as feed,
        pytest.raises(prefetch.ConfigError, match=f"{option}: with caffe every rank has a stream"),
    ):
        feed.reshard(0, 2)


def test_a_seed_that_each_rank_would_draw_is_refused(options: dict[str, Any]) -> None:
    with (
        prefetch.open(options, seed=None) as feed,
        pytest.raises(prefetch.ConfigError, match=r"seed null with shard\.world_size 2"),
    ):
        feed.reshard(0, 2)


def test_a_closed_feed_is_not_shared_anew(feed: prefetch.Feed) -> None:
    feed.close()
    with pytest.raises(prefetch.FeedClosedError, match="open another one with that shard"):
        feed.reshard(0, 2)
