"""A slot's memory where the device transforms: what is staged, and how it becomes the batch.

Pixels, random words and forms of a batch (`_kernels.device_kernel` has the layout), and behind them
its labels, lie in one pinned block, which one copy takes to the device; there the kernel makes the
batch of it. All of that is queued on the stream of the reader that has finished the batch.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._ring.batch_blob import BatchBlob
from prefetch._ring.lease import DeviceHold
from prefetch._ring.push_block import DeviceBlock, queue_work
from prefetch._transform.staged_rows import StagedRows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from memory import Blob, Device, DeviceBuffer, Event, Stream
    from prefetch._kernels.device_kernel import StagedBatch
    from prefetch._ring.lease import Lease
    from prefetch._ring.push_block import HostBlock
    from prefetch._transform.device import DeviceTransform
    from prefetch._transform.label_form import Field


class StagedMemory:
    """A slot's device memory: for what is staged, labels included, and for the batch itself.

    All of it grows and never shrinks. Not thread-safe; the rows that it hands out are.

    Args:
        device: Whose memory it is.
        transform: What the device does.
    """

    __slots__ = (
        "_batch",
        "_block",
        "_device",
        "_dtype",
        "_host",
        "_out",
        "_rows",
        "_transform",
    )

    def __init__(self, device: Device, transform: DeviceTransform) -> None:
        self._device = device
        self._transform = transform
        self._block = DeviceBlock(device)
        self._out: DeviceBuffer | None = None
        self._host: HostBlock | None = None
        self._batch: StagedBatch | None = None
        self._rows: StagedRows | None = None
        self._dtype: np.dtype[Any] | None = None

    def drop(self) -> None:
        """Free all memory; what was exported, and what is in flight, keeps it."""
        self.leave()
        self._block.drop()
        self._out = None

    def leave(self) -> None:
        """Leave what was lent for the batch."""
        self._block.leave()
        self._host = self._batch = self._rows = None

    @property
    def blocks(self) -> tuple[object, ...]:
        """What keeps the device's memory."""
        return self._block.buffer, self._out

    @property
    def host_bytes(self) -> int:
        """Return 0: what is lent is the ring's."""
        return 0

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory."""
        buffers = self._block.buffer, self._out
        return sum(buffer.nbytes for buffer in buffers if buffer is not None)

    def bind(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        label_dtype: np.dtype[Any] | None,
        host: HostBlock,
        *,
        most_rows: int,
        fields: tuple[Field, ...] = (),
    ) -> tuple[StagedRows, NDArray[Any] | None]:
        """Return the rows of a batch, and its labels, to be filled.

        Args:
            shape: (N, channels, height, width): the records' places.
            dtype: Type of the batch.
            label_dtype: Type of the labels; None for no labels.
            host: Pinned memory that is lent to the batch.
            most_rows: Rows of the largest batch there will be: there is room for it at once.
            fields: What it has besides.
        """
        self.leave()
        num, channels, height, width = shape
        batch = self._transform.staged_batch(num, (channels, height, width))
        largest = dataclasses.replace(batch, num=max(num, most_rows))
        staged, labels = self._block.bind(
            host,
            batch.nbytes,
            label_dtype,
            rows=num,
            most_data_bytes=largest.nbytes,
            most_rows=largest.num,
            fields=fields,
        )
        sample_bytes = math.prod(self._sample_shape(batch)) * dtype.itemsize
        if self._out is None or self._out.nbytes < num * sample_bytes:
            self._out = None  # freed first: never both at once
            self._out = self._device.alloc_device(largest.num * sample_bytes)
        self._host, self._batch, self._dtype = host, batch, dtype
        pixels, table = batch.pixels(staged), batch.table(staged)
        self._rows = StagedRows(pixels, table, {}, place=batch.image_shape)
        return self._rows, labels

    def push(self, lease: Lease, stream: Stream, events: list[Event]) -> tuple[Blob, Blob | None]:
        """Queue the copies and the kernel; return the batch's data and labels.

        Args:
            lease: Held by all that is made of the device's memory, and by nothing in flight.
            stream: Does the work.
            events: Gets the event behind all that was queued, also where the rest could not be.

        Raises:
            DeviceError: The device refuses.
            HostMemoryError: There is no pinned memory for rows that were finished on the host.
        """
        assert self._batch is not None
        assert self._dtype is not None
        assert self._out is not None
        shape = (self._batch.num, *self._sample_shape(self._batch))
        blob = BatchBlob(shape, dtype=self._dtype, device=self._device)
        out = self._out.slice(0, blob.nbytes)
        # The event behind all of it is the slot's: before it has passed, neither the slot nor the
        # block is filled again.
        filled = queue_work(lambda: self._queue(out, stream), stream, events)
        hold = DeviceHold(self._out, lease)
        blob.set_gpu_data(self._out.slice(0, blob.nbytes, owner=hold), filled=filled)
        return blob, self._block.label_blob(lease, filled)

    def field_arrays(self, _fields: tuple[Field, ...], *, rows: int) -> list[NDArray[Any]]:  # noqa: ARG002
        """Return where the batch's other fields are to be filled in; `bind` was told which."""
        return self._block.field_arrays()

    def field_blobs(self, lease: Lease, filled: Event) -> dict[str, Blob]:
        """Return the batch's other fields; see `SlotMemory`."""
        return self._block.field_blobs(lease, filled)

    def _sample_shape(self, batch: StagedBatch) -> tuple[int, int, int]:
        return self._transform.sample_shape(batch.image_shape)

    def _queue(self, out: DeviceBuffer, stream: Stream) -> None:
        batch, rows = self._batch, self._rows
        assert batch is not None
        assert rows is not None
        staged = self._block.copy(stream).slice(0, batch.nbytes)
        self._transform.launch(staged, out, batch, stream=stream)
        # Records with float_data, which no uint8 can carry, were transformed on the host. Their
        # rows are copied over the kernel's, behind it on the same stream.
        if rows.finished:
            self._queue_finished(rows.finished, out, out.nbytes // batch.num, stream)
        if rows.mix is not None:
            mixer = self._transform.mixer
            assert mixer is not None
            shape = (batch.num, *self._sample_shape(batch))
            mixer.launch(out, shape, rows.mix, stream=stream)

    def _queue_finished(
        self, finished: dict[int, NDArray[Any]], out: DeviceBuffer, row_bytes: int, stream: Stream
    ) -> None:
        """Queue the copies of the rows that were finished on the host, one for each run of them."""
        assert self._host is not None
        array = self._host.finished(len(finished) * row_bytes)
        end = 0
        for first, samples in _runs(finished):
            start = end
            for sample in samples:
                array[end : end + row_bytes] = sample.reshape(-1).view(np.uint8)
                end += row_bytes
            place = out.slice(first * row_bytes, end - start)
            self._device.copy_to_device(place, array[start:end], stream=stream)


def _runs(rows: dict[int, NDArray[Any]]) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Yield the number of the first row and all rows of each run of neighbours."""
    for _, run in groupby(enumerate(sorted(rows)), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        yield numbers[0], [rows[number] for number in numbers]
