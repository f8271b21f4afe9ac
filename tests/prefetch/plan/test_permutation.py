from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest

from prefetch._plan.permutation import MAX_SIZE, shuffled, tightest_grid
from prefetch._plan.philox import Domain, philox4x32, stream_key

if TYPE_CHECKING:
    from numpy.typing import NDArray


def order_of(size: int, *, seed: int = 0, epoch: int = 0) -> NDArray[np.int64]:
    return shuffled(np.arange(size), epoch, size=size, seed=seed)


def scalar_record(place: int, *, epoch: int, size: int, seed: int) -> int:
    """The same permutation, a place at a time in Python integers."""
    grid = tightest_grid(size)
    rounds = []
    for number in range(8 if size >= 1024 else 12):
        counter = np.array([[number], [0], [0], [0]], np.uint64)
        words = philox4x32(counter, stream_key(seed, epoch, Domain.SHUFFLE))[:, 0].tolist()
        rounds.append((words[1] << 32 | words[0] | 1, words[3] << 32 | words[2]))
    record = size
    cell = place
    while record >= size:
        row, column = divmod(cell, grid.columns)
        for number, (factor, addend) in enumerate(rounds):
            source = row if number % 2 else column
            mixed = (source * factor + addend) ** 2 % 2**64 >> 32
            if number % 2:
                column = (column + mixed) % grid.columns
            else:
                row = (row + mixed) % grid.rows
        record = cell = row * grid.columns + column
    return record


