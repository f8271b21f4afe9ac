"""A slot's memory where the device transforms: what is staged, and how it becomes the batch.

Pixels, random words and forms of a batch lie in one pinned block (`_device_kernel` says how), which
one copy takes to the device; there the kernel makes the batch of it. All of that is queued on the
stream of the reader that has finished the batch, and the event behind it is the slot's: the slot is
not free, and nothing of it is refilled, before the kernel has read what was staged.

A row that no uint8 can carry, that of a record with float_data, is finished on the host and copied
over the kernel's.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from memory import Blob, SyncedMemoryError
from prefetch._device_kernel import WHOLE, WINDOW, StagedBatch, window_of
from prefetch._lease import DeviceHold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from memory import Device, DeviceBuffer, Event, HostBuffer, Stream
    from prefetch._device_transform import DeviceTransform
    from prefetch._lease import Lease


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
    """Memory of a slot's data: pinned and device memory for staging, and the batch on the device.

    All of it grows and never shrinks. Not thread-safe; the rows that it hands out are.

    Args:
        device: Whose memory it is.
        transform: What the device does.
    """

    __slots__ = (
        "_batch",
        "_device",
        "_finished",
        "_host",
        "_out",
        "_rows",
        "_staged",
        "_transform",
    )

    def __init__(self, device: Device, transform: DeviceTransform) -> None:
        self._device = device
        self._transform = transform
        self._host: HostBuffer | None = None
        self._finished: HostBuffer | None = None
        self._staged: DeviceBuffer | None = None
        self._out: DeviceBuffer | None = None
        self._batch: StagedBatch | None = None
        self._rows: StagedRows | None = None

    def drop(self) -> None:
        """Let go of the memory; what was exported, and what is in flight, keeps it."""
        self._host = self._finished = self._staged = self._out = None
        self._batch = self._rows = None

    @property
    def blocks(self) -> tuple[object, ...]:
        """What keeps the memory."""
        return self._host, self._finished, self._staged, self._out

    @property
    def host_bytes(self) -> int:
        """Bytes of pinned memory."""
        return sum(buffer.nbytes for buffer in (self._host, self._finished) if buffer is not None)

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory."""
        return sum(buffer.nbytes for buffer in (self._staged, self._out) if buffer is not None)

    def bind(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        lease: Lease,  # noqa: ARG002 - what is staged is nobody's but the slot's
        *,
        most_rows: int,
    ) -> tuple[Blob, StagedRows]:
        """Return a batch's Blob, which has no bytes yet, and the rows to be filled.

        Args:
            shape: (N, channels, height, width): the records' places.
            dtype: Type of the batch.
            lease: Held by the Blob once it has bytes; see `push`.
            most_rows: Rows of the largest batch there will be: there is room for it at once.
        """
        num, channels, height, width = shape
        batch = StagedBatch(num, channels, height, width)
        largest = dataclasses.replace(batch, num=max(num, most_rows))
        sample = self._transform.sample_shape(batch.image_shape)
        sample_bytes = math.prod(sample) * dtype.itemsize
        if self._host is None or self._host.nbytes < batch.nbytes:
            # The old block goes first, and the rows in it of a batch that was given up: never both.
            self._host = self._rows = None
            self._host = self._device.alloc_host(largest.nbytes)
        if self._staged is None or self._staged.nbytes < batch.nbytes:
            self._staged = None
            self._staged = self._device.alloc_device(largest.nbytes)
        if self._out is None or self._out.nbytes < num * sample_bytes:
            self._out = None
            self._out = self._device.alloc_device(largest.num * sample_bytes)
        staged = self._host.array[: batch.nbytes]
        self._batch = batch
        self._rows = StagedRows(batch.pixels(staged), batch.table(staged), {})
        return Blob((num, *sample), dtype=dtype, device=self._device), self._rows

    def push(self, blob: Blob, lease: Lease, stream: Stream, events: list[Event]) -> None:
        """Queue the copies and the kernel, and give the Blob the device memory that they fill.

        Args:
            blob: Made by the last `bind`, whose rows have been filled since.
            lease: Held by whatever is made of the Blob's device memory, and by nothing in flight.
            stream: Does the work.
            events: Gets the event behind all that was queued, also where the rest could not be.

        Raises:
            DeviceError: The device refuses.
            HostMemoryError: There is no pinned memory for rows that were finished on the host.
        """
        assert self._out is not None
        out = self._out.slice(0, blob.nbytes)
        try:
            self._queue(out, stream)
        except BaseException:
            with contextlib.suppress(SyncedMemoryError):
                events.append(_recorded(stream))
            raise
        finally:
            self._rows = None  # what was finished on the host is copied, or of no use any more
        filled = _recorded(stream)
        events.append(filled)
        hold = DeviceHold(self._out, lease)
        blob.set_gpu_data(self._out.slice(0, blob.nbytes, owner=hold), filled=filled)

    def _queue(self, out: DeviceBuffer, stream: Stream) -> None:
        batch, rows = self._batch, self._rows
        assert batch is not None
        assert rows is not None
        assert self._host is not None
        assert self._staged is not None
        staged = self._staged.slice(0, batch.nbytes)
        self._device.copy_to_device(staged, self._host.array[: batch.nbytes], stream=stream)
        self._transform.launch(staged, out, batch, stream=stream)
        if rows.finished:
            self._queue_finished(rows.finished, out, out.nbytes // batch.num, stream)

    def _queue_finished(
        self, finished: dict[int, NDArray[Any]], out: DeviceBuffer, row_bytes: int, stream: Stream
    ) -> None:
        """Queue the copies of the rows that were finished on the host, one for each run of them."""
        nbytes = len(finished) * row_bytes
        if self._finished is None or self._finished.nbytes < nbytes:
            self._finished = None
            self._finished = self._device.alloc_host(nbytes)
        array = self._finished.array
        end = 0
        for first, samples in _runs(finished):
            start = end
            for sample in samples:
                array[end : end + row_bytes] = sample.reshape(-1).view(np.uint8)
                end += row_bytes
            place = out.slice(first * row_bytes, end - start)
            self._device.copy_to_device(place, array[start:end], stream=stream)


def _recorded(stream: Stream) -> Event:
    """Return an event behind all that a stream has been given."""
    try:
        return stream.record()
    except BaseException:
        # Without an event nobody could wait for it later.
        with contextlib.suppress(SyncedMemoryError):
            stream.synchronize()
        raise


def _runs(rows: dict[int, NDArray[Any]]) -> Iterator[tuple[int, list[NDArray[Any]]]]:
    """Yield the number of the first row and all rows of each run of neighbours."""
    for _, run in groupby(enumerate(sorted(rows)), lambda pair: pair[1] - pair[0]):
        numbers = [number for _, number in run]
        yield numbers[0], [rows[number] for number in numbers]
