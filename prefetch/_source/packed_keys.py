"""The keys of a batch, one directly after the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt


class PackedKeys(NamedTuple):
    """Keys of consecutive records in one buffer, so that none becomes an object unasked.

    Attributes:
        buffer: The keys, one directly after the other.
        lengths: (N,) int64 length of each in bytes.
    """

    buffer: bytes
    lengths: npt.NDArray[np.int64]

    @classmethod
    def pack(cls, keys: Sequence[memoryview | bytes]) -> PackedKeys:
        """Copy keys into one buffer."""
        lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
        return cls(b"".join(keys), lengths)

    def replace(self, position: int, key: bytes) -> PackedKeys:
        """Return the same keys with another one at ``position``."""
        keys = self.unpack()
        keys[position] = key
        return self.pack(keys)

    def unpack(self) -> list[bytes]:
        """Return the keys as a list of bytes."""
        stops = np.cumsum(self.lengths).tolist()
        starts = [0, *stops[:-1]]
        return [self.buffer[a:b] for a, b in zip(starts, stops, strict=True)]
