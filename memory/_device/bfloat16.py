"""bfloat16, the upper half of a float32: the only module that imports ml_dtypes, whose type it is.

NumPy has no such type. With ml_dtypes' its arrays look and compute like any other, but two things
they cannot: no buffer (PEP 3118) has a name for the type, and neither has NumPy's DLPack. Whoever
needs the bits takes a view of uint16; for DLPack that view is exported, and then given the type's
name, which the protocol has.
"""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memory._errors import MissingPackageError

if TYPE_CHECKING:
    from numpy.typing import DTypeLike, NDArray

NAME: Final = "bfloat16"

BITS: Final = np.dtype(np.uint16)
"""What a value is viewed as where its bits are wanted."""

_KDL_UINT: Final = 1
_KDL_BFLOAT: Final = 4


def bfloat16() -> np.dtype[Any]:
    """Return the dtype, NumPy's to ml_dtypes' bfloat16.

    Raises:
        MissingPackageError: ml_dtypes is not installed.

    Example:
        >>> import memory
        >>> blob = memory.Blob((2,), memory.bfloat16())
        >>> blob.mutable_cpu_data()[:] = [1, 1 / 3]
        >>> blob.numpy().tolist()
        [1.0, 0.333984375]
    """
    try:
        import ml_dtypes  # noqa: PLC0415 - 10 ms that only those pay who use the type
    except ImportError as error:
        raise MissingPackageError("dtype bfloat16", package="ml_dtypes", extra=NAME) from error
    dtype: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return dtype


def dtype_of(dtype: DTypeLike) -> np.dtype[Any]:
    """Return a dtype, also by the name that NumPy knows only once ml_dtypes is imported.

    Raises:
        MissingPackageError: It is bfloat16, and ml_dtypes is not installed.
        TypeError: There is no such dtype.
    """
    return bfloat16() if isinstance(dtype, str) and dtype == NAME else np.dtype(dtype)


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Return whether a dtype is ml_dtypes' bfloat16; does not import it."""
    return dtype.kind == "V" and dtype.name == NAME


def rounded(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Round float32 or float64 to bfloat16, to nearest and even, once.

    Args:
        values: Any shape.
        dtype: bfloat16.
    """
    floats = values.astype(np.float32)
    # ml_dtypes rounds a double to a float first, and that again. Where the first rounding ended on
    # an even float, the neighbour on the value's side keeps the second from seeing a tie.
    bits = floats.view(np.uint32)
    is_off = (floats != values) & (bits & 1 == 0) & np.isfinite(values)
    towards = np.where(values > floats, np.float32(np.inf), np.float32(-np.inf))
    return np.where(is_off, np.nextafter(floats, towards), floats).astype(dtype)


_name_of = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(
    ("PyCapsule_GetName", ctypes.pythonapi)
)
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


class _Tensor(ctypes.Structure):
    """DLPack's DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
    )


class _VersionedHead(ctypes.Structure):
    """What stands before the tensor in DLPack's DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
    )


def named_bfloat16(capsule: Any) -> Any:
    """Give a DLPack capsule of uint16 that was not consumed yet the type bfloat16.

    Args:
        capsule: Made for this call, by NumPy or CuPy: of either version of the protocol.

    Returns:
        The same.
    """
    name = _name_of(capsule)
    offset = ctypes.sizeof(_VersionedHead) if name == b"dltensor_versioned" else 0
    tensor = _Tensor.from_address(_pointer_of(capsule, name) + offset)
    assert (tensor.code, tensor.bits, tensor.lanes) == (_KDL_UINT, 16, 1)
    tensor.code = _KDL_BFLOAT
    return capsule
