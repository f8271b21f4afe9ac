"""One reader at a time works at the smallest batches; the others sleep until they are needed."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from databases import images_fixture

import prefetch
from prefetch._kernels import selection
from prefetch._pipeline.light_batches import SpareReaders
from prefetch._transform.host import RecordTransformer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LIGHT = 999

source = images_fixture(64)


def spare_readers(feed: prefetch.Feed) -> SpareReaders:
    return feed._prefetcher.coordinator.schedule.spare


def is_asleep(readers: SpareReaders, num: int) -> bool:
    return readers.num >= num


def change_nothing(images: Any, labels: Any, rng: Any) -> None:
    """Do what takes a reader as long as it likes, without the GIL."""


def served(feed: prefetch.Feed, num_epochs: int = 2) -> list[list[int]]:
    return [batch.indices.tolist() for _ in range(num_epochs) for batch in feed]


def test_a_reader_is_spare_while_another_one_is_awake_and_batches_are_small() -> None:
    readers = SpareReaders(1000)
    assert not readers.is_spare(2)  # nothing is known yet
    readers.note_light_batch(1000)
    assert not readers.is_spare(2)
    readers.note_light_batch(LIGHT)
    assert readers.is_spare(2)
    assert not readers.is_spare(1)
    readers.num += 1
    assert not readers.is_spare(2)  # the other one sleeps
    assert readers.is_spare(3)


def test_several_work_while_one_has_to_wait_for_the_disk() -> None:
    readers = SpareReaders(1000)
    readers.waits_for_disk = True
    readers.note_light_batch(LIGHT)
    assert not readers.is_spare(2)
    readers.waits_for_disk = False
    readers.note_light_batch(LIGHT)
    assert readers.is_spare(2)


def test_those_asleep_are_woken_when_one_suffices_no_more() -> None:
    readers = SpareReaders(1000)
    readers.note_light_batch(LIGHT)
    sleepers = [threading.Thread(target=readers.sleep) for _ in range(2)]
    for sleeper in sleepers:
        readers.num += 1
        sleeper.start()
    assert readers.is_spare(5)
    assert readers.num == 2
    readers.one_suffices = False
    assert not readers.is_spare(5)
    assert readers.num == 0
    for sleeper in sleepers:
        sleeper.join(10)
        assert not sleeper.is_alive()


def test_who_is_told_to_stop_before_it_sleeps_does_not() -> None:
    readers = SpareReaders(1000)
    readers.wake_in_any_case(1)
    sleeper = threading.Thread(target=readers.sleep, daemon=True)
    sleeper.start()
    sleeper.join(10)
    assert not sleeper.is_alive()


@pytest.mark.skipif(not selection.kernels_available, reason="without them no batch is light")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, True),
        ({"threads": 1}, False),
        ({"device": "simulated"}, False),
        ({"per_batch": change_nothing}, False),
        ({"transform": {"color_jitter": {"brightness": 0.5}}}, False),
        ({"transform": {"random_erasing": {"probability": 0.5}}}, False),
        ({"transform": {"resize": [9, 9]}}, False),
        ({"transform": {"mixup": {"alpha": 0.2}}, "labels": "pairs"}, False),
    ],
)
def test_one_suffices_for_small_batches_that_need_little_but_the_gil(
    source: Path, options: dict[str, Any], *, expected: bool
) -> None:
    config = {"source": source, "batch_size": 4, "threads": 3, "phase": "train"}
    with prefetch.open(config | options) as feed:
        assert len(served(feed)) == 32
        assert spare_readers(feed).one_suffices is expected


@pytest.mark.skipif(not selection.kernels_available, reason="without them no batch is light")
def test_readers_that_find_another_one_at_work_sleep_until_the_feed_is_closed(
    source: Path, monkeypatch: pytest.MonkeyPatch, until: Callable[[Callable[[], bool]], None]
) -> None:
    fill, at_work, may_go_on = RecordTransformer.fill, threading.Event(), threading.Event()
    may_go_on.set()

    def fill_slowly(*arguments: Any) -> Any:
        at_work.set()
        assert may_go_on.wait(60)
        return fill(*arguments)

    monkeypatch.setattr(RecordTransformer, "fill", fill_slowly)
    config = {"source": source, "batch_size": 4, "threads": 3, "epochs": None, "prefetch": 2}
    with prefetch.open(config) as feed:
        iterator, spare = iter(feed), spare_readers(feed)
        held = [next(iterator) for _ in range(4)]
        until(lambda: feed.stats().slots_ready == 1)  # the ring has no more slots
        at_work.clear()
        may_go_on.clear()
        held.append(next(iterator))
        assert at_work.wait(60)
        for num in (1, 2):
            if spare.num < num:
                held.pop()  # which wakes a reader that waits for work
            until(partial(is_asleep, spare, num))
        may_go_on.set()
        held.clear()
        assert [next(iterator).number for _ in range(9)] == list(range(5, 14))
        readers = list(feed._prefetcher._readers)
    assert len(readers) == 3
    assert not any(reader.is_alive() for reader in readers)
