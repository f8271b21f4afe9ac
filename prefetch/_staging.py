"""A slot's memory where the device transforms: what is staged, and how it becomes the batch.

Pixels, random words and forms of a batch (`_device_kernel` says how), and behind them its labels,
lie in one pinned block, which one copy takes to the device; there the kernel makes the batch of it.
All of that is queued on the stream of the reader that has finished the batch, and the event behind
it is the slot's: neither slot nor block is free, and nothing of them is refilled, before it has
passed.

A row that no uint8 can carry, that of a record with float_data, is finished on the host and copied
over the kernel's.
"""

from __future__ import annotations

import dataclasses
import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from memory import Blob
from prefetch._device_kernel import WHOLE, WINDOW, StagedBatch, window_of
from prefetch._lease import DeviceHold
from prefetch._push_block import DeviceBlock, queued

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from memory import Device, DeviceBuffer, Event, Stream
    from prefetch._device_transform import DeviceTransform
    from prefetch._lease import Lease
    from prefetch._push_block import HostBlock


class StagedRows:
    """Some rows of a staged batch, to be filled. Threads may fill different rows of one batch.

    Args:
        pixels: uint8 (n, channels, height, width), C-contiguous: the records' places.
        table: uint32 (n, 4): the random words of each, and its form.
        finished: Rows finished on the host, by their number in the batch; of all of its rows.
        start: Number in the batch of the first of these rows.

    Attributes:
        pixels: As given.
    """

    __slots__ = ("_finished", "_start", "_table", "pixels")

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        table: NDArray[np.uint32],
        finished: dict[int, NDArray[Any]],
        *,
        start: int = 0,
    ) -> None:
        self.pixels = pixels
        self._table = table
        self._finished = finished
        self._start = start

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels."""
        return self.pixels.nbytes

    @property
    def place(self) -> tuple[int, int, int]:
        """(channels, height, width) of each record's place."""
        _, channels, height, width = self.pixels.shape
        return channels, height, width

    @property
    def finished(self) -> dict[int, NDArray[Any]]:
        """The rows of the whole batch that were finished on the host, by number."""
        return self._finished

    def __getitem__(self, rows: slice) -> StagedRows:
        """Return some of the rows."""
        start, _, _ = rows.indices(len(self.pixels))
        return StagedRows(
            self.pixels[rows], self._table[rows], self._finished, start=self._start + start
        )

    def begin(self, words: NDArray[np.uint32], *, windows: bool) -> None:
        """Begin to fill the rows anew.

        Args:
            words: uint32 (n, 3): the records' random words.
            windows: Whether their places will have windows, not whole images.
        """
        self._table[:, :3] = words
        self._table[:, 3] = WINDOW if windows else WHOLE

    def window(self, row: int, crop_size: int) -> NDArray[np.uint8]:
        """Let a row have a window, and return where: uint8 (1, channels, side, side)."""
        self._table[row, 3] = WINDOW
        return window_of(self.pixels[row], crop_size)[np.newaxis]

    def finish(self, row: int, sample: NDArray[Any]) -> None:
        """Let a row be this sample, whatever the kernel makes of its place."""
        self._finished[self._start + row] = sample


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
        """Let go of all memory; what was exported, and what is in flight, keeps it."""
        self.leave()
        self._block.drop()
        self._out = None

    def leave(self) -> None:
        """Let go of what was lent for the batch."""
        self._block.leave()
        self._host = self._batch = self._rows = None

    @property
    def blocks(self) -> tuple[object, ...]:
        """What keeps the device's memory."""
        return self._block.buffer, self._out

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
    ) -> tuple[StagedRows, NDArray[Any] | None]:
        """Return the rows of a batch, and its labels, to be filled.

        Args:
            shape: (N, channels, height, width): the records' places.
            dtype: Type of the batch.
            label_dtype: Type of the labels; None for no labels.
            host: Pinned memory that is lent to the batch.
            most_rows: Rows of the largest batch there will be: there is room for it at once.
        """
        self.leave()
        num, channels, height, width = shape
        batch = StagedBatch(num, channels, height, width)
        largest = dataclasses.replace(batch, num=max(num, most_rows))
        staged, labels = self._block.bind(
            host,
            batch.nbytes,
            label_dtype,
            rows=num,
            most_data_bytes=largest.nbytes,
            most_rows=largest.num,
        )
        sample_bytes = math.prod(self._sample_shape(batch)) * dtype.itemsize
        if self._out is None or self._out.nbytes < num * sample_bytes:
            self._out = None
            self._out = self._device.alloc_device(largest.num * sample_bytes)
        self._host, self._batch, self._dtype = host, batch, dtype
        self._rows = StagedRows(batch.pixels(staged), batch.table(staged), {})
        return self._rows, labels

    def push(self, lease: Lease, stream: Stream, events: list[Event]) -> tuple[Blob, Blob | None]:
        """Queue the copies and the kernel; return the batch's data and labels.

        Args:
            lease: Held by whatever is made of the device's memory, and by nothing in flight.
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
        blob = Blob(shape, dtype=self._dtype, device=self._device)
        out = self._out.slice(0, blob.nbytes)
        filled = queued(lambda: self._queue(out, stream), stream, events)
        hold = DeviceHold(self._out, lease)
        blob.set_gpu_data(self._out.slice(0, blob.nbytes, owner=hold), filled=filled)
        return blob, self._block.label_blob(lease, filled)

    def _sample_shape(self, batch: StagedBatch) -> tuple[int, int, int]:
        return self._transform.sample_shape(batch.image_shape)

    def _queue(self, out: DeviceBuffer, stream: Stream) -> None:
        batch, rows = self._batch, self._rows
        assert batch is not None
        assert rows is not None
        staged = self._block.copy(stream).slice(0, batch.nbytes)
        self._transform.launch(staged, out, batch, stream=stream)
        if rows.finished:
            self._queue_finished(rows.finished, out, out.nbytes // batch.num, stream)

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
