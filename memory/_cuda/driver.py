"""The few functions of CUDA's driver that CuPy does not wrap."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@functools.cache
def driver_function(name: str, *argument_types: Any) -> Callable[..., int] | None:
    """Return a function of the driver that is loaded; None for one that is too old to have it.

    Args:
        name: Its name.
        *argument_types: Types of its arguments, of ctypes; it returns a CUresult.
    """
    # CuPy has loaded the library already, so that its name finds it.
    try:
        function = getattr(ctypes.CDLL("libcuda.so.1"), name)
    except (OSError, AttributeError):
        return None
    function.argtypes = list(argument_types)
    function.restype = ctypes.c_int
    call: Callable[..., int] = function
    return call
