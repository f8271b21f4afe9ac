"""Whatever a saved state holds, it is loaded and serves, or it is a StateError."""

from __future__ import annotations

import copy
import json
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import prefetch
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator

NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([2**31, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 2**70, 10**10]),
    st.just(5000).map(lambda exponent: 10**exponent),  # too long for repr
    st.floats(),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    NUMBERS,
    st.text(max_size=5),
    # No JSON holds these; what PyTorch saves may.
    st.sampled_from([np.int64(3), np.float64(1), np.ones(2), np.array(1), b"x"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda values: st.one_of(
        st.lists(values, max_size=4), st.dictionaries(st.text(max_size=3), values, max_size=3)
    ),
    max_leaves=6,
)


def _places(state: dict[str, Any]) -> Iterator[tuple[str | int, ...]]:
    """Yield the way to each entry, of the generator's words to the ends only."""
    for name, value in state.items():
        yield (name,)
        if isinstance(value, dict):
            for inner, item in value.items():
                yield name, inner
                if isinstance(item, list) and item:
                    yield name, inner, 0
                    yield name, inner, len(item) - 1
            yield name, "new"
    yield ("new",)


@pytest.fixture(scope="module")
def database() -> Iterator[Path]:
    """A small one, for all examples."""
    with TemporaryDirectory() as folder:
        yield write_database(Path(folder) / "db", fingerprinted_images(9))


def _save(options: dict[str, Any]) -> dict[str, Any]:
    with prefetch.open(options) as feed:
        next(iter(feed))
        state: dict[str, Any] = json.loads(json.dumps(feed.state_dict()))
        return state


@pytest.mark.parametrize("rng", ["counter", "caffe"])
@pytest.mark.timeout(110)
def test_any_value_in_any_entry_is_loaded_and_serves_or_is_a_state_error(
    database: Path, rng: str
) -> None:
    options = {
        "source": database,
        "batch_size": 2,
        "rng": rng,
        "seed": None,
        "shuffle": True,
        "threads": 1,
        "transform": {"mirror": True, "mean_value": [1, 2, 3]},
    }
    saved = _save(options)
    places = list(_places(saved))

    @settings(max_examples=150)
    @example(("epoch",), 2**53)
    @example(("seed",), 2**32)
    @given(st.sampled_from(places), VALUES)
    def check(place: tuple[str | int, ...], value: Any) -> None:
        state = copy.deepcopy(saved)
        inner: Any = state
        for name in place[:-1]:
            inner = inner[name]
        inner[place[-1]] = value
        with prefetch.open(options) as feed, suppress(prefetch.StateError):
            feed.load_state_dict(state)
            assert len(next(iter(feed))) > 0
            feed.state_dict()

    check()
