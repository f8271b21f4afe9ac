"""The priority of a GPU's streams: a number, or a name for the end of the GPU's range.

The scheduler takes the blocks of pending kernels from streams of higher priority first; what runs
is not interrupted. Copies do not go by it. Of what a feed's streams are given only the
transformation does: a short kernel, on which the next batch waits. So high is the default.
"""

from __future__ import annotations

import ctypes
from typing import Final, Literal, TypeAlias

from memory._cuda.driver import driver_function
from memory._errors import OptionValueError

StreamPriority: TypeAlias = int | Literal["high", "low"]

_INT_POINTER: Final = ctypes.POINTER(ctypes.c_int)


def priority_number(given: StreamPriority, *, device: str) -> int:
    """Return CUDA's number of a priority; with the device's context current.

    CUDA itself takes any number, and uses the nearest that there is.

    Args:
        given: What was asked for.
        device: Name of the device, for the error.

    Raises:
        OptionValueError: If the device has no such priority.
    """
    lowest, highest = _range()
    numbers = {"high": highest, "low": lowest}
    number = numbers.get(given) if isinstance(given, str) else given
    # The higher the priority, the lower its number.
    if type(number) is not int or not highest <= number <= lowest:
        raise OptionValueError(
            "stream_priority",
            expected=f"'high', 'low' or a number from {highest} (high) to {lowest} (low), which "
            f"{device} has",
            found=given,
        )
    return number


def _range() -> tuple[int, int]:
    """Return the numbers of the lowest and of the highest priority."""
    function = driver_function("cuCtxGetStreamPriorityRange", _INT_POINTER, _INT_POINTER)
    lowest, highest = ctypes.c_int(0), ctypes.c_int(0)
    if function is not None:
        function(ctypes.byref(lowest), ctypes.byref(highest))
    return lowest.value, highest.value
