"""What a ring takes of host and device memory: arithmetic, before anything is allocated."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefetch._errors.classes import RingTooLargeError
from prefetch._ring.push_block import block_bytes

if TYPE_CHECKING:
    import numpy as np

    from prefetch._process.resource_limits import MemoryLimit
    from prefetch._transform.label_form import Field

_MOST_ON_HOST = 3  # one that is copied, one that is filled, one that is opened


def num_host_batches(num_batches: int) -> int:
    """Return how many of a ring's batches are on the host at a time where the device has memory."""
    return min(num_batches, _MOST_ON_HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class RingBudget:
    """What a ring takes at its start; it grows beyond that with the batches that are held.

    Attributes:
        num_batches: Batches that it has room for: those kept ahead, and the one in use.
        num_host_batches: Of how many there is room for on the host: of all, unless the device has
            memory of its own, where batches wait and are held.
        host_batch_bytes: Host memory of one, data and labels; pinned where the device is a GPU.
        device_batch_bytes: Device memory of one; 0 where the device has no memory of its own.
    """

    num_batches: int
    num_host_batches: int
    host_batch_bytes: int
    device_batch_bytes: int

    @classmethod
    def of(
        cls,
        sample_shape: tuple[int, ...],
        dtype: np.dtype[Any],
        *,
        label_dtype: np.dtype[Any] | None,
        rows: int,
        num_batches: int,
        on_device: bool,
        fields: tuple[Field, ...] = (),
    ) -> RingBudget:
        """Add it up.

        Args:
            sample_shape: (C, H, W) or (H, W, C) of every sample.
            dtype: Element type of the data.
            label_dtype: Element type of the labels; None for no labels.
            rows: Samples of the largest batch.
            num_batches: Batches that the ring has room for.
            on_device: Whether each batch takes the same on the device.
            fields: What batches have besides.
        """
        label_bytes = 0 if label_dtype is None else rows * label_dtype.itemsize
        data_bytes = rows * math.prod(sample_shape) * dtype.itemsize
        field_bytes = rows * sum(field.row_bytes for field in fields)
        batch_bytes = (
            block_bytes(data_bytes, label_bytes, fields, rows=rows)
            if on_device
            else data_bytes + label_bytes + field_bytes
        )
        return cls(
            num_batches=num_batches,
            num_host_batches=num_host_batches(num_batches) if on_device else num_batches,
            host_batch_bytes=batch_bytes,
            device_batch_bytes=batch_bytes if on_device else 0,
        )

    @property
    def host_bytes(self) -> int:
        """Host memory of the whole ring."""
        return self.num_host_batches * self.host_batch_bytes

    @property
    def device_bytes(self) -> int:
        """Device memory of the whole ring."""
        return self.num_batches * self.device_batch_bytes

    def refuse_too_large(
        self, *, host: MemoryLimit, device: str, device_limit_bytes: int | None
    ) -> None:
        """Refuse a ring that what the process may have, or the device's memory, cannot hold.

        Args:
            host: What this process may have of the machine's memory.
            device: Name of the device.
            device_limit_bytes: Memory that it has; None for no limit.

        Raises:
            RingTooLargeError: It cannot.
        """
        if self.host_bytes > host.available_bytes:
            raise RingTooLargeError(
                device=None,
                batch_bytes=self.host_batch_bytes,
                num_batches=self.num_host_batches,
                available_bytes=host.available_bytes,
                limit=str(host),
            )
        if device_limit_bytes is not None and self.device_bytes > device_limit_bytes:
            raise RingTooLargeError(
                device=device,
                batch_bytes=self.device_batch_bytes,
                num_batches=self.num_batches,
                available_bytes=device_limit_bytes,
                limit=f"device {device} has {device_limit_bytes} bytes of memory",
            )

    def __str__(self) -> str:
        few = self.num_host_batches < self.num_batches
        return (
            f"{self.host_bytes} bytes of host memory and {self.device_bytes} bytes of the "
            f"device's, for {self.num_batches} batches"
            + (f", {self.num_host_batches} of them on the host at a time" if few else "")
        )
