"""Batches that are planned several at a time are those that are planned one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from prefetch._plan import planned_runs
from prefetch._plan.draw_states import DrawStates
from prefetch._plan.draws import CaffeDraws, CounterDraws, DrawSource, NoDraws
from prefetch._plan.order import Order, PlannedBatch
from prefetch._plan.planned_runs import PlannedRuns


def runs_of(order: Order, draws: DrawSource) -> PlannedRuns:
    return PlannedRuns(order, DrawStates(draws, order, keep=9))


def assert_same(found: PlannedBatch, expected: PlannedBatch) -> None:
    for name, value in expected._asdict().items():
        one = getattr(found, name)
        if isinstance(value, np.ndarray):
            assert (one.dtype, one.tolist()) == (value.dtype, value.tolist()), name
        else:
            assert one == value, name
            assert type(one) is type(value)


@pytest.mark.parametrize("batch_size", [1, 3, 4, 40])
@pytest.mark.parametrize("policy", ["pad", "drop"])
@pytest.mark.parametrize("last_batch", ["partial", "drop", "wrap"])
def test_a_run_of_batches_has_the_records_and_words_of_each(
    monkeypatch: pytest.MonkeyPatch, batch_size: int, policy: Any, last_batch: Any
) -> None:
    monkeypatch.setattr(planned_runs, "_RECORDS_AT_A_TIME", 12)
    options: Any
    for shuffle, (rank, world_size), resumed, epochs in itertools.product(
        (False, True), ((0, 1), (2, 3)), ((0, 0), (1, 9)), (None, 3)
    ):
        options = {"shuffle": shuffle, "seed": 5, "epochs": epochs, "last_batch": last_batch}
        options |= {"rank": rank, "world_size": world_size, "policy": policy}
        options |= {"first_epoch": resumed[0], "first_served": resumed[1]}
        order = Order(31, batch_size, **options)
        draws = CounterDraws(5, blocks=np.array([4], np.int64))
        runs = runs_of(order, draws)
        for sequence in range(20):
            expected = order.plan(sequence)
            found = runs.plan(sequence)
            if expected is None:
                assert found is None
                break
            assert found is not None
            assert_same(found[0], expected)
            assert found[1].tolist() == draws.words(expected).tolist()
            assert found[1].flags.c_contiguous


def test_any_batch_may_be_asked_for_next() -> None:
    order = Order(100, 4, shuffle=True, seed=1)
    runs = runs_of(order, NoDraws())
    for sequence in (0, 1, 7, 8, 3, 40, 40, 39, 41, 0):
        found, expected = runs.plan(sequence), order.plan(sequence)
        assert found is not None
        assert expected is not None
        assert_same(found[0], expected)
        assert not found[1].any()


def test_the_arrays_of_a_batch_are_its_own() -> None:
    order = Order(100, 4)
    runs = runs_of(order, CounterDraws(1))
    expected = [order.plan(sequence) for sequence in range(25)]
    for sequence, batch in enumerate(expected):
        found = runs.plan(sequence)
        assert found is not None
        assert batch is not None
        assert_same(found[0], batch)
        for array in (found[0].records, found[0].places, found[0].epochs, found[1]):
            array[:] = 99


def test_words_of_one_stream_are_drawn_batch_by_batch_so_that_each_can_be_resumed() -> None:
    order = Order(100, 4)
    states = DrawStates(CaffeDraws(1, mirror=True, crop=True), order, keep=9)
    runs = PlannedRuns(order, states)
    alone = CaffeDraws(1, mirror=True, crop=True)
    for sequence in range(3):
        found, expected = runs.plan(sequence), order.plan(sequence)
        assert found is not None
        assert expected is not None
        assert states.before(sequence) == alone.state_before(expected)
        assert found[1].tolist() == alone.words(expected).tolist()
    assert states.before(3) == alone.state


def test_a_run_ends_with_its_epoch_and_with_the_last_batch() -> None:
    order = Order(10, 4, epochs=2)
    sizes = []
    for sequence, most in ((0, 1), (0, 2), (0, 9), (2, 9), (3, 9), (5, 1), (6, 3)):
        run = order.plan_run(sequence, most)
        sizes.append(0 if run is None else len(run.records))
    assert sizes == [4, 8, 10, 2, 10, 2, 0]
    with pytest.raises(ValueError, match="sequence is -1"):
        order.plan_run(-1, 3)
