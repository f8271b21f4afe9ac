"""A second memory without a GPU: every race of asynchronous copies can be played through.

What makes it a stand-in for a GPU and not a shortcut:

* Its memory is its own. Bytes get in and out by copies on streams only, and fresh memory is
  poisoned, so that a copy forgotten or read too early shows.
* A copy runs on its stream's thread, some time after it was asked for, and reads its source when
  it runs. A host buffer refilled too early reaches the device torn or wrong, as on a GPU.
* Bandwidth, latency and the size of the memory are parameters, and a test may hold a stream
  (``memory.testing.hold``), so that "the copy is still in flight" is a state that it controls.
"""

from __future__ import annotations

import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from memory._device.accounting import DeviceMemory, Ledger, device_memory
from memory._device.checks import check_equal_sizes, check_host_array, describe_owner
from memory._device.closeable import Closeable
from memory._device.device import DeviceBuffer
from memory._device.host_memory import allocate_host
from memory._errors import BufferMismatchError, DeviceMismatchError, OptionValueError
from memory._simulated.bus_timing import Bus, TransferStats
from memory._simulated.kernels import SimulatedKernels
from memory._simulated.memory import SimulatedMemory
from memory._simulated.stream_registry import SimulatedStreams
from memory._simulated.stream_thread import Work

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

    from memory._device.device import Stream
    from memory._device.host_memory import HostBuffer
    from memory._simulated.stream import SimulatedStream

HOST_POISON: Final = 0xCD
"""Fresh host buffers of this device are filled with this byte."""


