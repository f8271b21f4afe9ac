"""The bytes of a blob's data and diff, on the host and on the device, in its shape and dtype."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory._blob.memories import BlobMemories
from memory._synced.foreign_buffers import check_typed_array
from memory._synced.views import read_only, typed_view

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from memory._device.device import DeviceBuffer, Stream
    from memory._device.event import Event
    from memory._synced.sides import PushEnds


class BlobData(BlobMemories):
    """Caffe's accessors: each reaches one side of the data or the diff and moves its head."""

    __slots__ = ()

    def cpu_data(self) -> NDArray[Any]:
        """Read the data on the host; see :meth:`SyncedMemory.cpu_data`.

        Returns:
            A read-only view of the blob's shape and dtype.
        """
        array = self._array
        if array is not None:
            return read_only(array)
        return self._shaped_view(self.data.cpu_data())

    def mutable_cpu_data(self) -> NDArray[Any]:
        """Read and write the data on the host; see :meth:`SyncedMemory.mutable_cpu_data`.

        Returns:
            A writable view of the blob's shape and dtype.
        """
        array = self._array
        if array is not None:
            return array.view()
        return self._shaped_view(self.data.mutable_cpu_data())

    def overwrite_cpu_data(self) -> NDArray[Any]:
        """Write all of the data on the host; see :meth:`SyncedMemory.overwrite_cpu_data`.

        Values beyond a shape that has shrunk are kept, at the price of the copy that is otherwise
        saved.

        Returns:
            A writable view of the blob's shape and dtype, whose contents are unspecified.
        """
        whole = self.data.size == self.nbytes
        return self._shaped_view(
            self.data.overwrite_cpu_data() if whole else self.data.mutable_cpu_data()
        )

    def gpu_data(self) -> DeviceBuffer:
        """Read the data on the device; see :meth:`SyncedMemory.gpu_data`.

        Returns:
            ``nbytes`` bytes, in row-major order, not to be written to.
        """
        return self._shaped_buffer(self.data.gpu_data())

    def mutable_gpu_data(self) -> DeviceBuffer:
        """Read and write the data on the device; see :meth:`SyncedMemory.mutable_gpu_data`.

        Returns:
            ``nbytes`` bytes, in row-major order.
        """
        return self._shaped_buffer(self.data.mutable_gpu_data())

    def overwrite_gpu_data(self) -> DeviceBuffer:
        """Write all of the data on the device; see :meth:`SyncedMemory.overwrite_gpu_data`.

        Values beyond a shape that has shrunk are kept, at the price of the copy that is otherwise
        saved.

        Returns:
            ``nbytes`` bytes, in row-major order, whose contents are unspecified.
        """
        whole = self.data.size == self.nbytes
        return self._shaped_buffer(
            self.data.overwrite_gpu_data() if whole else self.data.mutable_gpu_data()
        )

    def cpu_diff(self) -> NDArray[Any]:
        """Read the diff on the host, as :meth:`cpu_data`."""
        return self._shaped_view(self.diff.cpu_data())

    def mutable_cpu_diff(self) -> NDArray[Any]:
        """Read and write the diff on the host, as :meth:`mutable_cpu_data`."""
        return self._shaped_view(self.diff.mutable_cpu_data())

    def gpu_diff(self) -> DeviceBuffer:
        """Read the diff on the device, as :meth:`gpu_data`."""
        return self._shaped_buffer(self.diff.gpu_data())

    def mutable_gpu_diff(self) -> DeviceBuffer:
        """Read and write the diff on the device, as :meth:`mutable_gpu_data`."""
        return self._shaped_buffer(self.diff.mutable_gpu_data())

    def set_cpu_data(self, array: NDArray[Any]) -> None:
        """Use the caller's array as the host's side of the data; see SyncedMemory.set_cpu_data.

        If the blob has shrunk, its memories are replaced by ones of exactly its size, and the diff
        is lost, as in Caffe.

        Args:
            array: Of the blob's dtype; of the blob's shape, or of one axis of all its elements;
                C-contiguous, aligned, writable.

        Raises:
            BufferMismatchError: It is something else.
            NoDataError: The blob was never given a shape.
            DeviceError: The push in flight had failed.
        """
        data = self.data
        check_typed_array("set_cpu_data", array, dtype=self._dtype, shape=self._shape)
        if data.size == self.nbytes:
            data.set_cpu_data(array)
        else:
            self._replace(data, lambda fresh: fresh.set_cpu_data(array))

    def set_gpu_data(
        self,
        buffer: DeviceBuffer,
        *,
        filled: Event | None = None,
        host: NDArray[Any] | None = None,
    ) -> None:
        """Use the caller's buffer as the device's side of the data; see SyncedMemory.set_gpu_data.

        If the blob has shrunk, its memories are replaced by ones of exactly its size, and the diff
        is lost, as in Caffe.

        Args:
            buffer: Of the blob's device, exactly ``nbytes`` bytes.
            filled: Passes when the work that fills it has run.
            host: The same bytes on the host.

        Raises:
            NoDataError: The blob was never given a shape.
            SyncedMemoryError: What :meth:`SyncedMemory.set_gpu_data` raises.
        """
        data = self.data
        if data.size == self.nbytes:
            data.set_gpu_data(buffer, filled=filled, host=host)
        else:
            self._replace(data, lambda fresh: fresh.set_gpu_data(buffer, filled=filled, host=host))

    def async_gpu_push(self, stream: Stream, *, ends: PushEnds | None = None) -> None:
        """Start to copy the data to the device; see :meth:`SyncedMemory.async_gpu_push`."""
        self.data.async_gpu_push(stream, ends=ends)

    @property
    def push_event(self) -> Event | None:
        """The event of the data's push or filling in flight; see SyncedMemory.push_event."""
        return self.data.push_event

    def _shaped_view(self, data: NDArray[np.uint8]) -> NDArray[Any]:
        return typed_view(data, self._dtype, self._shape)

    def _shaped_buffer(self, buffer: DeviceBuffer) -> DeviceBuffer:
        return buffer if buffer.nbytes == self.nbytes else buffer.slice(0, self.nbytes)
