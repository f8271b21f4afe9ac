"""What every device asks of the arguments it is given, before anything is queued."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final, Protocol, SupportsIndex

import numpy as np

from memory._errors import BufferMismatchError, DtypeError, OptionValueError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

FLOATS: Final = (np.dtype(np.float32), np.dtype(np.float64))
"""The dtypes on which devices compute, as Caffe's blobs do."""


class HasBytes(Protocol):
    """A buffer, as far as its size goes."""

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        ...


def check_nbytes(what: str, nbytes: SupportsIndex) -> int:
    """Return a number of bytes as an int.

    Raises:
        BufferMismatchError: If it is negative.
        TypeError: If it is no integer.
    """
    nbytes = operator.index(nbytes)
    if nbytes < 0:
        raise BufferMismatchError(what, expected="0 bytes or more", found=f"{nbytes} bytes")
    return nbytes


def check_host_array(what: str, array: object, *, nbytes: int, writable: bool = False) -> None:
    """Refuse a host array that is not one plain run of ``nbytes`` bytes.

    Args:
        what: Name of the argument.
        array: Expected to be uint8 and C-contiguous, of any shape.
        nbytes: Its expected size in bytes.
        writable: Whether it is going to be written to.

    Raises:
        BufferMismatchError: If it is anything else.
    """
    if not isinstance(array, np.ndarray) or array.dtype != np.uint8:
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise BufferMismatchError(
            what, expected="an array of uint8", found=str(kind), cure="pass array.view(np.uint8)"
        )
    if not array.flags.c_contiguous:
        raise BufferMismatchError(
            what,
            expected="a C-contiguous array",
            found=f"strides {array.strides} for shape {array.shape}",
            cure="pass np.ascontiguousarray(array), which copies",
        )
    if array.nbytes != nbytes:
        raise BufferMismatchError(
            what,
            expected=f"{nbytes} bytes, the size of the other end",
            found=f"{array.nbytes} bytes",
            cure="copy into or out of a slice",
        )
    if writable and not array.flags.writeable:
        raise BufferMismatchError(what, expected="a writable array", found="a read-only one")


def check_equal_sizes(what: str, buffer: HasBytes, *, other: HasBytes) -> None:
    """Refuse two ends of unequal sizes.

    Raises:
        BufferMismatchError: If ``buffer`` has not the size of ``other``.
    """
    if buffer.nbytes != other.nbytes:
        raise BufferMismatchError(
            what,
            expected=f"{other.nbytes} bytes, the size of the other end",
            found=f"{buffer.nbytes} bytes",
            cure="use a slice",
        )


def check_byte(what: str, value: int) -> None:
    """Refuse what is no byte.

    Raises:
        OptionValueError: If ``value`` is not within 0 and 255.
    """
    if not 0 <= value <= 255:
        raise OptionValueError(what, expected="a byte, 0 to 255", found=value)


def check_floats(operation: str, dtype: DTypeLike, buffer: HasBytes) -> np.dtype[Any]:
    """Return the dtype of a buffer on which a device is to compute.

    Args:
        operation: Name of the computation.
        dtype: Expected to be one of ``FLOATS``.
        buffer: Expected to hold a whole number of them.

    Raises:
        DtypeError: If it is another dtype.
        BufferMismatchError: If the buffer ends within an item.
    """
    found = np.dtype(dtype)
    if found not in FLOATS:
        raise DtypeError(operation, dtype=str(found), valid=tuple(str(valid) for valid in FLOATS))
    if buffer.nbytes % found.itemsize:
        raise BufferMismatchError(
            operation,
            expected=f"a multiple of {found.itemsize} bytes, the size of one {found}",
            found=f"{buffer.nbytes} bytes",
        )
    return found


def describe_owner(found: object) -> str:
    """Say whose a buffer or a stream is, for a DeviceMismatchError."""
    device = getattr(found, "device", None)
    return f"a {type(found).__name__}" if device is None else repr(device)


def address_of(array: NDArray[Any]) -> int:
    """Return where an array's bytes begin; takes half the time of ``array.ctypes.data``."""
    address: int = array.__array_interface__["data"][0]
    return address
