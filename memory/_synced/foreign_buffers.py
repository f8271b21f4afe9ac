"""Arrays and buffers of the caller's that become a side of a memory: checked, used in place."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from memory._device.device import DeviceBuffer
from memory._errors import BufferMismatchError, DeviceMismatchError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory._device.device import Device
    from memory._shape import Dims


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
    return check_host_array(operation, array, nbytes).reshape(-1).view(np.uint8, np.ndarray)


def check_host_array(operation: str, array: object, nbytes: int) -> NDArray[Any]:
    """Check an array as `host_bytes` does, and return it.

    Raises:
        BufferMismatchError: It is something else.
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
    return array


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
