"""What a prefetcher works with, resolved from a configuration."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prefetch._errors import RingTooLargeError
from prefetch._stager import RecordStager
from prefetch._transform import RecordTransformer

if TYPE_CHECKING:
    import numpy as np

    from memory import Device
    from prefetch._augment import Augmentation
    from prefetch._bad_records import BadRecords
    from prefetch._device_transform import DeviceTransform
    from prefetch._order import Order
    from prefetch._source import RecordSource
    from prefetch._state import Identity
    from prefetch._transform import RecordFiller, Transform


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembly:
    """What a prefetcher works with, resolved from a configuration.

    Attributes:
        source: The records; the prefetcher closes it.
        order: Which record is in which batch.
        augmentation: The records' random words.
        identity: What a saved state belongs to.
        transform: What is done to each record.
        bad_records: What is done about bad ones.
        device: Where the slots have their memory.
        device_transform: What the device does to each batch; None where the host does it.
        owns_device: Whether the prefetcher closes the device.
        label_dtype: Element type of the labels; None for no labels.
        num_threads: Reader threads, 1 or more.
        prefetch: Batches kept ahead of the consumer, 1 or more.
        max_batches_held: Batches that the consumer may hold at a time, 1 or more.
        stall_warning_s: Seconds of waiting for a batch before the log says why; None for never.
    """

    source: RecordSource
    order: Order
    augmentation: Augmentation
    identity: Identity
    transform: Transform
    bad_records: BadRecords
    device: Device
    device_transform: DeviceTransform | None
    owns_device: bool
    label_dtype: np.dtype[Any] | None
    num_threads: int
    prefetch: int
    max_batches_held: int
    stall_warning_s: float | None

    def record_filler(self) -> RecordFiller:
        """Return what fills rows of slots from records, for one thread."""
        if self.device_transform is None:
            return RecordTransformer(self.transform)
        return RecordStager(self.device_transform)

    def refuse_too_large(self, sample_shape: tuple[int, ...]) -> None:
        """Refuse a ring that the machine's memory cannot hold, before it is allocated.

        Args:
            sample_shape: What a slot has in host memory for each record, as `record_filler` says.

        Raises:
            RingTooLargeError: It cannot.
        """
        itemsize = self.transform.dtype.itemsize if self.device_transform is None else 1
        batch_bytes = math.prod(sample_shape) * itemsize * self.most_rows
        machine_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        if batch_bytes * (self.prefetch + 1) > machine_bytes:
            raise RingTooLargeError(
                batch_bytes=batch_bytes,
                num_batches=self.prefetch + 1,
                machine_bytes=machine_bytes,
            )

    @property
    def most_rows(self) -> int:
        """Samples of the largest batch there will be."""
        order = self.order
        if order.last_batch == "wrap":
            return order.batch_size
        return min(order.batch_size, order.samples_per_epoch)
