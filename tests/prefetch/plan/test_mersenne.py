from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from prefetch._plan.mersenne import MersenneStream, seeded_state


def words_of(seed: int, count: int) -> list[int]:
    """The generator's words by another public way: 32-bit integers of the legacy interface."""
    return [int(word) for word in np.random.RandomState(seed).randint(0, 2**32, count, np.uint32)]


@pytest.mark.parametrize("seed", [0, 1701, 2**32 - 1])
def test_words_are_those_of_the_twister_with_that_seed(seed: int) -> None:
    stream = MersenneStream(seeded_state(seed))

    assert stream.take(0, 2000).tolist() == words_of(seed, 2000)


# Caffe's own test of seeding: a started thread draws its seed from the starting thread.
@pytest.mark.parametrize(("seed", "word"), [(9658361, 4244559767), (3435563, 1726478280)])
def test_a_thread_seeded_by_another_draws_what_caffes_threads_draw(seed: int, word: int) -> None:
    outer = MersenneStream(seeded_state(seed))
    inner = MersenneStream(seeded_state(int(outer.take(0, 1)[0])))

    assert inner.take(0, 1).tolist() == [word]


def test_words_can_be_skipped_and_asked_for_again() -> None:
    expected = words_of(5, 3000)
    stream = MersenneStream(seeded_state(5))

    assert stream.take(100, 10).tolist() == expected[100:110]
    assert stream.take(2500, 500).tolist() == expected[2500:]
    assert stream.take(99, 2).tolist() == expected[99:101]


def test_a_long_skip_is_taken_in_bounded_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefetch._plan.mersenne._DISCARD_WORDS", 7)
    stream = MersenneStream(seeded_state(5))

    assert stream.take(100, 3).tolist() == words_of(5, 103)[100:]


@pytest.mark.parametrize("position", [0, 1, 623, 624, 625, 1999])
def test_a_stream_goes_on_from_a_state_that_went_through_json(position: int) -> None:
    stream = MersenneStream(seeded_state(11))

    state = json.loads(json.dumps(stream.state_at(position)))
    restored = MersenneStream(state)

    assert restored.take(0, 700).tolist() == words_of(11, position + 700)[position:]
    assert restored.take(0, 1).tolist() == words_of(11, position + 1)[position:], "moved back"


def test_a_restored_stream_gives_states_of_its_own() -> None:
    expected = words_of(11, 1000)
    first = MersenneStream(MersenneStream(seeded_state(11)).state_at(300))
    second = MersenneStream(first.state_at(200))

    assert second.take(10, 5).tolist() == expected[510:515]


def test_states_of_far_places_need_no_long_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prefetch._plan.mersenne._CHECKPOINT_WORDS", 100)
    expected = words_of(3, 2000)
    stream = MersenneStream(seeded_state(3))

    for position in (0, 50, 101, 150, 700, 1500, 20):
        state = stream.state_at(position)
        assert state["position"] <= 100
        assert MersenneStream(state).take(0, 3).tolist() == expected[position : position + 3]


def test_a_state_is_a_copy() -> None:
    stream = MersenneStream(seeded_state(3))
    stream.state_at(0)["generator"][0] = 0

    assert stream.state_at(0) == seeded_state(3)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_a_seed_beyond_32_bits_is_refused_and_says_what_to_do(seed: int) -> None:
    with pytest.raises(ValueError, match=rf"seed is {seed}: .* 0 to 4294967295; use a smaller"):
        seeded_state(seed)


GENERATOR = [*range(624), 624]


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ({}, "lacks its 625 integers"),
        ({"generator": 5, "position": 0}, "lacks its 625 integers"),
        ({"generator": GENERATOR[1:], "position": 0}, "lacks its 625 integers"),
        ({"generator": [*GENERATOR[:-1], 625], "position": 0}, "is damaged"),
        ({"generator": [*GENERATOR[:-1], -1], "position": 0}, "is damaged"),
        ({"generator": [2**32, *GENERATOR[1:]], "position": 0}, "is damaged"),
        ({"generator": [1.5, *GENERATOR[1:]], "position": 0}, "is damaged"),
        ({"generator": GENERATOR, "position": -1}, "position is -1"),
        ({"generator": GENERATOR, "position": "0"}, "position is '0'"),
        ({"generator": GENERATOR}, "position is null"),
        ({"generator": GENERATOR, "position": True}, "position is true"),
        ({"generator": GENERATOR, "position": 2**16 + 1}, "expected an integer from 0 to 65536"),
        ({"generator": GENERATOR, "position": 10**5000}, "position is an integer of 16610 bits"),
        ({"generator": GENERATOR, "position": 0, "seed": 1}, "more entries"),
    ],
)
def test_what_is_no_state_is_refused(state: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        MersenneStream(state)
