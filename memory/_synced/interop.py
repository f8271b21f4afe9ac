"""How host memory is taken from, and handed to, other libraries: always as views, never as copies.

What comes in is the caller's own array, checked to be usable as it is. What goes out is an array
whose base leads back to that one. NumPy shortens a chain of ndarray bases but stops at another kind
of object: an array made from a lease (an object with ``__array_interface__``) keeps the lease alive
through every slice, reshape, tensor and DLPack capsule made of it.

Where the device's memory is CUDA's, its side is handed out as well, by ``cupy()``, by DLPack and by
``__cuda_array_interface__``, whose consumers do hold the blob only: so the blob keeps what it has
given out in that way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from memory._device.device import DeviceBuffer
from memory._errors import BufferMismatchError, DeviceMismatchError, ShapeError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory._device.device import Device
    from memory._shape import Dims


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


def host_bytes(operation: str, array: object, nbytes: int) -> NDArray[np.uint8]:
    """Check an array that is to become the host's side of something, and view its bytes.

    Args:
        operation: Who asks, for the error.
        array: Of any dtype without Python objects and of any shape; C-contiguous, aligned,
            writable, of exactly ``nbytes`` bytes.
        nbytes: Bytes wanted.

    Returns:
        A writable view, uint8, shape (nbytes,).

    Raises:
        BufferMismatchError: It is something else. There is no silent copy, which would take the
            writes that the caller expects in the array.
    """
    # carray: C-contiguous, aligned and writable, in one look-up.
    if (
        not isinstance(array, np.ndarray)
        or array.nbytes != nbytes
        or not array.flags.carray
        or array.dtype.hasobject
    ):
        raise BufferMismatchError(
            operation,
            expected=f"a writable, aligned, C-contiguous array of {nbytes} bytes",
            found=describe(array),
            cure="it is used in place: pass numpy.ascontiguousarray(...) or a copy if it need not "
            "be that very memory",
        )
    return array.reshape(-1).view(np.uint8, np.ndarray)


def check_typed_array(operation: str, array: object, *, dtype: np.dtype[Any], shape: Dims) -> None:
    """Refuse what is no array of a dtype and shape, or of the same elements along one axis.

    Raises:
        BufferMismatchError: It is something else.
    """
    flat = (math.prod(shape),)
    if (
        not isinstance(array, np.ndarray)
        or array.dtype != dtype
        or array.shape not in (shape, flat)
    ):
        raise BufferMismatchError(
            operation, expected=f"{dtype} of shape {shape} or {flat}", found=describe(array)
        )


def device_buffer(operation: str, buffer: object, nbytes: int, device: Device) -> DeviceBuffer:
    """Check a buffer that is to become the device's side of something.

    Args:
        operation: Who asks, for the error.
        buffer: A DeviceBuffer of exactly ``nbytes`` bytes.
        nbytes: Bytes wanted.
        device: Where it has to be.

    Returns:
        The buffer.

    Raises:
        BufferMismatchError: It is something else.
        DeviceMismatchError: It is another device's.
    """
    if not isinstance(buffer, DeviceBuffer) or buffer.nbytes != nbytes:
        raise BufferMismatchError(
            operation, expected=f"a DeviceBuffer of {nbytes} bytes", found=repr(buffer)
        )
    if buffer.device is not device:
        raise DeviceMismatchError("buffer", expected=device.name, found=repr(buffer.device))
    return buffer


def describe(array: object) -> str:
    """Say in words what was given where an array of a certain kind was wanted."""
    if not isinstance(array, np.ndarray):
        return f"an object of type {type(array).__name__}"
    flags = array.flags
    faults = [
        fault
        for fault, found in (
            ("read-only", not flags.writeable),
            ("misaligned", not flags.aligned),
            ("not C-contiguous", not flags.c_contiguous),
        )
        if found
    ]
    kind = f"{array.dtype} of shape {array.shape}, {array.nbytes} bytes"
    return ", ".join([kind, *faults])


def typed_view(data: NDArray[np.uint8], dtype: np.dtype[Any], shape: Dims) -> NDArray[Any]:
    """View the start of some bytes as an array.

    Args:
        data: uint8, at least as many bytes as the array needs.
        dtype: Of the array.
        shape: Of the array.

    Returns:
        A view, read-only where ``data`` is.

    Raises:
        ShapeError: NumPy cannot express the shape, which happens to shapes with a 0 in them whose
            other dimensions multiply to more bytes than can be addressed.
    """
    try:
        # One call instead of a slice, a view and a reshape, which cost three times as much.
        return np.ndarray(shape, dtype, data)
    except ValueError as error:
        raise ShapeError(f"shape {shape}: NumPy has no such array: {error}", shape=shape) from error


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """View an array without the right to write."""
    view = array.view()
    view.flags.writeable = False
    return view
