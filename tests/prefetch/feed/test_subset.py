"""subset: parts of a database drawn at random, and what remains of it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import prefetch
from prefetch._feed.subset_labels import read_labels
from prefetch._plan.subset import draw_subset
from prefetch._record.wire import encode_datum
from prefetch._source.source import RecordSource
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

PIXELS = np.zeros((1, 4, 4), np.uint8)
NUM = 50


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Fifty records; the label of each is its number."""
    return write_database(tmp_path / "fifty", fingerprinted_images(NUM, (1, 4, 4)))


@pytest.fixture
def classes(tmp_path: Path) -> Path:
    """Forty records of label 0, and ten of label 7, behind them."""
    records = [(b"%03d" % i, encode_image(PIXELS, label=0 if i < 40 else 7)) for i in range(NUM)]
    return write_database(tmp_path / "classes", records)


def _served(source: object, subset: dict[str, Any], **options: Any) -> list[int]:
    """Return the labels, in the order served, of an epoch."""
    with prefetch.open({"source": source, "batch_size": 8}, subset=subset, **options) as feed:
        assert sum(len(batch) for batch in feed) == feed.num_records
        return [label for batch in feed for label in batch.label.numpy().tolist()]


def test_a_fraction_is_drawn_and_served_in_key_order(source: Path) -> None:
    expected = draw_subset(NUM, 0.7, seed=4).tolist()
    assert (35, expected) == (len(expected), _served(source, {"fraction": 0.7, "seed": 4}))


def test_the_complement_is_all_else(source: Path) -> None:
    subset = {"fraction": 0.7, "seed": 4}
    drawn, others = _served(source, subset), _served(source, {**subset, "complement": True})
    assert list(range(NUM)) == sorted(drawn + others)


def test_start_and_stop_are_cut_first(source: Path) -> None:
    subset = {"start": 10, "stop": 40, "fraction": 0.5, "seed": 1}
    expected = [10 + place for place in draw_subset(30, 0.5, seed=1).tolist()]
    assert expected == _served(source, subset)


def test_several_databases_are_drawn_from_as_one(source: Path, classes: Path) -> None:
    labels = [*range(NUM), *[0] * 40, *[7] * 10]
    expected = [labels[place] for place in draw_subset(2 * NUM, 0.4, seed=2).tolist()]
    assert expected == _served([source, classes], {"fraction": 0.4, "seed": 2})


def test_indices_and_random_words_count_within_the_subset(source: Path, tmp_path: Path) -> None:
    drawn = draw_subset(NUM, 0.3, seed=3).tolist()
    records = list(fingerprinted_images(NUM, (1, 4, 4)))
    alone = write_database(tmp_path / "alone", [records[place] for place in drawn])
    options = {"batch_size": 4, "transform": {"crop_size": 2, "mirror": True}, "shuffle": True}
    with (
        prefetch.open(options, source=source, subset={"fraction": 0.3, "seed": 3}) as part,
        prefetch.open(options, source=alone) as whole,
    ):
        for ours, theirs in zip(part, whole, strict=True):
            assert theirs.indices.tolist() == ours.indices.tolist()
            assert theirs.keys == ours.keys
            assert theirs.data.numpy().tobytes() == ours.data.numpy().tobytes()


@pytest.mark.parametrize("fraction", [0.5, 0.25, 0.33])
def test_each_label_has_its_share(classes: Path, fraction: float) -> None:
    subset = {"fraction": fraction, "seed": 9, "stratify": True}
    labels, others = _served(classes, subset), _served(classes, {**subset, "complement": True})
    total = round(fraction * NUM)
    assert total == len(labels)
    assert abs(labels.count(7) - 10 * fraction) < 1
    assert 10 == labels.count(7) + others.count(7)


def test_records_without_a_label_cannot_be_stratified(tmp_path: Path) -> None:
    labelled = encode_image(PIXELS, label=0)
    bare = encode_datum(channels=1, height=4, width=4, data=PIXELS.tobytes())
    database = write_database(tmp_path / "db", [(b"a", labelled), (b"b", bare)])
    with pytest.raises(prefetch.ConfigError, match="record 1, key 'b', has none"):
        prefetch.open({"source": database}, subset={"fraction": 0.5, "stratify": True})


def test_a_damaged_record_is_no_matter_before_it_is_served(tmp_path: Path) -> None:
    records = [(b"%d" % i, encode_image(PIXELS, label=i % 2)) for i in range(8)]
    database = write_database(tmp_path / "db", [*records, (b"x", b"\xff\xff")])
    subset = {"fraction": 1.0, "stratify": True}
    with prefetch.open({"source": database}, subset=subset, on_bad_record="skip") as feed:
        assert 9 == sum(map(len, feed))
        assert 1 == feed.stats().bad_records


def test_reading_labels_says_how_far_it_is(source: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "prefetch")
    times = iter([0.0, 11.0, 11.0])
    with RecordSource.open(source) as records:
        assert list(range(NUM)) == read_labels(records, clock=lambda: next(times)).tolist()
    assert [
        "subset.stratify: reading the labels of 50 records, once",
        "subset.stratify: read the labels of 50 of 50 records",
    ] == [line for line in caplog.messages if "stratify" in line]


def test_a_subset_without_records_is_refused(source: Path) -> None:
    for subset in ({"fraction": 0.001}, {"fraction": 1.0, "complement": True}):
        with pytest.raises(prefetch.EmptyDatabaseError, match="the subset holds no record of 50"):
            prefetch.open({"source": source}, subset=subset)


def test_a_state_goes_on_in_the_same_subset_and_in_no_other(source: Path) -> None:
    options: dict[str, Any] = {"source": source, "batch_size": 8, "shuffle": True}
    subset = {"fraction": 0.5, "seed": 1}
    with prefetch.open(options, subset=subset) as feed:
        batches = iter(feed)
        next(batches)
        state = feed.state_dict()
        rest = [batch.indices.tolist() for batch in batches]
    with prefetch.open(options, subset=subset) as feed:
        feed.load_state_dict(state)
        assert rest == [batch.indices.tolist() for batch in feed]
    with (
        prefetch.open(options, subset={**subset, "complement": True}) as feed,
        pytest.raises(prefetch.StateError, match=r"config subset\.complement: was false, is true"),
    ):
        feed.load_state_dict(state)


def test_a_subset_with_gaps_is_not_walked(source: Path) -> None:
    with prefetch.open({"source": source}, subset={"fraction": 0.5}) as feed:
        planner = feed._prefetcher.coordinator.planner
        assert planner.walker is None
    with prefetch.open({"source": source}, subset={"start": 3}) as feed:
        assert feed._prefetcher.coordinator.planner.walker is not None
