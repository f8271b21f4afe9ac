"""A digest of bytes, to tell contents apart: in C, or in NumPy where the extension is missing.

It protects against damage and mistakes, and not against whoever makes two contents of one digest on
purpose; two that differ by chance have the same in one case of 2^64 and more. CRC-32 is too short
for that, and Python's takes ten times as long; a cryptographic hash takes longer yet.

The bytes, with zeros behind them up to a multiple of 64, are stripes of eight words of 64 bits, the
lowest byte first. Word j of stripe i is turned by the key ``mix(j + 1) + i * GOLDEN``; the product
of its halves is added to sum j, and the word as it is to its neighbour's, j ^ 1. What is digested
in the end is the sums and the number of bytes.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._kernels import selection

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

DIGEST_BYTES: Final = 16

_NUM_SUMS: Final = 8
_STRIPE_BYTES: Final = 8 * _NUM_SUMS
_GOLDEN: Final = 0x9E3779B97F4A7C15
_WORD: Final = (1 << 64) - 1


def _mix(word: int) -> int:
    """Spread each bit over all; no two words become one."""
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _WORD
    return word ^ (word >> 31)


_KEYS: Final = np.array([_mix(j + 1) for j in range(_NUM_SUMS)], np.uint64)
_NEIGHBOURS: Final = np.arange(_NUM_SUMS) ^ 1


def numpy_digest(content: memoryview | bytes | NDArray[Any], /) -> bytes:
    """Return what `digest` does, by NumPy; in some 40 times the time."""
    read = np.frombuffer(content, np.uint8)
    stripes = np.zeros((-(-len(read) // _STRIPE_BYTES), _STRIPE_BYTES), np.uint8)
    stripes.reshape(-1)[: len(read)] = read
    words = stripes.view("<u8").astype(np.uint64, copy=False)
    steps = np.arange(len(words), dtype=np.uint64) * np.uint64(_GOLDEN)
    mixed = words ^ (_KEYS + steps[:, np.newaxis])
    products = (mixed & np.uint64(0xFFFFFFFF)) * (mixed >> np.uint64(32))
    sums = (products + words[:, _NEIGHBOURS]).sum(0, np.uint64).tolist()
    first, second = _mix(len(read)), _mix(len(read) ^ _GOLDEN)
    for ahead, behind in zip(sums, reversed(sums), strict=True):
        first = _mix(first ^ ahead)
        second = _mix((second + behind) & _WORD)
    return struct.pack("<QQ", first, second)


def _choose() -> Callable[[Any], bytes]:
    if not selection.kernels_available:
        return numpy_digest
    from prefetch._kernels import _c  # noqa: PLC0415 - not everywhere

    return _c.digest


digest: Callable[[Any], bytes] = _choose()
"""Return 16 bytes that tell a content, C-contiguous, from others. Thread-safe, without the GIL."""