def test_the_grid_is_the_tightest_of_128_heights_and_of_those_the_nearest_to_a_square() -> None:
    """All of an order hangs on it, so that another choice would change every seeded run."""
    for size in [*range(1, 2000), 66_155, 65_661, 1_281_167, 10**8 + 7, MAX_SIZE]:
        root = next(root for root in range(int(size**0.5), size + 1) if root * root >= size)
        heights = [root - less for less in range(128) if less == 0 or root - less > root // 2]
        cells = {rows: rows * -(-size // rows) for rows in heights}
        rows = max(rows for rows in heights if cells[rows] == min(cells.values()))

        assert tightest_grid(size) == (rows, -(-size // rows))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 17, 1000, 1023, 1024, 1797, 2**31 + 11, MAX_SIZE])
def test_records_are_those_of_the_scalar_definition(size: int) -> None:
    places = np.unique(np.linspace(0, size - 1, 20).astype(np.int64))

    expected = [scalar_record(place, epoch=3, size=size, seed=7) for place in places.tolist()]
    assert shuffled(places, 3, size=size, seed=7).tolist() == expected


def test_orders_are_frozen() -> None:
    places = np.array([0, 1, 2, 10**6, MAX_SIZE - 1])

    assert order_of(12).tolist() == [0, 8, 3, 9, 5, 1, 10, 6, 4, 7, 2, 11]
    assert order_of(12, epoch=1).tolist() == [7, 0, 9, 6, 4, 5, 11, 3, 1, 8, 2, 10]
    assert order_of(12, seed=1).tolist() == [0, 8, 9, 3, 10, 11, 5, 1, 2, 6, 4, 7]
    assert order_of(2000)[:6].tolist() == [493, 410, 1211, 826, 906, 824]
    assert shuffled(places, 5, size=MAX_SIZE, seed=2**64 - 1).tolist() == [
        873211178069,
        695128067041,
        577382739697,
        1053767531041,
        891708986730,
    ]


def test_places_of_several_epochs_give_what_each_epoch_gives_alone() -> None:
    places = np.array([4, 0, 3, 4, 2, 2])
    epochs = np.array([7, 7, 8, 8, 2**33, 7])

    records = shuffled(places, epochs, size=5, seed=3)

    expected = [
        int(order_of(5, seed=3, epoch=epoch)[place])
        for place, epoch in zip(places.tolist(), epochs.tolist(), strict=True)
    ]
    assert records.tolist() == expected


def test_places_of_one_epoch_may_come_with_an_epoch_each() -> None:
    places = np.arange(100)

    records = shuffled(places, np.full(100, 4), size=100, seed=1)

    assert records.tolist() == order_of(100, seed=1, epoch=4).tolist()


def test_places_are_left_as_they_were() -> None:
    places = np.arange(10)

    records = shuffled(places, 0, size=10, seed=0)

    assert places.tolist() == list(range(10))
    assert records.dtype == np.int64
    assert not np.shares_memory(records, places)


def test_what_falls_outside_the_records_more_than_once_is_sent_through_until_it_does_not() -> None:
    sizes = [size for size in range(1, 400) if np.prod(tightest_grid(size)) >= size + 2]
    assert sizes
    for size in sizes[:6]:
        for epoch in range(60):
            assert np.array_equal(np.sort(order_of(size, epoch=epoch)), np.arange(size))


def test_no_places_give_no_records() -> None:
    assert shuffled(np.empty(0, np.int64), 0, size=10, seed=0).tolist() == []


def test_the_grid_holds_every_place_and_less_than_a_column_more() -> None:
    for size in [*range(1, 300), 1797, 50_000, 1_281_167, 10**8 + 7, MAX_SIZE]:
        grid = tightest_grid(size)

        assert size <= grid.rows * grid.columns < size + grid.rows
        assert grid.rows <= 2 * grid.columns
        assert grid.columns <= 4 * grid.rows


def test_few_places_of_an_epoch_fall_outside_its_records() -> None:
    sizes = np.random.default_rng(5).integers(1000, 10**6, 200).tolist()

    grids = [tightest_grid(size) for size in sizes]
    shares = [grid.rows * grid.columns / size - 1 for grid, size in zip(grids, sizes, strict=True)]

    assert max(shares) < 0.005
    assert sum(shares) / len(shares) < 0.0005


def test_all_orders_of_few_records_come_equally_often() -> None:
    places, epochs = np.tile(np.arange(4), 1200), np.repeat(np.arange(1200), 4)
    orders = shuffled(places, epochs, size=4, seed=0).reshape(1200, 4)

    counts = Counter(map(tuple, orders.tolist()))
    assert len(counts) == 24
    # Chi-squared with 23 degrees of freedom: above 50 in one run of a thousand.
    assert sum((count - 50) ** 2 / 50 for count in counts.values()) < 50


@pytest.mark.parametrize("size", [100, 1100])
def test_an_order_has_the_statistics_of_a_random_one(size: int) -> None:
    num_epochs = 300
    orders = np.stack([order_of(size, epoch=epoch) for epoch in range(num_epochs)])
    steps = np.diff(orders, axis=1)

    # Each count is Poisson or normal over many epochs; the bounds are five standard errors wide.
    fixed_points = np.count_nonzero(orders == np.arange(size), axis=1)
    neighbours = np.count_nonzero(np.abs(steps) == 1, axis=1)
    ascents = np.count_nonzero(steps > 0, axis=1)
    lower_half = np.count_nonzero(orders[:, : size // 2] < size // 2, axis=1)
    assert abs(fixed_points.mean() - 1) < 5 * (1 / num_epochs) ** 0.5
    assert abs(neighbours.mean() - 2 * (size - 1) / size) < 5 * (2 / num_epochs) ** 0.5
    assert abs(ascents.mean() - (size - 1) / 2) < 5 * (size / 12 / num_epochs) ** 0.5
    assert abs(ascents.var() / (size / 12) - 1) < 5 * (2 / num_epochs) ** 0.5
    assert abs(lower_half.mean() - size / 4) < 5 * (size / 16 / num_epochs) ** 0.5
    assert abs(lower_half.var() / (size / 16) - 1) < 5 * (2 / num_epochs) ** 0.5


def test_successive_epochs_have_unrelated_orders() -> None:
    size = 5000
    first, second = order_of(size, epoch=0), order_of(size, epoch=1)

    assert np.count_nonzero(first == second) < 10
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / size**0.5


def test_a_seed_beyond_64_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="seed is -1: expected"):
        order_of(10, seed=-1)
