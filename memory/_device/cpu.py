"""The device without a second memory.

Host buffers are all it has. Whatever needs a device's memory, a stream or an event raises
``NoDeviceMemoryError``: nothing can be in flight here, so a call for it is a mistake. Caffe's
CPU_ONLY build stops at the same places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

from memory._device.accounting import DeviceMemory, Ledger, device_memory
from memory._device.closeable import Closeable
from memory._device.host_memory import allocate_host
from memory._errors import NoDeviceMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory._device.host_memory import HostBuffer


def _refuse(operation: str) -> Callable[..., NoReturn]:
    """Make a method that raises NoDeviceMemoryError for any arguments."""

    def method(self: CpuDevice, *_: Any, **__: Any) -> NoReturn:
        raise NoDeviceMemoryError(self.name, operation=operation)

    method.__name__ = operation
    method.__doc__ = "Raise NoDeviceMemoryError."
    return method


class CpuDevice(Closeable):
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
        return device_memory(self._host)

    def close(self) -> None:
        """Do nothing: the process has one cpu device, and it holds nothing but live buffers."""

    def dedicate_thread(self) -> None:
        """Do nothing: a thread has nothing to set up."""

    alloc_device = _refuse("alloc_device")
    make_stream = _refuse("make_stream")
    current_stream = _refuse("current_stream")
    stream_from = _refuse("stream_from")
    use_stream = _refuse("use_stream")
    copy_to_device = _refuse("copy_to_device")
    copy_to_host = _refuse("copy_to_host")
    copy_on_device = _refuse("copy_on_device")
    fill = _refuse("fill")
    axpy = _refuse("axpy")
    scale = _refuse("scale")
    asum = _refuse("asum")
    sumsq = _refuse("sumsq")
    compile = _refuse("compile")

    def __repr__(self) -> str:
        return f"<CpuDevice {self._host.balance().nbytes} bytes in host buffers>"
