"""What a DLPack capsule says of itself, also where no consumer at hand can read it."""

from __future__ import annotations

import ctypes
from typing import Any


class Tensor(ctypes.Structure):
    """DLTensor of the DLPack header."""

    capsule: Any

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )

    @classmethod
    def of(cls, capsule: Any) -> Tensor:
        """Return the tensor of a capsule, which it keeps."""
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
        is_versioned = "dltensor_versioned" in repr(capsule)
        name, start = (b"dltensor_versioned", 32) if is_versioned else (b"dltensor", 0)
        tensor = cls.from_address(get(capsule, name) + start)
        tensor.capsule = capsule
        return tensor
