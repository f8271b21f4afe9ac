"""The random numbers and the time of people's own functions."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest

from prefetch._transform.own_function import OwnFunction


@pytest.mark.parametrize(
    ("option", "seed", "epoch", "number", "words"),
    [
        ("per_record", 0, 0, 0, [213000021201967259, 4455796210202625458, 2055444239878205049]),
        (
            "per_record",
            2**64 - 1,
            3,
            2**40 + 1,
            [6836062338150647254, 10510809526992265318, 14557896179343107408],
        ),
        ("per_batch", 0, 0, 0, [11873002094180986743, 1171884530594738689, 2219574813360835193]),
        ("per_batch", 7, 1, 2, [1919616196465665499, 12784999905616687494, 835610431290735313]),
    ],
)
def test_the_random_numbers_are_those_of_the_test_vectors(
    option: str, seed: int, epoch: int, number: int, words: list[int]
) -> None:
    found: list[int] = []

    def function(images: object, labels: object, rng: np.random.Generator) -> None:
        found.extend(rng.integers(2**64 - 1, size=3, dtype=np.uint64, endpoint=True).tolist())

    call = OwnFunction(option, function).caller()  # type: ignore[arg-type]
    call(None, None, seed=9, epoch=9, number=9)  # leaves nothing behind
    found.clear()
    call(None, None, seed=seed, epoch=epoch, number=number)
    assert found == words
    fresh = np.random.Philox(
        key=np.array([seed, epoch], np.uint64),
        counter=np.array([0, number, int(option == "per_batch"), 0], np.uint64),
    )
    assert found == fresh.random_raw(3).tolist()


def test_the_time_of_all_callers_is_added_up_where_calls_fail_too() -> None:
    ticks = count()

    def function(images: object, labels: object, rng: np.random.Generator) -> None:
        if images is None:
            raise ValueError

    own = OwnFunction("per_record", function, clock=lambda: float(next(ticks)))
    first, second = own.caller(), own.caller()
    first(1, 2, seed=0, epoch=0, number=0)
    with pytest.raises(ValueError):
        second(None, 2, seed=0, epoch=0, number=0)
    second(1, 2, seed=0, epoch=0, number=0)
    assert own.busy_s == 3.0
    assert (first.busy_s, second.busy_s) == (1.0, 2.0)
