"""Open a CUDA device."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from memory._cuda.runtime import (
    _count,
    _runtime_error,
    _unavailable,
    _visible,
    runtime,
)
from memory._errors import DeviceError, DeviceOptionError, DeviceUnavailableError

if TYPE_CHECKING:
    from memory._cuda.device import CudaDevice


def cuda_ordinals() -> range:
    """Return the numbers of the GPUs that this process can use.

    Asks the driver; makes no context on any of them.

    Raises:
        DeviceUnavailableError: If there is none, with the reason and the cure.
    """
    return range(_count("cuda"))


def open_cuda(ordinal: int | None, **options: Any) -> CudaDevice:
    """Open a GPU; called by ``open_device``.

    Args:
        ordinal: Its number; None for the calling thread's current one.
        **options: Keyword arguments of ``CudaDevice``.

    Raises:
        DeviceUnavailableError: If it cannot be used, with the reason and the cure.
        DeviceOptionError: For an option that it does not take.
    """
    spec = "cuda" if ordinal is None else f"cuda:{ordinal}"
    count = _count(spec)
    try:
        if ordinal is None:
            ordinal = int(runtime.getDevice())
        elif ordinal >= count:
            raise DeviceUnavailableError(
                spec,
                reason=f"there is no GPU {ordinal}: this process sees {count}, "
                f"cuda:0 to cuda:{count - 1}{_visible()}",
                cure="give the number of one of them; they count from 0",
            )
        # Imported now: it takes what it needs from this module.
        from memory._cuda.device import CudaDevice  # noqa: PLC0415

        valid = tuple(inspect.signature(CudaDevice).parameters)[1:]
        unknown = tuple(name for name in options if name not in valid)
        if unknown:
            raise DeviceOptionError(spec, unknown=unknown, valid=valid)
        return CudaDevice(ordinal, **options)
    except _runtime_error() as error:
        raise _unavailable(spec, error) from error
    except DeviceError as error:
        raise _unavailable(spec, error.__cause__) from error
