"""CuPy, and through it CUDA, where both can be used: the only module that imports CuPy.

Importing this module makes no CUDA call, nor does importing CuPy, so it is safe before a fork. What
the other modules of the CUDA device need of CuPy they take from here, after ``open_cuda`` has found
a GPU.

Every way in which there can be no usable GPU has a message and a cure of its own.
"""

from __future__ import annotations

import errno
import os
from typing import Any, Final

from memory._errors import DeviceUnavailableError
from memory.wording import pip_install

# No sign of a missing GPU: there are too many open files, or there is no memory.
_NO_MORE: Final = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

_import_error: ImportError | OSError | None = None
try:
    import cupy as cupy  # noqa: PLC0414 - an explicit re-export, for the modules next to this one
except (ImportError, OSError) as error:  # CuPy, a library that it needs, the folder of its cache
    if isinstance(error, OSError) and error.errno in _NO_MORE:
        raise
    cupy = None
    # Without its traceback, whose frames would keep the first caller's objects alive.
    _import_error = error.with_traceback(None)


runtime: Any = None if cupy is None else cupy.cuda.runtime
"""CUDA's runtime API as CuPy offers it; its calls release the GIL wherever they may wait."""

# Numbers of cudaError_t, which CuPy does not name for Python.
OUT_OF_MEMORY: Final = 2
FORKED: Final = 3
NOT_READY: Final = 600
CAPTURE_ERRORS: Final = range(900, 909)
_STUB_LIBRARY: Final = 34
_INSUFFICIENT_DRIVER: Final = 35
_DEVICES_UNAVAILABLE: Final = 46
_NO_DEVICE: Final = 100

ASK_AGAIN_S: Final = 0.05
"""After which a refused call is tried again: a capture takes milliseconds to seconds."""

_USE_CPU: Final = "use device 'cpu' on a machine without a GPU"


def is_capture_error(error: BaseException | None) -> bool:
    """Return whether CUDA refused a call because somebody captures a graph: no harm was done."""
    while error is not None:
        if getattr(error, "status", None) in CAPTURE_ERRORS:
            return True
        error = error.__cause__
    return False


def unavailable(spec: str, error: Any) -> DeviceUnavailableError:
    """Say why the first calls to CUDA failed, and what to do about it."""
    reason, cure = _explain(error)
    return DeviceUnavailableError(spec, reason=reason, cure=cure)


def count_gpus(spec: str) -> int:
    if cupy is None:
        raise _without_cupy(spec) from _import_error
    try:
        # Not cupy.cuda.is_available(): it swallows the reason, and keeps its answer for ever.
        count = int(runtime.getDeviceCount())
    except runtime_error() as error:
        raise unavailable(spec, error) from error
    if count == 0:
        raise DeviceUnavailableError(
            spec, reason=f"there is no GPU{describe_visible()}", cure=_USE_CPU
        )
    return count


def runtime_error() -> type[Exception]:
    kind: type[Exception] = runtime.CUDARuntimeError
    return kind


def _without_cupy(spec: str) -> DeviceUnavailableError:
    if isinstance(_import_error, OSError):
        return DeviceUnavailableError(
            spec,
            reason=f"CuPy makes a folder for its cache and cannot: {_import_error}",
            cure="let the environment variable CUPY_CACHE_DIR name a folder that can be written",
        )
    if isinstance(_import_error, ModuleNotFoundError) and _import_error.name == "cupy":
        reason = "CuPy is not installed"
    else:
        # CuPy puts a page of advice about its own installation around the cause.
        reason = (
            f"CuPy cannot be imported: {getattr(_import_error, '__cause__', None) or _import_error}"
        )
    return DeviceUnavailableError(
        spec,
        reason=reason,
        cure="install ringfeed[cuda13] for a driver that supports CUDA 13, or ringfeed[cuda12] "
        f"for an older one, never both: {pip_install('cuda13')}",
    )


def _explain(error: Any) -> tuple[str, str]:
    status = error.status
    if status == _INSUFFICIENT_DRIVER:
        return _explain_driver()
    if status == _NO_DEVICE:
        return (
            f"the NVIDIA driver finds no GPU{describe_visible()}",
            "see that nvidia-smi lists one, and that a container was started with its GPUs; "
            + _USE_CPU,
        )
    if status == _STUB_LIBRARY:
        return (
            "the libcuda.so.1 that was found is the CUDA toolkit's stub and not the driver",
            "take the toolkit's stubs directory out of LD_LIBRARY_PATH",
        )
    if status == FORKED:
        return FORK_REASON, FORK_CURE
    if status == _DEVICES_UNAVAILABLE:
        return (
            "the GPU is busy: another process has it for itself (compute mode exclusive)",
            "end that process, or use another GPU",
        )
    return str(error), "see that nvidia-smi works and has nothing to report"


FORK_REASON: Final = (
    "this process was forked from one that had used CUDA, which does not survive it"
)
FORK_CURE: Final = (
    "start processes with the 'spawn' method (multiprocessing.get_context('spawn')), or use CUDA "
    "in the children only"
)


CAPTURE_CURE: Final = (
    "take the batch, and release earlier ones, before the capture; a graph reads the same memory "
    "every time, so copy each batch to memory of your own for it"
)


def _explain_driver() -> tuple[str, str]:
    found, needed = int(runtime.driverGetVersion()), int(runtime.runtimeGetVersion())
    if found == 0:
        return "there is no NVIDIA driver", f"install one on a machine with a GPU; {_USE_CPU}"
    major = found // 1000
    instead = f"install ringfeed[cuda{major}] in its place: {pip_install(f'cuda{major}')}"
    other = f", or {instead}" if major == 12 else ""
    reason = (
        f"the NVIDIA driver is too old: it supports CUDA {_version(found)}, and the CuPy that is "
        f"installed needs CUDA {needed // 1000}"
    )
    return reason, f"update the driver{other}"


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"


def describe_visible() -> str:
    """Name the variable that hides GPUs, where it is set."""
    value = os.environ.get("CUDA_VISIBLE_DEVICES")
    return "" if value is None else f" (CUDA_VISIBLE_DEVICES is {value!r})"
