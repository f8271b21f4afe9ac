"""What a simulated device computes: Python functions on its memory, given to its streams."""

from __future__ import annotations

import abc
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from memory._device.checks import check_byte, check_equal_sizes, check_floats
from memory._errors import NotImplementedDeviceError
from memory._simulated.stream_thread import Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import DTypeLike, NDArray

    from memory._device.device import DeviceBuffer, Kernel, Stream
    from memory._simulated.memory import SimulatedMemory


class SimulatedKernels(abc.ABC):
    """The part of a device that changes bytes where they are."""

    name: str
    _memory: SimulatedMemory

    @abc.abstractmethod
    def _check_buffer(self, what: str, buffer: object) -> None: ...

    @abc.abstractmethod
    def _submit(self, stream: Stream, operation: str, work: Work) -> None: ...

    def fill(self, dst: DeviceBuffer, value: int, *, stream: Stream) -> None:
        """Queue setting every byte of ``dst``; see ``Device.fill``."""
        check_byte("value", value)
        self._launch("fill", lambda array: array.fill(value), dst, stream=stream)

    def axpy(
        self, y: DeviceBuffer, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream
    ) -> None:
        """Queue y = alpha * x + y, with two roundings; see ``Device.axpy``."""
        kind = check_floats("axpy", dtype, y)
        check_equal_sizes("x", x, other=y)
        self._launch("axpy", partial(_axpy, kind.type(alpha)), y, x, stream=stream)

    def scale(self, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream) -> None:
        """Queue x = alpha * x; see ``Device.scale``."""
        kind = check_floats("scale", dtype, x)
        self._launch("scale", partial(_scale, kind.type(alpha)), x, stream=stream)

    def asum(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        """Return the sum of absolute values, in NumPy's pairwise order; see ``Device.asum``."""
        return self._reduce("asum", np.abs, x, dtype=dtype, stream=stream)

    def sumsq(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        """Return the sum of squares, in NumPy's pairwise order; see ``Device.sumsq``."""
        return self._reduce("sumsq", np.square, x, dtype=dtype, stream=stream)

    def launch(
        self, function: Callable[..., object], *buffers: DeviceBuffer, stream: Stream
    ) -> None:
        """Queue a Python function that stands in for a kernel; returns before it has run.

        What it raises is the failure of the stream's later events.

        Args:
            function: Called on the stream's thread with one array for each buffer: its device
                memory, uint8, shape (nbytes,), writable, valid within the call only.
            *buffers: Of this device; kept alive until the function has returned.
            stream: Runs it.

        Raises:
            DeviceMismatchError: If a buffer or the stream belongs to another device.
            ClosedError: If the stream is closed.
        """
        self._launch("launch", function, *buffers, stream=stream)

    def compile(self, source: str, name: str) -> Kernel:  # noqa: ARG002 - the protocol's signature
        """Raise NotImplementedDeviceError: no CUDA source runs here."""
        raise NotImplementedDeviceError(
            self.name,
            operation="compile",
            missing="it runs no CUDA source; give the kernel's NumPy twin to launch()",
        )

    def _launch(
        self,
        operation: str,
        function: Callable[..., object],
        *buffers: DeviceBuffer,
        stream: Stream,
    ) -> None:
        for buffer in buffers:
            self._check_buffer("buffer", buffer)
        work = Work(operation, partial(_call, self._memory, function, buffers))
        self._submit(stream, operation, work)

    def _reduce(
        self,
        operation: str,
        term: Callable[[NDArray[Any]], NDArray[Any]],
        x: DeviceBuffer,
        *,
        dtype: DTypeLike,
        stream: Stream,
    ) -> float:
        kind = check_floats(operation, dtype, x)
        sums: list[float] = []

        def add_up(array: NDArray[np.uint8]) -> None:
            sums.append(float(term(array.view(kind)).sum(dtype=kind)))

        self._launch(operation, add_up, x, stream=stream)
        stream.record().synchronize()
        return sums[0]


# What runs on a stream's thread. It holds the memory and the buffers, never the device.


def _call(
    memory: SimulatedMemory, function: Callable[..., object], buffers: tuple[DeviceBuffer, ...]
) -> None:
    # A device computes infinities and NaNs without a word.
    with np.errstate(all="ignore"):
        function(*(memory.view(buffer.ptr, buffer.nbytes) for buffer in buffers))


def _axpy(alpha: np.floating[Any], y: NDArray[np.uint8], x: NDArray[np.uint8]) -> None:
    typed = y.view(alpha.dtype)
    typed += alpha * x.view(alpha.dtype)


def _scale(alpha: np.floating[Any], x: NDArray[np.uint8]) -> None:
    typed = x.view(alpha.dtype)
    typed *= alpha
