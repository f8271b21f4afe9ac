"""The Mersenne twister as a stream of words that can be saved, restored and moved along.

MT19937 yields 32-bit words, seeded with Matsumoto's ``init_genrand`` as boost::mt19937 is, which
is what Caffe draws from. It has no cheap jump, so that a saved place in the stream is the
generator's state itself: 624 words and the index of the next one, a *state* here being the
mapping ``{"generator": [625 integers], "position": words to discard after it}``, which JSON
can hold. Copies of the state are expensive, so one is shared by all places close behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memory.wording import printable_value
from prefetch._plan.saved_values import is_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

MAX_MERSENNE_SEED: Final = 2**32 - 1
"""The largest seed that ``init_genrand`` takes."""

_KEY_WORDS: Final = 624
# Words between two copies of the state: a copy costs 70 us, walking on 4 ns a word.
_CHECKPOINT_WORDS: Final = 1 << 16
# Words discarded in one call, which holds the GIL throughout: about 4 ms.
_DISCARD_WORDS: Final = 1 << 20


class MersenneStream:
    """Words of MT19937 from a state on, addressed by position; position 0 is the state's place.

    Moving ahead costs 4 ns a word, moving back starts again from the state. Not thread-safe.

    Example:
        >>> stream = MersenneStream(seeded_state(1701))
        >>> stream.take(1, 2).tolist()
        [2227967492, 495543390]
    """

    __slots__ = ("_checkpoint", "_origin", "_position", "_start", "_twister")

    def __init__(self, state: Mapping[str, Any]) -> None:
        """Start where a state stands.

        Raises:
            ValueError: `state` is no such state.
        """
        self._origin, self._start = _read_state(state)
        self._checkpoint = self._origin
        self._twister = self._origin.make_twister()
        self._position = 0

    def take(self, position: int, count: int) -> NDArray[np.uint64]:
        """Return the `count` words from `position` on: shape (count,), each below 2^32."""
        self._move_to(self._start + position)
        words: NDArray[np.uint64] = self._twister.random_raw(count)
        self._position += count
        return words

    def state_at(self, position: int) -> dict[str, Any]:
        """Return the state of `position`; a few us where positions are asked for in order."""
        self._move_to(self._start + position)
        if self._position - self._checkpoint.position > _CHECKPOINT_WORDS:
            self._checkpoint = _copy_twister(self._twister, position=self._position)
        discarded = self._position - self._checkpoint.position
        return {"generator": list(self._checkpoint.generator), "position": discarded}

    def _move_to(self, target: int) -> None:
        """Move to a position counted from the origin."""
        if target < self._position:
            self._checkpoint = self._origin
            self._twister = self._origin.make_twister()
            self._position = 0
        while self._position < target:
            discarded = min(_DISCARD_WORDS, target - self._position)
            self._twister.random_raw(discarded, output=False)
            self._position += discarded


def seeded_state(seed: int) -> dict[str, Any]:
    """Return the state of a freshly seeded generator.

    Args:
        seed: 0 to `MAX_MERSENNE_SEED`.

    Raises:
        ValueError: `seed` is out of range.
    """
    if not 0 <= seed <= MAX_MERSENNE_SEED:
        raise ValueError(
            f"seed is {seed}: the Mersenne twister of rng 'caffe' takes 0 to {MAX_MERSENNE_SEED}; "
            f"use a smaller one, or rng 'counter'"
        )
    # RandomState is the one public way to this seeding; no global state is involved.
    state: Mapping[str, Any] = np.random.RandomState(seed).get_state(legacy=False)
    inner = state["state"]
    return {"generator": [*inner["key"].tolist(), int(inner["pos"])], "position": 0}


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A copy of the generator's state.

    Attributes:
        generator: Its 624 words and the index of the next one.
        position: How many words come between the origin and here.
    """

    generator: tuple[int, ...]
    position: int

    def make_twister(self) -> np.random.MT19937:
        """Make a generator that stands here."""
        *key, index = self.generator
        twister = np.random.MT19937(0)
        twister.state = {
            "bit_generator": "MT19937",
            "state": {"key": np.array(key, np.uint32), "pos": index},
        }
        return twister


def _copy_twister(twister: np.random.MT19937, *, position: int) -> _Checkpoint:
    inner = twister.state["state"]
    return _Checkpoint((*inner["key"].tolist(), int(inner["pos"])), position)


def _read_state(state: Mapping[str, Any]) -> tuple[_Checkpoint, int]:
    """Check a state, and return the generator's part of it and the words to discard after it."""
    generator, position = state.get("generator"), state.get("position")
    if not isinstance(generator, list | tuple) or len(generator) != _KEY_WORDS + 1:
        raise ValueError(f"the generator's state lacks its {_KEY_WORDS + 1} integers")
    *key, index = generator
    if not (
        all(is_whole(word, most=MAX_MERSENNE_SEED) for word in key)
        and is_whole(index, most=_KEY_WORDS)
    ):
        raise ValueError(
            f"the generator's state is damaged: expected {_KEY_WORDS} words of 32 bits "
            f"and an index from 0 to {_KEY_WORDS}"
        )
    # A saved state is at most so far behind its copy. A larger number would only keep the load
    # busy, drawing so many words.
    if not is_whole(position, most=_CHECKPOINT_WORDS):
        raise ValueError(
            f"the generator's position is {printable_value(position)}: expected an integer from "
            f"0 to {_CHECKPOINT_WORDS}"
        )
    if len(state) > 2:
        raise ValueError("the generator's state has more entries than generator and position")
    return _Checkpoint((*key, index), 0), position
