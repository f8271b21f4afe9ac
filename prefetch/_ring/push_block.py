"""Data and labels of a batch in one block, so that one copy takes all of it to the device.

The block on the host is pinned and lent to a slot while its batch is filled and copied; the ring
has a few of them. The one on the device is the slot's own, since a batch waits there for its
consumer, who may hold it. Data that is asked for on the host is copied back from the device; the
labels, which are small, have a copy there from the start.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memory import SyncedMemoryError
from prefetch._ring.batch_blob import BatchBlob
from prefetch._ring.lease import DeviceHold

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memory import Blob, Device, DeviceBuffer, Event, HostBuffer, Stream
    from prefetch._ring.lease import Lease
    from prefetch._transform.label_form import Field

_ALIGNMENT: Final = 256  # of what CUDA allocates; XLA takes no less


def labels_at(data_bytes: int) -> int:
    """Return where the labels begin, in bytes from the start."""
    return _align(data_bytes)


def block_bytes(
    data_bytes: int, label_bytes: int, fields: tuple[Field, ...] = (), *, rows: int = 0
) -> int:
    """Return the size of a block.

    Args:
        data_bytes: Of its data.
        label_bytes: Of its labels.
        fields: What it has besides, each behind the other.
        rows: Its samples.
    """
    nbytes = labels_at(data_bytes) + label_bytes if label_bytes else data_bytes
    for field in fields:
        nbytes = _align(nbytes) + rows * field.row_bytes
    return nbytes


def _align(nbytes: int) -> int:
    return -(-nbytes // _ALIGNMENT) * _ALIGNMENT


class HostBlock:
    """Pinned memory for a batch; grows, never shrinks.

    It is filled again only after all copies from it have run.

    Args:
        device: Whose pinned memory it is.
    """

    __slots__ = ("_device", "_finished", "_staged")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._staged: HostBuffer | None = None
        self._finished: HostBuffer | None = None

    @property
    def nbytes(self) -> int:
        """Bytes that it has now."""
        return sum(buffer.nbytes for buffer in (self._staged, self._finished) if buffer is not None)

    def staged(self, nbytes: int, *, room: int) -> NDArray[np.uint8]:
        """Return the bytes that one copy takes to the device.

        Args:
            nbytes: How many.
            room: How many there are to be where memory must be allocated.
        """
        if self._staged is None or self._staged.nbytes < nbytes:
            self._staged = None  # the old memory goes first: never both
            self._staged = self._device.alloc_host(max(nbytes, room))
        return self._staged.array[:nbytes]

    def finished(self, nbytes: int) -> NDArray[np.uint8]:
        """Return as many bytes beside them, for rows that the host has finished."""
        if self._finished is None or self._finished.nbytes < nbytes:
            self._finished = None
            self._finished = self._device.alloc_host(nbytes)
        return self._finished.array[:nbytes]

    def drop(self) -> None:
        """Free the memory; copies in flight keep it."""
        self._staged = self._finished = None


class DeviceBlock:
    """The same batch's block on the device; grows, never shrinks.

    Args:
        device: Whose memory it is.

    Attributes:
        buffer: Its memory; None before the first batch.
    """

    __slots__ = ("_device", "_host", "_labels", "_labels_at", "_more", "buffer")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._host: NDArray[np.uint8] | None = None
        self._labels: NDArray[Any] | None = None
        self._labels_at = 0
        self._more: list[tuple[str, int, NDArray[Any]]] = []  # name, where it begins, values
        self.buffer: DeviceBuffer | None = None

    def bind(
        self,
        host: HostBlock,
        data_bytes: int,
        label_dtype: np.dtype[Any] | None,
        *,
        rows: int,
        most_data_bytes: int,
        most_rows: int,
        fields: tuple[Field, ...] = (),
    ) -> tuple[NDArray[np.uint8], NDArray[Any] | None]:
        """Return where a batch's data and labels are to be filled in.

        Args:
            host: What is lent to the batch.
            data_bytes: Bytes of its data.
            label_dtype: Element type of its labels; None for no labels.
            rows: Its samples.
            most_data_bytes: Bytes of the largest batch's data: there is room for it at once.
            most_rows: Samples of that.
            fields: What it has besides; see `field_arrays`.
        """
        self.leave()
        label_bytes = 0 if label_dtype is None else label_dtype.itemsize
        nbytes = block_bytes(data_bytes, rows * label_bytes, fields, rows=rows)
        room = block_bytes(most_data_bytes, most_rows * label_bytes, fields, rows=most_rows)
        self._host = host.staged(nbytes, room=room)
        if self.buffer is None or self.buffer.nbytes < nbytes:
            self.buffer = None
            self.buffer = self._device.alloc_device(max(nbytes, room))
        if label_dtype is not None:
            self._labels_at = at = labels_at(data_bytes)
            end = at + rows * label_bytes
            self._labels = self._host[at:end].view(label_dtype)
            for field in fields:
                at = _align(end)
                end = at + rows * field.row_bytes
                values = self._host[at:end].view(field.dtype).reshape(rows, *field.row_shape)
                self._more.append((field.name, at, values))
        return self._host[:data_bytes], self._labels

    def field_arrays(self) -> list[NDArray[Any]]:
        """Return where the fields that were asked for are to be filled in."""
        return [values for _, _, values in self._more]

    def copy(self, stream: Stream) -> DeviceBuffer:
        """Queue the copy; return what it fills."""
        assert self._host is not None
        assert self.buffer is not None
        whole = self.buffer.slice(0, self._host.nbytes)
        self._device.copy_to_device(whole, self._host, stream=stream)
        return whole

    def label_blob(self, lease: Lease, filled: Event) -> Blob | None:
        """Return the labels on both sides; None where there are none.

        Args:
            lease: Held by the device's side.
            filled: The event behind the copy.
        """
        labels = self._labels
        return None if labels is None else self._blob(labels, self._labels_at, lease, filled)

    def field_blobs(self, lease: Lease, filled: Event) -> dict[str, Blob]:
        """Return the other fields, likewise."""
        return {name: self._blob(values, at, lease, filled) for name, at, values in self._more}

    def _blob(self, values: NDArray[Any], start: int, lease: Lease, filled: Event) -> Blob:
        assert self.buffer is not None
        hold = DeviceHold(self.buffer, lease)
        blob = BatchBlob(values.shape, dtype=values.dtype, device=self._device)
        there = self.buffer.slice(start, values.nbytes, owner=hold)
        blob.set_gpu_data(there, filled=filled, host=values.copy())
        return blob

    def leave(self) -> None:
        """Leave what was lent."""
        self._host = self._labels = None
        self._more = []

    def drop(self) -> None:
        """Free all memory; what was exported, and what is in flight, keeps it."""
        self.leave()
        self.buffer = None


class PushedMemory:
    """A slot's device memory where the host transforms. Not thread-safe.

    Args:
        device: Whose memory it is.
    """

    __slots__ = ("_block", "_data", "_device")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._block = DeviceBlock(device)
        self._data: NDArray[Any] | None = None

    @property
    def blocks(self) -> tuple[object, ...]:
        """What keeps the device's memory."""
        return (self._block.buffer,)

    @property
    def host_bytes(self) -> int:
        """Return 0: what is lent is the ring's."""
        return 0

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory."""
        return 0 if self._block.buffer is None else self._block.buffer.nbytes

    def bind(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        label_dtype: np.dtype[Any] | None,
        host: HostBlock,
        *,
        most_rows: int,
        fields: tuple[Field, ...] = (),
    ) -> tuple[NDArray[Any], NDArray[Any] | None]:
        """Return where a batch's data and labels are to be filled in; see `Slot.bind`."""
        self.leave()
        rows, row_bytes = shape[0], int(np.prod(shape[1:], dtype=np.int64)) * dtype.itemsize
        most_rows = max(rows, most_rows)
        data, labels = self._block.bind(
            host,
            rows * row_bytes,
            label_dtype,
            rows=rows,
            most_data_bytes=most_rows * row_bytes,
            most_rows=most_rows,
            fields=fields,
        )
        self._data = data.view(dtype).reshape(shape)
        return self._data, labels

    def push(self, lease: Lease, stream: Stream, events: list[Event]) -> tuple[Blob, Blob | None]:
        """Queue the copy; return the batch's data and labels; see `DeviceMemory`."""
        data = self._data
        assert data is not None
        filled = queue_work(lambda: self._block.copy(stream), stream, events)
        assert self._block.buffer is not None
        hold = DeviceHold(self._block.buffer, lease)
        blob = BatchBlob(data.shape, dtype=data.dtype, device=self._device)
        there = self._block.buffer.slice(0, data.nbytes, owner=hold)
        blob.set_gpu_data(there, filled=filled)
        return blob, self._block.label_blob(lease, filled)

    def field_arrays(self, _fields: tuple[Field, ...], *, rows: int) -> list[NDArray[Any]]:  # noqa: ARG002
        """Return where the batch's other fields are to be filled in; `bind` was told which."""
        return self._block.field_arrays()

    def field_blobs(self, lease: Lease, filled: Event) -> dict[str, Blob]:
        """Return the batch's other fields; see `SlotMemory`."""
        return self._block.field_blobs(lease, filled)

    def leave(self) -> None:
        """Leave what was lent for the batch."""
        self._block.leave()
        self._data = None

    def drop(self) -> None:
        """Free all memory; what was exported, and what is in flight, keeps it."""
        self._block.drop()
        self._data = None


def queue_work(queue: Callable[[], object], stream: Stream, events: list[Event]) -> Event:
    """Queue work; return the event behind it.

    Args:
        queue: Queues it.
        stream: Does it.
        events: Gets the event, also where only some of the work could be queued.
    """
    try:
        queue()
    except BaseException:
        with contextlib.suppress(SyncedMemoryError):
            events.append(_record(stream))
        raise
    event = _record(stream)
    events.append(event)
    return event


def _record(stream: Stream) -> Event:
    """Return an event behind all that a stream has been given."""
    try:
        return stream.record()
    except BaseException:
        # Without an event there is nothing to wait for later.
        with contextlib.suppress(SyncedMemoryError):
            stream.synchronize()
        raise
