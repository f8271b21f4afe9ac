"""A random word becomes a choice."""

from __future__ import annotations

import numpy as np
import pytest

from prefetch._plan.random_words import reduce_word


@pytest.mark.parametrize(
    ("word", "extent", "remainder", "upper"),
    [
        (0, 1, 0, 0),
        (2**32 - 1, 1, 0, 0),
        (2**31 - 1, 2, 1, 0),
        (2**31, 2, 0, 1),
        (3481802584, 30, 3481802584 % 30, 24),
        (2**32 - 1, 2**32 - 1, 0, 2**32 - 2),
    ],
)
def test_a_word_becomes_its_remainder_or_its_share_of_the_extent(
    word: int, extent: int, remainder: int, upper: int
) -> None:
    assert reduce_word(word, extent, modulo=True) == remainder
    assert reduce_word(word, extent, modulo=False) == upper


def test_a_word_of_numpy_does_not_overflow() -> None:
    word: int = np.uint32(2**32 - 1)  # type: ignore[assignment] # what arrays iterate over
    assert reduce_word(word, 10, modulo=False) == 9


@pytest.mark.parametrize("modulo", [True, False])
def test_an_extent_without_values_is_refused(*, modulo: bool) -> None:
    with pytest.raises(ValueError, match="extent is 0: expected 1 or more"):
        reduce_word(5, 0, modulo=modulo)
