"""What a slot's memory is: on the host, where that is all there is, or on a device.

Memory grows with the largest batch and never shrinks.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from prefetch._ring.lease import describe_array, export_array

if TYPE_CHECKING:
    import numpy.typing as npt

    from memory import Blob, Device, Event, HostBuffer, Stream
    from prefetch._ring.lease import Lease
    from prefetch._ring.push_block import HostBlock
    from prefetch._transform.label_form import Field
    from prefetch._transform.staged_rows import StagedRows


class SlotMemory(Protocol):
    """What every slot's memory has in common."""

    @property
    def blocks(self) -> tuple[object, ...]:
        """What keeps the memory that the consumer is handed."""
        ...

    @property
    def host_bytes(self) -> int:
        """Bytes of host memory that it owns; what is lent to it is the ring's."""
        ...

    @property
    def device_bytes(self) -> int:
        """Bytes of device memory that it owns."""
        ...

    def drop(self) -> None:
        """Free the memory; what was exported, and what is in flight, keeps it."""
        ...

    def field_arrays(self, fields: tuple[Field, ...], *, rows: int) -> list[npt.NDArray[Any]]:
        """Return where the batch's other fields are to be filled in, an array for each.

        Args:
            fields: As for `Slot.bind`.
            rows: The batch's samples.
        """
        ...

    def field_blobs(self, lease: Lease, filled: Event) -> dict[str, Blob]:
        """Return the other fields of a batch that was pushed, by name; none where it was not.

        Args:
            lease: Held by the device's side.
            filled: The event behind the copy.
        """
        ...


class DeviceMemory(SlotMemory, Protocol):
    """A slot's memory on a device: filled by way of a host block that is lent for one batch."""

    def bind(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        label_dtype: np.dtype[Any] | None,
        host: HostBlock,
        *,
        most_rows: int,
        fields: tuple[Field, ...] = (),
    ) -> tuple[npt.NDArray[Any] | StagedRows, npt.NDArray[Any] | None]:
        """Return where a batch's data and labels are to be filled in; see `Slot.bind`."""
        ...

    def push(self, lease: Lease, stream: Stream, events: list[Event]) -> tuple[Blob, Blob | None]:
        """Queue the device's work; return the batch's data and labels.

        Args:
            lease: Held by all that is made of the device's memory, and by nothing in flight.
            stream: Does the work.
            events: Gets the event behind all that was queued, also where the rest could not be.
        """
        ...

    def leave(self) -> None:
        """Leave what was lent for the batch."""
        ...


class HostMemory:
    """Host memory for data and labels; each is allocated when it is first needed.

    Args:
        device: Whose host memory it is.
    """

    __slots__ = ("_addresses", "_data", "_described", "_device", "_labels", "_shape")

    def __init__(self, device: Device) -> None:
        self._device = device
        self._data: HostBuffer | None = None
        self._labels: HostBuffer | None = None
        self._addresses = [0, 0]
        # The last batch's arrays: mostly the next one's are the same.
        self._shape: tuple[int, ...] | None = None
        self._described: list[dict[str, Any]] = []

    @property
    def blocks(self) -> tuple[object, ...]:
        """What keeps the memory."""
        return self._data, self._labels

    @property
    def host_bytes(self) -> int:
        """Bytes of both."""
        buffers = self._data, self._labels
        return sum(buffer.nbytes for buffer in buffers if buffer is not None)

    @property
    def device_bytes(self) -> int:
        """None."""
        return 0

    def drop(self) -> None:
        """Free the memory; what was exported keeps it."""
        self._data = self._labels = self._shape = None

    def field_arrays(self, fields: tuple[Field, ...], *, rows: int) -> list[npt.NDArray[Any]]:
        """Return memory of the batch's own for its other fields, which are small."""
        return [np.empty((rows, *field.row_shape), field.dtype) for field in fields]

    def field_blobs(self, _lease: Lease, _filled: Event) -> dict[str, Blob]:
        """Return none: nothing is pushed."""
        return {}

    def bind(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        label_dtype: np.dtype[Any] | None,
        lease: Lease,
        *,
        most_rows: int,
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any] | None]:
        """Return writable arrays over the memory that hold ``lease``; see `Slot.bind`."""
        if shape != self._shape:
            self._describe(shape, dtype, label_dtype, most_rows=most_rows)
        host, labels, described = self._data, self._labels, self._described
        assert host is not None
        data = export_array(host, lease, described[0], dtype)
        if label_dtype is None:
            return data, None
        assert labels is not None
        return data, export_array(labels, lease, described[1], label_dtype)

    def _describe(
        self,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        label_dtype: np.dtype[Any] | None,
        *,
        most_rows: int,
    ) -> None:
        """Have memory for a batch, and describe its arrays; types are always the same."""
        rows, self._shape = shape[0], None
        host = self._data
        nbytes = math.prod(shape) * dtype.itemsize
        if host is None or host.nbytes < nbytes:
            # The old block is dropped first, with all references to it: never both at once.
            host = self._data = None
            self._data = self._allocate(0, nbytes // rows * max(rows, most_rows))
        described = [describe_array(self._addresses[0], shape, dtype)]
        if label_dtype is not None:
            host = self._labels
            if host is None or host.nbytes < rows * label_dtype.itemsize:
                host = self._labels = None
                self._labels = self._allocate(1, label_dtype.itemsize * max(rows, most_rows))
            described.append(describe_array(self._addresses[1], (rows,), label_dtype))
        self._shape, self._described = shape, described

    def _allocate(self, number: int, nbytes: int) -> HostBuffer:
        buffer = self._device.alloc_host(nbytes)
        self._addresses[number] = buffer.array.__array_interface__["data"][0]
        return buffer
