"""Which epoch an iterator is given, and what it is told where there is none; nobody waits."""

from __future__ import annotations

from typing import Any

import pytest

from memory import open_device
from prefetch import EpochsExhaustedError, StaleIteratorError
from prefetch._bad_records.policy import BadRecords
from prefetch._pipeline.consumer_state import Claim, EndOfEpoch
from prefetch._pipeline.delivery import Delivery
from prefetch._pipeline.held_batches import HeldBatches
from prefetch._pipeline.reader_jobs import Schedule
from prefetch._plan.order import Order
from prefetch._ring.ring import Ring


def delivery_of(order: Order) -> Delivery:
    ring = Ring(open_device("cpu"), 3)
    return Delivery(
        ring,
        Schedule(ring, order, num_threads=1, prefetch=2),
        order,
        BadRecords(skip=False, max_bad_records=0),
        held=HeldBatches(ring, prefetch=2, max_batches_held=5),
    )


@pytest.mark.parametrize("last_batch", ["partial", "drop", "wrap"])
@pytest.mark.parametrize("epochs", [1, 3])
def test_where_every_epoch_has_been_served_each_iterator_is_told_so(
    last_batch: Any, epochs: int
) -> None:
    order = Order(5, 2, epochs=epochs, first_epoch=epochs, last_batch=last_batch)
    delivery = delivery_of(order)
    for _ in range(2):
        with pytest.raises(EpochsExhaustedError, match=rf"{epochs}"):
            delivery.claim(Claim())


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({}, 3),
        ({"epochs": 1}, 3),
        ({"last_batch": "drop"}, 2),
        ({"first_epoch": 4, "first_served": 2}, 2),
        ({"epochs": 5, "first_epoch": 4, "first_served": 4}, 1),
        ({"last_batch": "wrap"}, None),
        ({"last_batch": "wrap", "epochs": 2}, 5),
    ],
)
def test_an_iterator_ends_with_its_epoch_or_under_wrap_with_the_last_one(
    options: dict[str, Any], end: int | None
) -> None:
    order = Order(5, 2, **options)
    delivery, claim = delivery_of(order), Claim()
    assert (claim.started, claim.ended) == (False, False)
    for _ in range(2):
        delivery.claim(claim)
        assert (claim.started, claim.ended, claim.end) == (True, False, end)


def test_a_new_iterator_takes_over_and_an_epoch_of_which_nothing_was_served_is_not_lost() -> None:
    delivery = delivery_of(Order(5, 2, epochs=1))
    claims = [Claim() for _ in range(3)]
    for claim in claims:
        delivery.claim(claim)
        assert claim.end == 3
    for stale in claims[:2]:
        with pytest.raises(StaleIteratorError, match="a newer iterator"):
            delivery.claim(stale)
    delivery.claim(claims[2])


def test_an_epoch_without_a_batch_ends_at_once_and_stays_ended() -> None:
    delivery, claim = delivery_of(Order(3, 4, last_batch="drop")), Claim()
    for _ in range(2):
        with pytest.raises(EndOfEpoch):
            delivery.claim(claim)
        assert claim.ended
