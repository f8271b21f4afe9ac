"""Open a CUDA device."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from memory._cuda.runtime import count_gpus, describe_visible, runtime, runtime_error, unavailable
from memory._errors import DeviceError, DeviceUnavailableError
from memory._open_device import refuse_options

if TYPE_CHECKING:
    from memory._cuda.device import CudaDevice


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
    count = count_gpus(spec)
    try:
        if ordinal is None:
            ordinal = int(runtime.getDevice())
        elif ordinal >= count:
            raise DeviceUnavailableError(
                spec,
                reason=f"there is no GPU {ordinal}: this process sees {count}, "
                f"cuda:0 to cuda:{count - 1}{describe_visible()}",
                cure="give the number of one of them; they count from 0",
            )
        # Imported now: it takes what it needs from this module.
        from memory._cuda.device import CudaDevice  # noqa: PLC0415

        valid = tuple(inspect.signature(CudaDevice).parameters)[1:]
        refuse_options(spec, options, valid=valid)
        return CudaDevice(ordinal, **options)
    except runtime_error() as error:
        raise unavailable(spec, error) from error
    except DeviceError as error:
        raise unavailable(spec, error.__cause__) from error
