"""The bus between host and simulated device: how long a copy takes, and what has been copied."""

from __future__ import annotations

import math
import threading
from collections import Counter
from dataclasses import dataclass

from memory._errors import OptionValueError


@dataclass(frozen=True, slots=True)
class TransferStats:
    """How often and how much a device has been asked to copy.

    Attributes:
        num_to_device: Copies from the host. More than one for each batch is a copy too many.
        bytes_to_device: Their bytes.
        num_to_host: Copies to the host. A training loop that only consumes has next to none.
        bytes_to_host: Their bytes.
        num_on_device: Copies within the device's memory.
        bytes_on_device: Their bytes.
    """

    num_to_device: int = 0
    bytes_to_device: int = 0
    num_to_host: int = 0
    bytes_to_host: int = 0
    num_on_device: int = 0
    bytes_on_device: int = 0


class Bus:
    """Times and counts copies. Thread-safe.

    Args:
        latency_s: Seconds that every copy between host and device takes, besides its bytes.
        bandwidth_bytes_per_s: Bytes that such a copy moves in a second; None for no limit.

    Raises:
        OptionValueError: If a value cannot be.
    """

    def __init__(self, *, latency_s: float, bandwidth_bytes_per_s: float | None) -> None:
        if not (latency_s >= 0 and math.isfinite(latency_s)):
            raise OptionValueError("latency_s", expected="0 seconds or more", found=latency_s)
        if bandwidth_bytes_per_s is not None and not bandwidth_bytes_per_s > 0:
            raise OptionValueError(
                "bandwidth_bytes_per_s",
                expected="more than 0, or None",
                found=bandwidth_bytes_per_s,
            )
        self._latency_s = latency_s
        self._s_per_byte = 0.0 if bandwidth_bytes_per_s is None else 1.0 / bandwidth_bytes_per_s
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def duration_s(self, way: str, nbytes: int) -> float:
        """Return how long a copy takes; none within the device's memory takes any time."""
        return 0.0 if way == "on_device" else self._latency_s + nbytes * self._s_per_byte

    def count(self, way: str, nbytes: int) -> None:
        """Count a copy: ``to_device``, ``to_host`` or ``on_device``."""
        with self._lock:
            self._counts[f"num_{way}"] += 1
            self._counts[f"bytes_{way}"] += nbytes

    def stats(self) -> TransferStats:
        """Return what was copied until now."""
        with self._lock:
            return TransferStats(**self._counts)
