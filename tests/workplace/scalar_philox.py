"""Philox4x32-10 once more, as its paper writes it: what the product's arrays are compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def scalar_philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Philox4x32-10 as its paper writes it, a word at a time."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        product0, product1 = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1 = (product1 >> 32) ^ c1 ^ k0, product1 & 0xFFFFFFFF
        c2, c3 = (product0 >> 32) ^ c3 ^ k1, product0 & 0xFFFFFFFF
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return [c0, c1, c2, c3]
