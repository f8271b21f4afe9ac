"""How our own threads stay out of the CUDA graphs that others capture.

``torch.cuda.graph()`` and others capture in *global* mode. While such a capture runs, a call such
as cudaEventQuery or cudaMalloc from any thread is refused, and spoils the capture. A thread that
has exchanged its mode for *relaxed* is exempt: its calls neither fail nor do harm.
"""

from __future__ import annotations

import ctypes
import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


def stay_out_of_captures() -> None:
    """Let the calling thread's calls to CUDA neither spoil a capture nor be refused for one.

    Once on each thread of ours, with a device current. Never on a caller's thread: whoever captures
    there may rely on being stopped.
    """
    _exchange(_RELAXED)


@contextmanager
def out_of_captures() -> Iterator[None]:
    """Do so within a ``with`` block, on whatever thread: for a question that does no harm."""
    mode = _exchange(_RELAXED)
    try:
        yield
    finally:
        _exchange(mode)


def _exchange(mode: int) -> int:
    """Give the calling thread another mode; return the one that it had."""
    function = _driver_function()
    if function is None:
        return mode
    value = ctypes.c_int(mode)
    function(ctypes.byref(value))
    return value.value


@functools.cache
def _driver_function() -> Callable[[Any], int] | None:
    # CuPy does not wrap this one. The library is loaded already, so that its name finds it.
    try:
        function = ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):  # a driver older than CUDA 10.1, whose captures are no matter
        return None
    function.argtypes = [ctypes.POINTER(ctypes.c_int)]
    function.restype = ctypes.c_int
    return function
