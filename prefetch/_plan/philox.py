"""Philox4x32-10, the counter-based generator behind the feed's own random numbers.

A counter-based generator has no state: word i of a stream is a function of (key, i) alone, so
that any thread, after any resume, gets the same words for the same record. Philox is that of
Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC11), and agrees
with the known-answer vectors of their Random123 library.

The feed's streams are keyed in two steps, the first of which hashes what would not fit into a
key of 64 bits::

    key of a stream   = words 0, 1 of philox(counter (epoch low, epoch high, domain, 0), key seed)
    words of a stream = philox(counter chosen by the domain, key of the stream)

`Domain` keeps the shuffled order, the draws and the mixed batches of one epoch apart. All of this
is frozen by test vectors: changing it changes every seeded run.
"""

from __future__ import annotations

import enum
import functools
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SEED: Final = 2**64 - 1
"""The largest seed: one key of Philox4x32."""

_ROUNDS: Final = 10
_LOW_WORD: Final = 0xFFFFFFFF
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL_STEPS: Final = (0x9E3779B9, 0xBB67AE85)


class Domain(enum.IntEnum):
    """What a stream is for; streams of different domains have unrelated keys."""

    AUGMENTATION = 1
    SHUFFLE = 2
    MIXING = 3


def philox4x32(counters: NDArray[np.uint64], keys: NDArray[np.uint64]) -> NDArray[np.uint32]:
    """Encrypt counters under keys with the ten rounds of Philox4x32.

    Args:
        counters: Shape (4, ...), 32-bit words 0 to 3 of each counter.
        keys: Shape (2, ...), 32-bit words 0 and 1 of each key, with as many axes as `counters`
            and lengths that broadcast with it.

    Returns:
        Shape (4, ...): the four words for each counter.
    """
    axes = (1,) * (counters.ndim - 1)
    multipliers = np.array(_MULTIPLIERS, np.uint64).reshape(2, *axes)
    steps = np.array(_WEYL_STEPS, np.uint64).reshape(2, *axes)
    rounds = np.arange(_ROUNDS, dtype=np.uint64).reshape(_ROUNDS, 1, *axes)
    even, odd = counters[0::2], counters[1::2]
    for round_key in (keys + rounds * steps) & _LOW_WORD:
        # Words 0 and 2 are multiplied in one call; their products then change places.
        products = even * multipliers
        even = (products >> 32)[::-1] ^ odd ^ round_key
        products &= _LOW_WORD
        odd = products[::-1]
    words = np.empty((4, *even.shape[1:]), np.uint32)
    words[0::2] = even
    words[1::2] = odd
    return words


def stream_keys(seed: int, epochs: NDArray[np.int64], *, domain: Domain) -> NDArray[np.uint64]:
    """Derive the keys of the streams of several epochs.

    Args:
        seed: The run's seed, 0 to `MAX_SEED`.
        epochs: Shape (n,), from 0.
        domain: What the streams are for.

    Returns:
        Shape (2, n): words 0 and 1 of each key.

    Raises:
        ValueError: `seed` is out of range.
    """
    check_seed(seed)
    wide = epochs.astype(np.uint64)
    counters = np.zeros((4, wide.size), np.uint64)
    counters[0] = wide & _LOW_WORD
    counters[1] = wide >> 32
    counters[2] = domain
    key = np.array([[seed & _LOW_WORD], [seed >> 32]], np.uint64)
    return philox4x32(counters, key)[:2].astype(np.uint64)


@functools.lru_cache(maxsize=256)
def stream_key(seed: int, epoch: int, domain: Domain) -> NDArray[np.uint64]:
    """Derive the key of one epoch's stream; remembered, as every batch of the epoch asks for it.

    Args:
        seed: The run's seed, 0 to `MAX_SEED`.
        epoch: From 0.
        domain: What the stream is for.

    Returns:
        Shape (2, 1), read-only: words 0 and 1 of the key.

    Raises:
        ValueError: `seed` is out of range.
    """
    key = stream_keys(seed, np.array([epoch], np.int64), domain=domain)
    key.flags.writeable = False
    return key


def check_seed(seed: int) -> None:
    """Refuse a seed that does not fit a key.

    Raises:
        ValueError: `seed` is negative or above `MAX_SEED`.
    """
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"seed is {seed}: expected an integer from 0 to {MAX_SEED}")
