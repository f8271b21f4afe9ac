"""The device without a second memory.

Host buffers are all it has. Whatever needs a device's memory, a stream or an event raises
``NoDeviceMemoryError``: there is nothing that could be in flight here, so code that asks for it has
taken a wrong turn, and Caffe's CPU_ONLY build stops at the same places.
"""

# ruff: noqa: ARG002 - the signatures are the protocol's; most of it is refused here.

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn, Self

from memory._device.accounting import Ledger
from memory._device.host_memory import allocate_host
from memory._device.protocols import DeviceMemory
from memory._errors import NoDeviceMemoryError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    import numpy as np
    from numpy.typing import DTypeLike, NDArray

    from memory._device.protocols import DeviceBuffer, HostBuffer, Kernel, Stream


class CpuDevice:
    """The host alone. Thread-safe; needs no closing.

    Example:
        >>> from memory import open_device
        >>> device = open_device("cpu")
        >>> device.has_device_memory
        False
        >>> device.alloc_host(16).array.shape
        (16,)
    """

    name = "cpu"
    has_device_memory = False

    def __init__(self) -> None:
        self._host = Ledger(self.name, "host")

    def alloc_host(self, nbytes: int, *, zero: bool = False) -> HostBuffer:
        """Allocate ordinary host memory; see ``Device.alloc_host``."""
        return allocate_host(nbytes, self._host, zero=zero)

    def memory_info(self) -> DeviceMemory:
        """Return what its host buffers take."""
        host = self._host.balance()
        return DeviceMemory(
            allocated_bytes=0,
            peak_bytes=0,
            limit_bytes=None,
            host_allocated_bytes=host.nbytes,
            num_buffers=0,
            num_host_buffers=host.num_blocks,
        )

    def close(self) -> None:
        """Do nothing: the process has one cpu device, and it holds nothing but live buffers."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def alloc_device(self, nbytes: int) -> DeviceBuffer:
        """Raise NoDeviceMemoryError."""
        self._refuse("alloc_device")

    def make_stream(self, name: str = "") -> Stream:
        """Raise NoDeviceMemoryError."""
        self._refuse("make_stream")

    def dedicate_thread(self) -> None:
        """Do nothing: a thread has nothing to set up."""

    def current_stream(self) -> Stream:
        """Raise NoDeviceMemoryError."""
        self._refuse("current_stream")

    def stream_from(self, stream: object) -> Stream:
        """Raise NoDeviceMemoryError."""
        self._refuse("stream_from")

    def use_stream(self, stream: Stream) -> AbstractContextManager[None]:
        """Raise NoDeviceMemoryError."""
        self._refuse("use_stream")

    def copy_to_device(self, dst: DeviceBuffer, src: NDArray[np.uint8], *, stream: Stream) -> None:
        """Raise NoDeviceMemoryError."""
        self._refuse("copy_to_device")

    def copy_to_host(self, dst: NDArray[np.uint8], src: DeviceBuffer, *, stream: Stream) -> None:
        """Raise NoDeviceMemoryError."""
        self._refuse("copy_to_host")

    def copy_on_device(self, dst: DeviceBuffer, src: DeviceBuffer, *, stream: Stream) -> None:
        """Raise NoDeviceMemoryError."""
        self._refuse("copy_on_device")

    def fill(self, dst: DeviceBuffer, value: int, *, stream: Stream) -> None:
        """Raise NoDeviceMemoryError."""
        self._refuse("fill")

    def axpy(
        self, y: DeviceBuffer, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream
    ) -> None:
        """Raise NoDeviceMemoryError."""
        self._refuse("axpy")

    def scale(self, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream) -> None:
        """Raise NoDeviceMemoryError."""
        self._refuse("scale")

    def asum(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        """Raise NoDeviceMemoryError."""
        self._refuse("asum")

    def sumsq(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        """Raise NoDeviceMemoryError."""
        self._refuse("sumsq")

    def compile(self, source: str, name: str) -> Kernel:
        """Raise NoDeviceMemoryError."""
        self._refuse("compile")

    def _refuse(self, operation: str) -> NoReturn:
        raise NoDeviceMemoryError(self.name, operation=operation)

    def __repr__(self) -> str:
        return f"<CpuDevice {self._host.balance().nbytes} bytes in host buffers>"
