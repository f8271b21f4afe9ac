"""feed.set_epoch: which epoch the next iterator serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import prefetch
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    source = write_database(tmp_path / "db", fingerprinted_images(10))
    return {"source": source, "batch_size": 4, "shuffle": True, "seed": 3}


@pytest.fixture
def feed(options: dict[str, Any]) -> Iterator[prefetch.Feed]:
    with prefetch.open(options) as feed:
        yield feed


def _served(batches: Iterable[prefetch.Batch]) -> list[tuple[int, list[int]]]:
    return [(batch.epoch, batch.indices.tolist()) for batch in batches]


@pytest.fixture
def epochs(options: dict[str, Any]) -> list[list[tuple[int, list[int]]]]:
    """What each of five epochs serves, one after the other."""
    with prefetch.open(options) as feed:
        return [_served(feed) for _ in range(5)]


def test_the_next_iterator_serves_that_epoch_from_its_start_and_then_they_count_up(
    feed: prefetch.Feed, epochs: list[Any]
) -> None:
    for epoch in (3, 0, 0, 2):
        feed.set_epoch(epoch)
        assert (feed.epoch, _served(feed)) == (epoch, epochs[epoch])
    assert _served(feed) == epochs[3]


def test_an_epoch_that_was_begun_starts_anew_and_its_iterator_ends(
    feed: prefetch.Feed, epochs: list[Any]
) -> None:
    batches = iter(feed)
    next(batches)
    feed.set_epoch(0)
    with pytest.raises(prefetch.StaleIteratorError):
        next(batches)
    assert _served(feed) == epochs[0]


def test_an_iterator_that_has_not_started_serves_the_epoch_too(
    feed: prefetch.Feed, epochs: list[Any]
) -> None:
    batches = iter(feed)
    feed.set_epoch(4)
    assert _served(batches) == epochs[4]


@pytest.mark.parametrize("num_taken", [0, 1, 3])
def test_nothing_happens_where_the_epoch_is_the_next_one_anyhow(
    feed: prefetch.Feed, epochs: list[Any], num_taken: int
) -> None:
    """What was read ahead stays, so that a loop may say it before every epoch."""
    batches = iter(feed)
    for _ in range(num_taken):
        next(batches)
    prefetcher = feed._prefetcher
    upcoming = 1 if num_taken else 0
    feed.set_epoch(upcoming)
    assert feed._prefetcher is prefetcher
    assert _served(feed) == epochs[upcoming]


def test_a_state_loaded_within_the_epoch_stays(
    feed: prefetch.Feed, options: dict[str, Any], epochs: list[Any]
) -> None:
    feed.set_epoch(2)
    next(iter(feed))
    with prefetch.open(options) as other:
        other.load_state_dict(feed.state_dict())
        other.set_epoch(2)
        assert _served(other) == epochs[2][1:]
        other.load_state_dict(feed.state_dict())
        other.set_epoch(3)
        assert _served(other) == epochs[3]
        other.load_state_dict(feed.state_dict())
        next(iter(other))
        other.set_epoch(2)
        assert _served(other) == epochs[2]


def test_the_state_after_it_is_that_of_the_start_of_the_epoch(feed: prefetch.Feed) -> None:
    feed.set_epoch(3)
    state = feed.state_dict()
    assert (state["epoch"], state["served"]) == (3, 0)


@pytest.mark.parametrize("epoch", [-1, 2, 100])
def test_an_epoch_that_there_is_not_is_refused(options: dict[str, Any], epoch: int) -> None:
    with prefetch.open(options, epochs=2) as feed:
        with pytest.raises(ValueError, match="from 0 to 1, since epochs is 2"):
            feed.set_epoch(epoch)
        feed.set_epoch(1)
        assert len(list(feed)) == 3
        with pytest.raises(prefetch.EpochsExhaustedError):
            next(iter(feed))


def test_what_is_no_integer_is_refused(feed: prefetch.Feed) -> None:
    with pytest.raises(TypeError):
        feed.set_epoch(1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="from 0, found -1"):
        feed.set_epoch(-1)


def test_an_endless_stream_has_no_epochs(options: dict[str, Any]) -> None:
    with (
        prefetch.open(options, last_batch="wrap") as feed,
        pytest.raises(TypeError, match="endless stream without epochs"),
    ):
        feed.set_epoch(1)


def test_a_closed_feed_goes_to_no_epoch(feed: prefetch.Feed) -> None:
    feed.close()
    with pytest.raises(prefetch.FeedClosedError):
        feed.set_epoch(3)


def test_under_caffes_numbers_the_generator_goes_on(options: dict[str, Any]) -> None:
    with prefetch.open(options, rng="caffe", shuffle=False, transform={"crop_size": 4}) as feed:
        assert len(list(feed)) == 3
        rng = feed.state_dict()["rng"]
        feed.set_epoch(5)
        assert (feed.state_dict()["epoch"], feed.state_dict()["rng"]) == (5, rng)
        assert [batch.epoch for batch in feed] == [5, 5, 5]


def test_a_rest_without_a_batch_is_over_once_it_was_iterated(tmp_path: Path) -> None:
    source = write_database(tmp_path / "ten", fingerprinted_images(10))
    options = {"source": source, "last_batch": "drop"}
    with prefetch.open(options, batch_size=4) as feed:
        next(iter(feed))
        state = feed.state_dict()
    with prefetch.open(options, batch_size=8) as feed:
        feed.load_state_dict(state)
        assert [] == list(feed)  # six records are no batch of 8
        feed.set_epoch(0)
        assert [0] == [batch.epoch for batch in feed]


@pytest.mark.parametrize("epoch", [2**53, 2**70, 1 << 20000], ids=int.bit_length)
def test_an_epoch_that_no_state_can_hold_is_refused(feed: prefetch.Feed, epoch: int) -> None:
    with pytest.raises(ValueError, match=f"from 0 to {2**53 - 1}, found ") as caught:
        feed.set_epoch(epoch)
    assert not isinstance(caught.value, prefetch.StateError)
    feed.set_epoch(2**53 - 1)
    assert [2**53 - 1] * 3 == [batch.epoch for batch in feed]
