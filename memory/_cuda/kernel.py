"""Kernels on a GPU, compiled from source.

Kernels are compiled by NVRTC when they first run. It is no part of CuPy's wheels: it comes with a
CUDA toolkit, or with the extras ``cuda12-ctk`` and ``cuda13-ctk``.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memory._cuda.runtime import cupy, runtime
from memory._device.device import DeviceBuffer
from memory._errors import DeviceError, NotImplementedDeviceError
from memory.wording import pip_install

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory._cuda.owner import CudaOwner
    from memory._cuda.stream_state import StreamState
    from memory._device.device import Stream

_NOT_SUPPORTED: Final = 801


class CudaKernel:
    """A function compiled from CUDA C++; see ``Kernel``. Made by ``CudaDevice.compile``.

    Args:
        device: Where it runs.
        source: CUDA C++.
        name: The function in it.

    Raises:
        NotImplementedDeviceError: If NVRTC is not installed.
        DeviceError: If the source does not compile.
    """

    def __init__(self, device: CudaOwner, source: str, name: str) -> None:
        self._device = device
        self._name = name
        self._kernel = cupy.RawKernel(source, name)
        with device.context.call("compile"), explain_failures(device.name, f"compile of {name!r}"):
            self._kernel.compile()
            load(self._kernel)

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        stream: Stream,
    ) -> None:
        """Queue the kernel; see ``Kernel``."""
        state = self._device.own_stream(stream).state
        for arg in args:
            if isinstance(arg, DeviceBuffer):
                self._device.check_buffer("an argument", arg)
        values = tuple(np.uint64(a.ptr) if isinstance(a, DeviceBuffer) else a for a in args)
        queue(state, f"kernel {self._name}", lambda: self._kernel(grid, block, values), *args)

    def __repr__(self) -> str:
        return f"<CudaKernel {self._name} on {self._device.name}>"


def load(kernel: Any) -> None:
    """Have CUDA load a kernel to the current device now, and not as it is first launched.

    It loads lazily, and may wait for all the device's work to do so: a launch would wait for
    streams that it has nothing to do with, with its own stream's lock held.
    """
    _ = kernel.num_regs  # what is asked about is loaded


def queue(state: StreamState, operation: str, run: Callable[[], object], *holds: object) -> None:
    """Queue launches, unless the first buffer that they work on is empty.

    Args:
        state: The stream.
        operation: What it is, for errors.
        run: Launches kernels on CuPy's current stream.
        *holds: The buffers, and all else that has to stay alive until they have run.
    """

    def launch(_: int) -> None:
        if isinstance(holds[0], DeviceBuffer) and holds[0].nbytes == 0:
            return  # CUDA refuses a grid without blocks
        # CuPy launches on its current stream.
        with explain_failures(state.context.name, operation), state.as_cupy():
            run()

    state.submit(operation, launch, holds)


@contextlib.contextmanager
def explain_failures(device: str, operation: str) -> Iterator[None]:
    """Say what CuPy's many kinds of errors mean when a kernel is compiled and launched."""
    try:
        yield
    except runtime.CUDARuntimeError:
        raise  # explained by the caller
    except Exception as error:
        if "DynamicLib" in type(error).__name__:
            raise NotImplementedDeviceError(
                device,
                operation=operation,
                missing="it runs a kernel, and NVRTC, which compiles kernels, is not installed: "
                "install ringfeed[cuda12-ctk] or ringfeed[cuda13-ctk], whichever CuPy is of "
                f"({pip_install('cuda13-ctk')}), or a CUDA toolkit",
            ) from error
        if getattr(error, "status", None) == _NOT_SUPPORTED:
            raise NotImplementedDeviceError(
                device, operation=operation, missing=f"its driver runs no kernels ({error})"
            ) from error
        raise DeviceError(device, operation=operation, reason=str(error)) from error
