"""How our own threads stay out of the CUDA graphs that others capture.

``torch.cuda.graph()`` and others capture in *global* mode. While such a capture runs, a call such
as cudaEventQuery or cudaMalloc from any thread is refused, and spoils the capture. A thread that
has exchanged its mode for *relaxed* is exempt: its calls neither fail nor do harm.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from memory._cuda.driver import driver_function

if TYPE_CHECKING:
    from collections.abc import Iterator

_INT_POINTER: Final = ctypes.POINTER(ctypes.c_int)
_RELAXED: Final = 2  # CU_STREAM_CAPTURE_MODE_RELAXED


def stay_out_of_captures() -> None:
    """Let the calling thread's calls to CUDA neither spoil a capture nor be refused for one.

    Once on each thread of ours, with a device current.
    """
    # Never on a caller's thread: a capture there may rely on such calls being refused.
    _exchange(_RELAXED)


@contextmanager
def out_of_captures() -> Iterator[None]:
    """Do so within a ``with`` block, on any thread: for a query that does no harm."""
    mode = _exchange(_RELAXED)
    try:
        yield
    finally:
        _exchange(mode)


def _exchange(mode: int) -> int:
    """Give the calling thread another mode; return the one that it had."""
    # None for a driver older than CUDA 10.1, whose captures are no matter.
    function = driver_function("cuThreadExchangeStreamCaptureMode", _INT_POINTER)
    if function is None:
        return mode
    value = ctypes.c_int(mode)
    function(ctypes.byref(value))
    return value.value
