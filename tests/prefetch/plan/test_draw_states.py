"""The state of Caffe's generator before any batch, whether it was drawn for already or not."""

from __future__ import annotations

from typing import Any

import pytest

from prefetch._plan.draw_states import DrawStates
from prefetch._plan.draws import CaffeDraws, NoDraws
from prefetch._plan.order import Order

ORDERS = {
    "partial": Order(31, 4),
    "drop": Order(31, 4, last_batch="drop"),
    "wrap": Order(31, 4, last_batch="wrap"),
    "resumed": Order(31, 4, first_epoch=2, first_served=9),
}


def _augmentation(state: dict[str, Any] | None = None) -> CaffeDraws:
    return CaffeDraws(5, mirror=True, crop=True, state=state)


def _states(order: Order, count: int) -> list[dict[str, Any]]:
    """Return the states before each batch of a stream that is drawn from in order."""
    augmentation = _augmentation()
    states = []
    for sequence in range(count):
        planned = order.plan(sequence)
        assert planned is not None
        states.append(augmentation.state_before(planned))
        augmentation.words(planned)
    return states


@pytest.mark.parametrize("kind", ORDERS)
@pytest.mark.parametrize("keep", [1, 40])
def test_it_is_the_same_whether_kept_drawn_ahead_of_or_forgotten(kind: str, keep: int) -> None:
    order = ORDERS[kind]
    expected = _states(order, 20)
    states = DrawStates(_augmentation(), order, keep=keep)
    assert states.before(0) == expected[0]
    for sequence in range(12):
        planned = order.plan(sequence)
        assert planned is not None
        states.words(planned)
    # Behind what was drawn: the rest of an epoch was left.
    assert [states.before(sequence) for sequence in range(20)] == expected


def test_of_a_stream_that_goes_on_it_counts_from_where_it_was_saved() -> None:
    order = ORDERS["wrap"]
    saved = _states(order, 6)[5]
    resumed = Order(31, 4, last_batch="wrap", first_served=20)
    states = DrawStates(_augmentation(saved), resumed, keep=2)
    first, expected = order.plan(0), order.plan(8)
    assert first is not None
    assert expected is not None
    words = _augmentation(states.before(3)).words(first)
    assert words.tolist() == _augmentation().words(expected).tolist()


def test_words_that_need_none_have_none() -> None:
    assert DrawStates(NoDraws(), ORDERS["partial"], keep=3).before(7) is None
