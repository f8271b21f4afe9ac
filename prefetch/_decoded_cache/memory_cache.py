"""Decoded images in the memory of this process."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

from prefetch._decoded_cache.cache import CacheCounts, Tally

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

logger = logging.getLogger("prefetch")


class MemoryCache:
    """A `DecodedCache` in memory; emptied when as many feeds have closed it as have held it.

    Args:
        most_bytes: What all images may take together, in bytes.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._images: dict[bytes, NDArray[np.uint8]] = {}
        self._nbytes = 0
        self._num_holding = 0
        self._is_full = False
        self._lock = threading.Lock()
        self._tally = Tally()

    def hold(self) -> MemoryCache:
        """Return itself, held once more: a feed that starts anew holds it before it is let go."""
        self._num_holding += 1
        return self

    def find(self, key: bytes, *, counts: bool = True) -> NDArray[np.uint8] | None:
        """Return an image, or None; see `DecodedCache`."""
        image = self._images.get(key)
        if counts:
            self._tally.count(is_hit=image is not None)
        return image

    def store(self, key: bytes, image: NDArray[Any]) -> None:
        """Keep a copy of an image, if there is room."""
        if self._is_full:
            return
        with self._lock:  # two threads may have decoded equal records
            if key in self._images:
                return
            if self._nbytes + image.nbytes > self._most_bytes:
                self._stop(f"it has {self._most_bytes} bytes")
                return
            try:
                kept = image.copy()
            except MemoryError:
                self._stop("there is no more memory")
                return
            kept.flags.writeable = False
            self._images[key] = kept
            self._nbytes += image.nbytes

    def counts(self) -> CacheCounts:
        """Return what it has done."""
        return CacheCounts(self._tally.hits, self._tally.misses, self._nbytes)

    def close(self) -> None:
        """Let it go once; the last time empties it. Takes no lock: a finalizer may call it."""
        self._num_holding -= 1
        if self._num_holding <= 0:
            self._images, self._nbytes, self._is_full = {}, 0, False

    def _stop(self, why: str) -> None:
        if not self._is_full:
            self._is_full = True
            logger.warning(
                "cache.decoded is full with %d images: %s; what is not in it is decoded each "
                "time. Raise cache.decoded.bytes, or name a path to keep images in a file",
                len(self._images),
                why,
            )
