"""What a prefetcher works with, resolved from a configuration."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prefetch._ring.budget import RingBudget, num_host_batches
from prefetch._ring.push_block import block_bytes
from prefetch._transform.device_staging import RecordStager
from prefetch._transform.hooks import make_transformer

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from memory import Device
    from prefetch._bad_records.policy import BadRecords
    from prefetch._plan.draws import DrawSource
    from prefetch._plan.order import Order
    from prefetch._plan.position import Position
    from prefetch._process.resource_limits import MemoryLimit
    from prefetch._source.source import RecordSource
    from prefetch._transform.device import DeviceTransform
    from prefetch._transform.first_record import FirstRecord
    from prefetch._transform.label_form import Field, LabelForm
    from prefetch._transform.options import Transform
    from prefetch._transform.own_function import OwnFunction
    from prefetch._transform.record_filler import RecordFiller


@dataclass(frozen=True, slots=True, kw_only=True)
class Components:
    """What a prefetcher works with, resolved from a configuration.

    Attributes:
        source: The records; the prefetcher closes it.
        order: Which record is in which batch.
        augmentation: The records' random words.
        state_of: Makes a saved state of a place in the feed.
        transform: What is done to each record.
        first: The record by which the feed was opened.
        first_shape: What a slot has for that record; None where it is bad.
        bad_records: What is done about bad ones.
        device: Where the slots have their memory.
        device_transform: What the device does to each batch; None where the host does it.
        owns_device: Whether the prefetcher closes the device.
        label_dtype: Element type of the labels; None for no labels.
        num_threads: Reader threads, 1 or more.
        prefetch: Batches kept ahead of the consumer, 1 or more.
        host_limit: What the process might have of the machine's memory when the feed was opened.
        max_batches_held: Batches that the consumer may hold at a time, 1 or more.
        stall_warning_s: Seconds of waiting for a batch before the log says why; None for never.
        check_start: Called when the first batch is asked for.
        per_batch: Called with each batch, before it is published; None for nothing.
        label_form: What becomes of the labels; None where a batch has those of its records, or
            none.
        works_on_batches: Whether readers do anything to whole batches but push them.
    """

    source: RecordSource
    order: Order
    augmentation: DrawSource
    state_of: Callable[[Position], dict[str, Any]]
    transform: Transform
    first: FirstRecord
    first_shape: tuple[int, ...] | None
    bad_records: BadRecords
    device: Device
    device_transform: DeviceTransform | None
    owns_device: bool
    label_dtype: np.dtype[Any] | None
    num_threads: int
    prefetch: int
    host_limit: MemoryLimit
    max_batches_held: int
    stall_warning_s: float | None
    check_start: Callable[[], object]
    per_batch: OwnFunction | None = None
    label_form: LabelForm | None = None
    works_on_batches: bool = field(init=False)

    def __post_init__(self) -> None:
        # Not a property: it is asked for with every batch.
        object.__setattr__(self, "works_on_batches", self.mixes or self.per_batch is not None)

    @property
    def mixes(self) -> bool:
        """Whether batches are mixed with themselves, or have other labels than their records'."""
        return self.label_form is not None or self.transform.mixing is not None

    @property
    def fields(self) -> tuple[Field, ...]:
        """What batches have besides data and the records' labels."""
        return () if self.label_form is None else self.label_form.fields

    @property
    def fixed_shape(self) -> tuple[int, ...] | None:
        """What a slot has for each record of any batch; None where each has its own shape."""
        return self.first_shape if self.bad_records.skip else None

    @property
    def own_function_s(self) -> float:
        """Seconds that people's own functions have taken, on all threads; takes no lock."""
        return sum([own.busy_s for own in self.own_functions], 0.0)

    @property
    def own_functions(self) -> list[OwnFunction]:
        """People's own functions, as far as there are any."""
        functions = (self.transform.per_record, self.per_batch)
        return [own for own in functions if own is not None]

    def record_filler(self, check_cancelled: Callable[[], object]) -> RecordFiller:
        """Return what fills rows of slots from records, for one thread.

        Args:
            check_cancelled: Called before each encoded record; what it raises ends the filling.
        """
        if self.device_transform is None:
            return make_transformer(self.transform, check_cancelled=check_cancelled)
        return RecordStager(self.device_transform, check_cancelled=check_cancelled)

    def ring_memory(self, row_shape: tuple[int, ...]) -> RingBudget:
        """Return what the ring takes at its start.

        Args:
            row_shape: What a slot has in host memory for each record, as `record_filler` says.
        """
        if self.device_transform is not None:
            return self._staged_memory(self.device_transform, row_shape)
        return RingBudget.of(
            row_shape,
            self.transform.dtype,
            label_dtype=self.label_dtype,
            rows=self.most_rows,
            num_batches=self.prefetch + 1,
            on_device=self.device.has_device_memory,
            fields=self.fields,
        )

    def _staged_memory(self, transform: DeviceTransform, place: tuple[int, ...]) -> RingBudget:
        """Return what the ring takes where records are staged on both sides, and made a batch."""
        channels, height, width = place
        rows = self.most_rows
        label_bytes = 0 if self.label_dtype is None else rows * self.label_dtype.itemsize
        staged = transform.staged_batch(rows, (channels, height, width))
        staged_bytes = block_bytes(staged.nbytes, label_bytes, self.fields, rows=rows)
        sample_bytes = (
            math.prod(transform.sample_shape((channels, height, width)))
            * self.transform.dtype.itemsize
        )
        return RingBudget(
            num_batches=self.prefetch + 1,
            num_host_batches=num_host_batches(self.prefetch + 1),
            host_batch_bytes=staged_bytes,
            device_batch_bytes=staged_bytes + rows * sample_bytes,
        )

    @property
    def expected_memory(self) -> RingBudget | None:
        """What the ring will take, as the first record says; None where that one is bad."""
        return None if self.first_shape is None else self.ring_memory(self.first_shape)

    def refuse_too_large(self, row_shape: tuple[int, ...]) -> None:
        """Refuse a ring that process or device have no memory for, before it is allocated.

        Args:
            row_shape: As for `ring_memory`.

        Raises:
            RingTooLargeError: One of them cannot.
        """
        self.ring_memory(row_shape).refuse_too_large(
            host=self.host_limit,
            device=self.device.name,
            device_limit_bytes=self.device.memory_info().limit_bytes,
        )

    @property
    def most_rows(self) -> int:
        """Samples of the largest batch there will be."""
        order = self.order
        if order.last_batch == "wrap":
            return order.batch_size
        return min(order.batch_size, order.samples_per_epoch)
