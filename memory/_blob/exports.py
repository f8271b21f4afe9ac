"""How a blob's data is handed to other libraries: as views, never as copies.

On the host that is an array whose base leads back to the memory. NumPy shortens a chain of ndarray
bases but stops at another kind of object: an array made from a lease (an object with
``__array_interface__``) keeps the lease alive through every slice, reshape, tensor and DLPack
capsule made of it. Where the device's memory is CUDA's, its side is handed out as well, by
``cupy()``, by DLPack and by ``__cuda_array_interface__``, whose consumers do hold the blob only: so
the blob keeps what it has given out in that way.

A blob offers ``__array__`` and ``__dlpack__`` and deliberately not ``__array_interface__``: with
that, the *blob* would be the base, and could be given other memory while the array is in use.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from memory._blob.data import BlobData
from memory._device.bfloat16 import BITS, is_bfloat16, named_bfloat16
from memory._errors import DtypeError, NotImplementedDeviceError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

    from memory._device.device import Device, DeviceBuffer
    from memory._shape import Dims

_DLPACK_HOST: Final = 1


class DeviceExporter(Protocol):
    """A device whose memory other libraries can use where it is."""

    @property
    def dlpack_device(self) -> tuple[int, int]:
        """DLPack's kind and number of the device."""
        ...

    def export_array(self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: Dims) -> Any:
        """View a buffer as a CuPy array, which keeps the buffer."""
        ...

    def export_interface(
        self, buffer: DeviceBuffer, dtype: np.dtype[Any], shape: Dims
    ) -> dict[str, Any]:
        """Describe a buffer by version 3 of the CUDA array interface, with the current stream."""
        ...

    def export_dlpack(
        self,
        buffer: DeviceBuffer,
        dtype: np.dtype[Any],
        shape: Dims,
        *,
        stream: Any,
        **wishes: Any,
    ) -> Any:
        """Export a buffer by DLPack, with the consumer's stream behind the current one."""
        ...


def exporter_of(device: Device) -> DeviceExporter | None:
    """Return a device as one whose memory can be exported; None if it cannot."""
    exporter: Any = device
    return exporter if hasattr(device, "export_dlpack") else None


class BlobExports(BlobData):
    """Views for NumPy, CuPy, DLPack and the CUDA array interface."""

    __slots__ = ()

    def numpy(self, *, writable: bool = True) -> NDArray[Any]:
        """View the data as a NumPy array.

        Args:
            writable: As :meth:`mutable_cpu_data`, waits for a push in flight, and the host has the
                newest bytes from here on; if not, a read-only view, as :meth:`cpu_data`.

        Returns:
            A view of the host's side, of the blob's shape and dtype.
        """
        return self.mutable_cpu_data() if writable else self.cpu_data()

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - NumPy's protocol
        # To be looked at must not push the device's copy out of date: hence read-only.
        return np.array(self.cpu_data(), dtype=dtype, copy=copy)

    def cupy(self, *, writable: bool = True) -> Any:
        """View the data as a CuPy array, on the calling thread's current stream.

        The stream is put behind the work that fills the device's side; nothing waits for it. The
        array keeps the memory for as long as it lives.

        Args:
            writable: As :meth:`mutable_gpu_data`, the device has the newest bytes from here on; if
                not, as :meth:`gpu_data`, and the array must not be written to, which CuPy cannot
                forbid.

        Raises:
            NotImplementedDeviceError: The device's memory is not CUDA's.
        """
        exporter = self._exporter("cupy")
        buffer = self.mutable_gpu_data() if writable else self.gpu_data()
        return exporter.export_array(buffer, self._dtype, self._shape)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """Describe the device's side as :meth:`cupy` does; absent where it is not CUDA's.

        Consumers hold the blob, so it keeps the memory for as long as it lives itself.

        Raises:
            DtypeError: The dtype is bfloat16, for which the protocol has no name.
        """
        exporter = exporter_of(self._device)
        if exporter is None:
            # What hasattr() asks for.
            raise AttributeError(f"a blob on device {self._device.name!r} has no CUDA memory")
        if is_bfloat16(self._dtype):
            # Not as if it were absent: consumers would then take a copy by way of the host.
            raise DtypeError(
                "__cuda_array_interface__, which has no name for bfloat16 as DLPack has",
                dtype=self._dtype.name,
                valid=("any other",),
            )
        buffer = self.mutable_gpu_data()
        if all(lent.ptr != buffer.ptr for lent in self._lent):
            self._lent += (buffer,)
        return exporter.export_interface(buffer, self._dtype, self._shape)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's name of the device if its memory is CUDA's, else of the host."""
        exporter = exporter_of(self._device)
        return (_DLPACK_HOST, 0) if exporter is None else exporter.dlpack_device

    def __dlpack__(
        self,
        *,
        stream: object = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Export the side that :meth:`__dlpack_device__` names; the capsule keeps the memory.

        As :meth:`mutable_gpu_data` or :meth:`mutable_cpu_data`, because consumers that know only
        the first version of the protocol take every tensor for writable.

        Args:
            stream: The consumer's, on a GPU; see DLPack.
            max_version: What the consumer understands.
            dl_device: Where it wants the data; the host is possible too.
            copy: Whether it wants a copy.
        """
        wishes = {"max_version": max_version, "dl_device": dl_device, "copy": copy}
        exporter = exporter_of(self._device)
        if exporter is not None and dl_device != (_DLPACK_HOST, 0):
            # On the consumer's stream, which then waits for what fills the memory, and for nothing
            # that is on the stream which happens to be current.
            theirs = None if stream == -1 else self._device.stream_from(stream or 0)
            with nullcontext() if theirs is None else self._device.use_stream(theirs):
                gpu = self.mutable_gpu_data()
                return exporter.export_dlpack(
                    gpu, self._dtype, self._shape, stream=stream, **wishes
                )
        array: Any = self.numpy()
        if is_bfloat16(self._dtype):
            return named_bfloat16(array.view(BITS).__dlpack__(**wishes))
        return array.__dlpack__(**wishes)

    def _exporter(self, operation: str) -> DeviceExporter:
        exporter = exporter_of(self._device)
        if exporter is None:
            raise NotImplementedDeviceError(
                self._device.name,
                operation=operation,
                missing="its memory is not CUDA's; use numpy(), or a device 'cuda:N'",
            )
        return exporter
