"""Parts of a database that are drawn at random."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefetch._plan import subset
from prefetch._plan.permutation import shuffled
from prefetch._plan.subset import draw_subset

VECTORS = {
    (8, 0): [4, 6],
    (20, 1): [0, 9, 15, 16, 18],
    (20, 18446744073709551615): [2, 4, 5, 12, 16],
    (37, 1701): [1, 7, 9, 16, 19, 27, 28, 30, 35],
}


def test_the_drawn_records_are_frozen() -> None:
    assert VECTORS == {
        (size, seed): draw_subset(size, 0.25, seed=seed).tolist() for size, seed in VECTORS
    }


def test_a_subset_is_the_head_of_a_shuffled_epoch_in_key_order() -> None:
    order = shuffled(np.arange(1000), 0, size=1000, seed=7)
    assert sorted(order[:617].tolist()) == draw_subset(1000, 0.617, seed=7).tolist()


@given(
    num_records=st.integers(1, 400),
    fraction=st.floats(0, 1),
    seed=st.integers(0, 2**64 - 1),
    num_labels=st.one_of(st.none(), st.integers(1, 9)),
)
def test_a_subset_and_its_complement_are_all_records_once(
    num_records: int, fraction: float, seed: int, num_labels: int | None
) -> None:
    labels = None if num_labels is None else np.arange(num_records) ** 2 % num_labels - 3
    drawn = draw_subset(num_records, fraction, seed=seed, labels=labels)
    others = draw_subset(num_records, fraction, seed=seed, labels=labels, complement=True)
    assert round(fraction * num_records) == len(drawn)
    assert list(range(num_records)) == sorted([*drawn.tolist(), *others.tolist()])
    assert [True, True] == [bool((np.diff(part) > 0).all()) for part in (drawn, others)]


@given(seed=st.integers(0, 2**64 - 1), fraction=st.floats(0, 1))
def test_stratified_each_label_has_its_share_to_within_one(seed: int, fraction: float) -> None:
    labels = np.repeat([5, -2, 9, 2**40], [3, 50, 120, 7])
    drawn = draw_subset(180, fraction, seed=seed, labels=labels)
    share = round(fraction * 180) / 180
    for label in np.unique(labels):
        exact = share * (labels == label).sum()
        assert abs((labels[drawn] == label).sum() - exact) < 1


def test_the_largest_remainders_get_what_is_left_and_of_equal_ones_the_smaller_label() -> None:
    labels = np.repeat([1, 2, 3], [5, 5, 10])  # half: 2.5, 2.5 and 5
    drawn = draw_subset(20, 0.5, seed=3, labels=labels)
    assert [3, 2, 5] == np.bincount(labels[drawn])[1:].tolist()


def test_of_each_label_those_are_drawn_that_a_shuffled_epoch_has_first() -> None:
    labels = np.arange(300) % 7
    order = shuffled(np.arange(300), 0, size=300, seed=11)
    expected: list[int] = []
    drawn = draw_subset(300, 0.4, seed=11, labels=labels)
    for label in range(7):
        of_label = order[labels[order] == label]
        expected += of_label[: (labels[drawn] == label).sum()].tolist()
    assert sorted(expected) == drawn.tolist()


@pytest.mark.parametrize("num_labels", [None, 5])
def test_it_makes_no_difference_in_how_many_steps_it_is_drawn(
    num_labels: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = None if num_labels is None else np.arange(997) % num_labels
    at_once = draw_subset(997, 0.6, seed=5, labels=labels)
    monkeypatch.setattr(subset, "_PLACES_AT_ONCE", 10)
    assert at_once.tolist() == draw_subset(997, 0.6, seed=5, labels=labels).tolist()


def test_all_and_none_can_be_drawn() -> None:
    assert [0, 1, 2] == draw_subset(3, 1.0, seed=0).tolist()
    assert [] == draw_subset(3, 0.1, seed=0).tolist()
