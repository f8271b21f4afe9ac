"""The contract of ``for batch in feed``: epochs, iterators, lengths, ends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from databases import images_fixture

import prefetch
from prefetch._record.wire import encode_datum
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


source = images_fixture(10)


def _labels(batches: Any) -> list[list[int]]:
    return [batch.label.numpy().tolist() for batch in batches]


def test_each_for_serves_one_epoch_and_the_next_for_the_next(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        for epoch in range(3):
            seen = []
            for number, batch in enumerate(feed):
                assert (batch.epoch, batch.number, feed.epoch) == (epoch, number, epoch)
                seen += batch.label.numpy().tolist()
            assert seen == list(range(10))
            assert feed.epoch == epoch + 1


def test_iter_does_nothing_until_its_first_next(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        first = iter(feed)
        next(first)
        iter(feed)
        assert next(first).number == 1


def test_a_new_iterator_starts_the_next_whole_epoch_and_ends_the_old_one(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        old = iter(feed)
        next(old)
        new = iter(feed)
        batch = next(new)
        assert (batch.epoch, batch.number, batch.label.numpy()[0]) == (1, 0, 0)
        with pytest.raises(prefetch.StaleIteratorError):
            next(old)
        assert [batch.number for batch in new] == [1, 2]


def test_an_iterator_that_has_ended_stays_ended(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        iterator = iter(feed)
        assert len(list(iterator)) == 3
        assert list(iterator) == []
        next(iter(feed))
        assert list(iterator) == []


def test_an_abandoned_epoch_before_its_first_batch_is_not_lost(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4}) as feed:
        list(feed)
        assert [batch.epoch for batch in feed] == [1, 1, 1]


@pytest.mark.parametrize("prefetch_depth", [1, 2, 4])
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_early_breaks_go_on_with_the_next_epoch(
    source: Path, threads: int, prefetch_depth: int
) -> None:
    options = {
        "source": source,
        "batch_size": 2,
        "threads": threads,
        "prefetch": prefetch_depth,
        "shuffle": True,
        "seed": 5,
    }
    with prefetch.open(options) as whole:
        expected = [_labels(whole) for _ in range(20)]
    with prefetch.open(options) as feed:
        for epoch in range(20):
            stop = epoch % 5
            for number, batch in enumerate(feed):
                assert batch.label.numpy().tolist() == expected[epoch][number]
                if number == stop:
                    break


@pytest.mark.parametrize(
    ("last_batch", "batch_size", "sizes"),
    [
        ("partial", 4, [4, 4, 2]),
        ("partial", 10, [10]),
        ("partial", 99, [10]),
        ("drop", 4, [4, 4]),
        ("drop", 10, [10]),
    ],
)
def test_len_is_the_number_of_batches_of_an_epoch(
    source: Path, last_batch: str, batch_size: int, sizes: list[int]
) -> None:
    with prefetch.open(
        {"source": source, "batch_size": batch_size, "last_batch": last_batch}
    ) as feed:
        assert len(feed) == len(sizes)
        for _ in range(2):
            assert [len(batch) for batch in feed] == sizes


def test_an_epoch_of_no_batches_iterates_empty_and_warns_once(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 11, "last_batch": "drop"}) as feed:
        assert len(feed) == 0
        with pytest.warns(prefetch.PrefetchWarning, match="batch_size 11"):
            assert list(feed) == []
        assert list(feed) == []
        assert feed.epoch == 2
        assert feed.stats().slots_filling == 0


def test_wrap_is_one_endless_stream_without_a_length(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "last_batch": "wrap"}) as feed:
        with pytest.raises(TypeError, match="wrap"):
            len(feed)
        iterator = iter(feed)
        assert _labels(next(iterator) for _ in range(3)) == [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
            [8, 9, 0, 1],
        ]
        again = iter(feed)
        batch = next(again)
        assert batch.label.numpy().tolist() == [2, 3, 4, 5]
        assert batch.epoch == 1


def test_wrap_with_epochs_serves_every_record_so_often_and_a_partial_last_batch(
    source: Path,
) -> None:
    with prefetch.open(
        {"source": source, "batch_size": 4, "last_batch": "wrap", "epochs": 3}
    ) as feed:
        sizes = [len(batch) for batch in feed]
        assert sizes == [4] * 7 + [2]
        with pytest.raises(prefetch.EpochsExhaustedError):
            next(iter(feed))


def test_a_further_for_after_the_configured_epochs_is_an_error(source: Path) -> None:
    with prefetch.open({"source": source, "epochs": 2}) as feed:
        assert sum(len(batch) for _ in range(2) for batch in feed) == 20
        for _ in range(2):
            with pytest.raises(
                prefetch.EpochsExhaustedError, match=r"all epochs .* been served \(epochs: 2\)"
            ):
                next(iter(feed))


def test_a_batch_names_its_keys_and_indices(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "shuffle": True}) as feed:
        for batch in feed:
            labels = batch.label.numpy()
            assert batch.indices.dtype == np.int64
            assert batch.indices.tolist() == labels.tolist()
            assert batch.keys == [b"%08d" % label for label in labels]


def test_subset_serves_a_part_of_the_records(source: Path) -> None:
    with prefetch.open(
        {"source": source, "batch_size": 4, "subset": {"start": 3, "stop": 9}}
    ) as feed:
        assert _labels(feed) == [[3, 4, 5, 6], [7, 8]]
        assert _labels(feed) == [[3, 4, 5, 6], [7, 8]]


def test_several_sources_are_read_in_turn(source: Path, tmp_path: Path) -> None:
    more = write_database(tmp_path / "more", list(fingerprinted_images(13))[10:])
    with prefetch.open({"source": [source, more], "batch_size": 8}) as feed:
        assert _labels(feed) == [list(range(8)), list(range(8, 13))]


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("policy", ["pad", "drop"])
def test_ranks_serve_disjoint_shares_of_equal_length(
    source: Path, policy: str, *, shuffle: bool
) -> None:
    shares = []
    for rank in range(3):
        with prefetch.open(
            {
                "source": source,
                "shuffle": shuffle,
                "shard": {"rank": rank, "world_size": 3, "policy": policy},
            }
        ) as feed:
            shares.append([label for labels in _labels(feed) for label in labels])
    assert {len(share) for share in shares} == {4 if policy == "pad" else 3}
    together = [label for place in zip(*shares, strict=True) for label in place]
    assert len(set(together[:9])) == 9
    if policy == "pad":
        assert together[10:] == together[:2]


def test_shuffle_serves_every_record_once_in_another_order_each_epoch(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "shuffle": True, "seed": 1}) as feed:
        orders = [[label for labels in _labels(feed) for label in labels] for _ in range(3)]
    assert all(sorted(order) == list(range(10)) for order in orders)
    assert orders[0] != orders[1] != orders[2]


def test_a_closed_feed_refuses_and_closes_again(source: Path) -> None:
    feed = prefetch.open({"source": source})
    iterator = iter(feed)
    batch = next(iterator)
    feed.close()
    feed.close()
    assert feed.closed
    with pytest.raises(prefetch.FeedClosedError):
        next(iterator)
    with pytest.raises(prefetch.FeedClosedError):
        next(iter(feed))
    assert batch.label.numpy().tolist() == list(range(10))
    assert "closed" in repr(feed)


def test_two_feeds_on_one_database_work_and_closing_one_leaves_the_other(
    source: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(source)
    with prefetch.open({"source": source, "batch_size": 4}) as train:
        with prefetch.open({"source": link, "batch_size": 5, "phase": "test"}) as test:
            pairs = list(zip(train, test, strict=False))
            assert len(pairs) == 2
        assert _labels(train)[0] == [0, 1, 2, 3]


def test_stats_count_what_was_served(
    source: Path, until: Callable[[Callable[[], bool]], None]
) -> None:
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 2, "threads": 1}) as feed:
        for batch in feed:
            held = feed.stats()
            assert held.slots_leased == 1
            del batch
        until(lambda: feed.stats().slots_ready == 2)  # the next epoch's: nothing is under way
        stats = feed.stats()
    assert (stats.batches, stats.samples) == (3, 10)
    assert (stats.threads, stats.prefetch, stats.slots, stats.device) == (1, 2, 3, "cpu")
    assert stats.slots_leased == 0
    assert stats.host_bytes % (4 * (3 * 64 * 4 + 8)) == 0
    assert 0 < stats.host_bytes <= 3 * 4 * (3 * 64 * 4 + 8)
    assert stats.device_bytes == 0
    assert stats.busy_s > 0


@pytest.mark.parametrize("bad_batch", [None, 6])
def test_what_stood_ready_is_counted_and_neither_failed_nor_abandoned_batches_are(
    tmp_path: Path, until: Callable[[Callable[[], bool]], None], bad_batch: int | None
) -> None:
    records = list(fingerprinted_images(40))
    if bad_batch is not None:
        records[4 * bad_batch] = (records[4 * bad_batch][0], b"\xff")
    source = write_database(tmp_path / "forty", records)
    with prefetch.open({"source": source, "batch_size": 4, "prefetch": 4, "threads": 1}) as feed:

        def ready_at(iterator: Iterator[prefetch.Batch], number: int) -> int:
            """Wait until all is ready that can be; return how many were at the next call."""
            until(lambda: feed.stats().slots_ready == 4)
            before = feed.stats()
            batch = next(iterator)
            assert batch.number == number
            del batch
            after = feed.stats()
            assert (after.batches, after.samples) == (before.batches + 1, before.samples + 4)
            return round(after.mean_ready * after.batches - before.mean_ready * before.batches)

        for epoch in range(3):
            iterator = iter(feed)
            assert next(iterator).number == 0
            assert feed.epoch == epoch
            counted = [ready_at(iterator, number) for number in (1, 2, 3)]
            assert counted == ([4, 4, 4] if bad_batch is None else [4, 4, 3])


def test_a_feed_tells_its_state_in_its_repr(source: Path) -> None:
    with prefetch.open({"source": source, "threads": 1}) as feed:
        assert repr(feed).startswith("<Feed epoch=0 records=10 batches=0 ")


@pytest.mark.parametrize(
    ("side", "batch_size", "encoded", "threads"),
    [(8, 64, False, 1), (64, 1024, False, 2), (8, 64, True, 4)],
    ids=["small batches", "large batches", "encoded"],
)
def test_threads_auto_goes_by_what_the_readers_have_to_do(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    side: int,
    batch_size: int,
    threads: int,
    *,
    encoded: bool,
) -> None:
    monkeypatch.setattr("prefetch._feed.build.num_cores", lambda: 4)
    image = np.zeros((3, side, side), np.uint8)
    value = encode_image(image, label=0)
    if encoded:
        png = cv2.imencode(".png", image.transpose(1, 2, 0))[1].tobytes()
        value = encode_datum(data=png, label=0, encoded=True)
    source = write_database(tmp_path / "db", [(b"%d" % i, value) for i in range(3)])
    with prefetch.open({"source": source, "batch_size": batch_size, "last_batch": "wrap"}) as feed:
        assert feed.stats().threads == threads


def test_what_stands_ready_is_counted_before_the_wait(source: Path) -> None:
    """The first next() starts the readers: nothing stood ready, even if it need not wait."""
    with prefetch.open({"source": source, "batch_size": 2, "threads": 1}) as feed:
        next(iter(feed))
        assert feed.stats().mean_ready == 0.0


def test_asking_again_after_the_last_epoch_is_answered_as_before(source: Path) -> None:
    with prefetch.open({"source": source, "batch_size": 2, "epochs": 1}) as feed:
        for _ in feed:
            pass
        loop = iter(feed)
        for _ in range(2):
            with pytest.raises(prefetch.EpochsExhaustedError):
                next(loop)


def test_a_feed_is_true_whatever_its_length(source: Path) -> None:
    for last_batch in ("wrap", "drop"):
        options = {"source": source, "batch_size": 1000, "last_batch": last_batch}
        with prefetch.open(options) as feed:
            assert feed


def test_of_an_epoch_without_records_for_a_rank_the_cure_is_another_policy(tmp_path: Path) -> None:
    source = write_database(tmp_path / "one", fingerprinted_images(1))
    shard = {"rank": 0, "world_size": 4, "policy": "drop"}
    with (
        prefetch.open({"source": source, "batch_size": 1, "shard": shard}) as feed,
        pytest.warns(prefetch.PrefetchWarning, match=r"use shard\.policy: pad, or fewer ranks$"),
    ):
        assert list(feed) == []
