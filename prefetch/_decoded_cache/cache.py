"""What a cache of decoded images does, wherever it keeps them.

An image is found by the digest of its record's own bytes, which is made anew each time that the
record is read. So an entry can only ever be served for the very bytes that it was decoded from:
no number, place or time of a record has to be trusted, records with equal bytes share an entry, and
feeds with other subsets, orders or ranks share a cache. The digest takes 6 us for 92 kB, of which
decoding takes 100 times as much. The price is that encoded bytes are read again in every epoch.

Nothing is ever evicted: a training run reads every record once an epoch, and what was used least
recently is then what is needed next. A cache that is full leaves the rest undecoded.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What a cache has done for one feed.

    Attributes:
        hits: Images that were found.
        misses: Images that were not, and had to be decoded.
        nbytes: What it takes now, in bytes.
    """

    hits: int
    misses: int
    nbytes: int


NO_COUNTS: Final = CacheCounts(0, 0, 0)
"""Those of a feed without a cache."""


class DecodedCache(Protocol):
    """Decoded images by the digests of their records. Thread-safe; never raises for a full disk."""

    def find(self, key: bytes, /, *, counts: bool = True) -> NDArray[np.uint8] | None:
        """Return an image.

        Args:
            key: `prefetch._kernels.digest.digest` of the encoded image.
            counts: Whether it is one of the hits or misses.

        Returns:
            uint8 (height, width, channels), C-contiguous, read-only; None where it is not there.
        """

    def store(self, key: bytes, image: NDArray[Any], /) -> None:
        """Keep an image, if there is room; what is there already stays.

        Args:
            key: As for `find`.
            image: uint8 (height, width, channels), C-contiguous; copied.
        """

    def counts(self) -> CacheCounts:
        """Return what it has done; waits for nothing."""

    def close(self) -> None:
        """End its use by one feed; idempotent. Images that were found stay valid."""


class Tally:
    """Hits and misses, counted by several threads; reading takes no lock."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    def count(self, *, is_hit: bool) -> None:
        """Count a look."""
        with self._lock:  # += is no single step
            if is_hit:
                self.hits += 1
            else:
                self.misses += 1
