"""Images for caches of decoded images: each is known by its number."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from prefetch._decoded_cache.belonging import Belonging
from prefetch._kernels.digest import digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from prefetch._decoded_cache.cache import DecodedCache


def belonging(*, path: str = "/db", state: str = "1", shorter: int | None = None) -> Belonging:
    return Belonging.of([path], [(40, state)], {"force_color": False, "shorter": shorter})


def image_of(number: int) -> NDArray[np.uint8]:
    rng = np.random.default_rng(number)
    return rng.integers(0, 256, (5 + number % 7, 11, 1 if number % 3 == 0 else 3), np.uint8)


def key_of(number: int) -> bytes:
    return digest(b"record %d" % number)


def fill(cache: DecodedCache, numbers: Iterable[int]) -> None:
    for number in numbers:
        cache.store(key_of(number), image_of(number))


def found_in(cache: DecodedCache, numbers: Iterable[int]) -> list[int]:
    """Return which of some images are there, each of which is as it was stored."""
    found = []
    for number in numbers:
        image = cache.find(key_of(number))
        if image is not None:
            np.testing.assert_array_equal(image_of(number), image)
            assert image.flags.c_contiguous
            assert not image.flags.writeable
            found.append(number)
    return found