class SimulatedDevice(SimulatedKernels, Closeable):
    """A device whose memory and streams are simulated; see ``Device``. Thread-safe.

    Closing it ends its streams. One that is collected ends its null stream by itself; other streams
    keep their device alive.

    Example:
        >>> import numpy as np
        >>> from memory import open_device
        >>> with open_device("simulated") as device, device.make_stream() as stream:
        ...     pixels = device.alloc_device(4)
        ...     device.copy_to_device(pixels, np.arange(4, dtype=np.uint8), stream=stream)
        ...     back = device.alloc_host(4).array
        ...     device.copy_to_host(back, pixels, stream=stream)
        ...     stream.synchronize()
        ...     back
        array([0, 1, 2, 3], dtype=uint8)

    Args:
        latency_s: Seconds that every copy between host and device takes, besides its bytes.
        bandwidth_bytes_per_s: Bytes that such a copy moves in a second; None for no limit. Each
            stream has this for itself.
        limit_bytes: Size of the device's memory; None for no limit.
        sleep: Called on a stream's thread with the seconds a copy takes; a test gives its clock's.

    Raises:
        OptionValueError: If a value cannot be.
    """

    name = "simulated"
    has_device_memory = True

    def __init__(
        self,
        *,
        latency_s: float = 0.0,
        bandwidth_bytes_per_s: float | None = None,
        limit_bytes: int | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._bus = Bus(latency_s=latency_s, bandwidth_bytes_per_s=bandwidth_bytes_per_s)
        if limit_bytes is not None and limit_bytes < 0:
            raise OptionValueError("limit_bytes", expected="0 or more, or None", found=limit_bytes)
        self._memory = SimulatedMemory(self.name, limit_bytes=limit_bytes)
        self._host = Ledger(self.name, "host")
        self._streams = SimulatedStreams(self, sleep=sleep)
        weakref.finalize(self, self._streams.stop_null_soon).atexit = False

    def alloc_host(self, nbytes: int, *, zero: bool = False) -> HostBuffer:
        """Allocate host memory, poisoned if not zeroed; see ``Device.alloc_host``."""
        self._streams.check_open("alloc_host")
        return allocate_host(nbytes, self._host, zero=zero, poison=HOST_POISON)

    def alloc_device(self, nbytes: int) -> DeviceBuffer:
        """Allocate device memory, poisoned; see ``Device.alloc_device``."""
        self._streams.check_open("alloc_device")
        block = self._memory.allocate(nbytes)
        return DeviceBuffer(block.ptr, block.nbytes, device=self, owner=block)

    def dedicate_thread(self) -> None:
        """Do nothing: threads have no current device here."""

    def make_stream(self, name: str = "") -> SimulatedStream:
        """Make a stream and start its thread; see ``Device.make_stream``.

        Raises:
            DeviceError: If the system gives no thread.
        """
        return self._streams.make(name)

    def current_stream(self) -> SimulatedStream:
        """Return the calling thread's current stream, the null stream by default."""
        return self._streams.current()

    def stream_from(self, stream: object) -> SimulatedStream:
        """Return a stream of this device as what it is; there are no others here.

        Raises:
            BufferMismatchError: If it is no stream at all.
            DeviceMismatchError: If it is another device's.
        """
        if not hasattr(stream, "handle"):
            raise BufferMismatchError(
                "stream",
                expected="a stream of this device",
                found=f"{stream!r}, of type {type(stream).__name__}",
                cure="make one with make_stream()",
            )
        return self._streams.own(stream)

    def use_stream(self, stream: Stream) -> AbstractContextManager[None]:
        """Make ``stream`` the calling thread's current one within a ``with`` block."""
        return self._streams.use(stream)

    def copy_to_device(self, dst: DeviceBuffer, src: NDArray[np.uint8], *, stream: Stream) -> None:
        """Queue a copy from the host; see ``Device.copy_to_device``."""
        self._check_buffer("dst", dst)
        check_host_array("src", src, nbytes=dst.nbytes)
        self._queue_copy("to_device", partial(_write, self._memory, dst, src), src.nbytes, stream)

    def copy_to_host(self, dst: NDArray[np.uint8], src: DeviceBuffer, *, stream: Stream) -> None:
        """Queue a copy to the host; see ``Device.copy_to_host``."""
        self._check_buffer("src", src)
        check_host_array("dst", dst, nbytes=src.nbytes, writable=True)
        self._queue_copy("to_host", partial(_read, self._memory, src, dst), src.nbytes, stream)

    def copy_on_device(self, dst: DeviceBuffer, src: DeviceBuffer, *, stream: Stream) -> None:
        """Queue a copy within the device's memory; see ``Device.copy_on_device``."""
        self._check_buffer("dst", dst)
        self._check_buffer("src", src)
        check_equal_sizes("dst", dst, other=src)
        self._queue_copy("on_device", partial(_move, self._memory, dst, src), src.nbytes, stream)

    def peek(self, buffer: DeviceBuffer) -> NDArray[np.uint8]:
        """Return a copy of what is in device memory now, out of order with every stream.

        For tests, through ``memory.testing.peek``: nothing is waited for, so this is where a copy
        that has not run yet shows.

        Returns:
            uint8, shape (nbytes,).
        """
        self._check_buffer("buffer", buffer)
        return self._memory.view(buffer.ptr, buffer.nbytes).copy()

    def fetch_when_closed(self, dst: NDArray[np.uint8], src: DeviceBuffer) -> bool:
        """Copy to the host what is left in device memory after closing.

        Args:
            dst: As many bytes as ``src``.
            src: Of this device.

        Returns:
            Whether it is closed; if not, nothing was copied.
        """
        if self._streams.closed:
            dst[:] = self.peek(src)
        return self._streams.closed

    def stats(self) -> TransferStats:
        """Return what was copied since the device was opened, counted when it was queued."""
        return self._bus.stats()

    def memory_info(self) -> DeviceMemory:
        """Return what is allocated now, on both sides."""
        return device_memory(
            self._host, self._memory.ledger, limit_bytes=self._memory.ledger.limit_bytes
        )

    def close(self) -> None:
        """Finish the work of every stream and join its thread. Idempotent; buffers stay valid."""
        self._streams.close()

    def _check_buffer(self, what: str, buffer: object) -> None:
        if not isinstance(buffer, DeviceBuffer) or buffer.device is not self:
            raise DeviceMismatchError(what, expected=repr(self), found=describe_owner(buffer))
        # Looked up again when the work runs; here, the traceback still shows who asked.
        self._memory.view(buffer.ptr, buffer.nbytes)

    def _queue_copy(
        self, way: str, function: Callable[[], None], nbytes: int, stream: Stream
    ) -> None:
        duration_s = self._bus.duration_s(way, nbytes)
        work = Work(f"copy_{way} of {nbytes} bytes", function, duration_s=duration_s)
        self._submit(stream, f"copy_{way}", work)
        self._bus.count(way, nbytes)

    def _submit(self, stream: Stream, operation: str, work: Work) -> None:
        self._streams.own(stream).submit(operation, work)

    def __repr__(self) -> str:
        info = self.memory_info()
        limit = "no limit" if info.limit_bytes is None else f"limit {info.limit_bytes}"
        state = ", closed" if self._streams.closed else ""
        return f"<SimulatedDevice {info.allocated_bytes} bytes, {limit}{state}>"


# What runs on a stream's thread. Addresses are looked up here, when the work runs, so that memory
# which has been freed too early fails the stream, as it does on a GPU.


def _write(memory: SimulatedMemory, dst: DeviceBuffer, src: NDArray[np.uint8]) -> None:
    np.copyto(memory.view(dst.ptr, dst.nbytes), src.reshape(-1))


def _read(memory: SimulatedMemory, src: DeviceBuffer, dst: NDArray[np.uint8]) -> None:
    np.copyto(dst.reshape(-1), memory.view(src.ptr, src.nbytes))


def _move(memory: SimulatedMemory, dst: DeviceBuffer, src: DeviceBuffer) -> None:
    np.copyto(memory.view(dst.ptr, dst.nbytes), memory.view(src.ptr, src.nbytes))
