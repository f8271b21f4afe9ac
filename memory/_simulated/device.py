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

import contextlib
import itertools
import math
import threading
import time
import weakref
from collections import Counter
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from memory._device.accounting import DeviceMemory, Ledger, device_memory
from memory._device.checks import (
    check_byte,
    check_equal_sizes,
    check_floats,
    check_host_array,
    describe_owner,
)
from memory._device.closeable import Closeable
from memory._device.device import DeviceBuffer
from memory._device.host_memory import allocate_host
from memory._errors import (
    BufferMismatchError,
    ClosedError,
    DeviceMismatchError,
    NotImplementedDeviceError,
    OptionValueError,
)
from memory._simulated.memory import SimulatedMemory
from memory._simulated.stream import SimulatedStream
from memory._simulated.worker import StreamWorker, Work, close_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import DTypeLike, NDArray

    from memory._device.device import Kernel, Stream
    from memory._device.host_memory import HostBuffer

HOST_POISON: Final = 0xCD
"""Fresh host buffers of this device are filled with this byte."""


@dataclass(frozen=True, slots=True)
class TransferStats:
    """How often and how much a device has been asked to copy.

    Attributes:
        num_to_device: Copies from the host. More than one for each batch is a copy too many.
        bytes_to_device: Their bytes.
        num_to_host: Copies to the host. A training loop that only consumes has next to none.
        bytes_to_host: Their bytes.
        num_on_device: Copies within the device's memory.
        bytes_on_device: Their bytes.
    """

    num_to_device: int = 0
    bytes_to_device: int = 0
    num_to_host: int = 0
    bytes_to_host: int = 0
    num_on_device: int = 0
    bytes_on_device: int = 0


class SimulatedDevice(Closeable):
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
        _check_options(latency_s, bandwidth_bytes_per_s, limit_bytes)
        self._latency_s = latency_s
        self._s_per_byte = 0.0 if bandwidth_bytes_per_s is None else 1.0 / bandwidth_bytes_per_s
        self._sleep = sleep
        self._memory = SimulatedMemory(self.name, limit_bytes=limit_bytes)
        self._host = Ledger(self.name, "host")
        self._lock = threading.Lock()
        self._closed = False
        self._transferred: Counter[str] = Counter()
        self._handles = itertools.count(1)
        self._group = object()
        self._threads = threading.local()
        # The worker is the device's, the handle is made when asked for: it refers to the device,
        # and a cycle would leave both, and a thread, to the garbage collector.
        self._null_worker = self._make_worker("null")
        self._null_stream: weakref.ref[SimulatedStream] | None = None
        weakref.finalize(self, self._null_worker.stop_soon).atexit = False

    def alloc_host(self, nbytes: int, *, zero: bool = False) -> HostBuffer:
        """Allocate host memory, poisoned if not zeroed; see ``Device.alloc_host``."""
        self._check_open("alloc_host")
        return allocate_host(nbytes, self._host, zero=zero, poison=HOST_POISON)

    def alloc_device(self, nbytes: int) -> DeviceBuffer:
        """Allocate device memory, poisoned; see ``Device.alloc_device``."""
        self._check_open("alloc_device")
        block = self._memory.allocate(nbytes)
        return DeviceBuffer(block.ptr, block.nbytes, device=self, owner=block)

    def dedicate_thread(self) -> None:
        """Do nothing: threads have no current device here."""

    def make_stream(self, name: str = "") -> SimulatedStream:
        """Make a stream and start its thread; see ``Device.make_stream``.

        Raises:
            DeviceError: If the system gives no thread.
        """
        self._null_worker.refuse_inherited("make_stream")
        handle = next(self._handles)
        worker = self._make_worker(name or f"simulated-{handle}")
        # Within the lock: close() must find every stream that was made before it.
        with self._lock:
            self._check_open("make_stream")
            worker.start()
        return SimulatedStream(worker, handle=handle, device=self)

    def current_stream(self) -> SimulatedStream:
        """Return the calling thread's current stream, the null stream by default."""
        stack = self._stack()
        if stack:
            return stack[-1]
        self._null_worker.refuse_inherited("current_stream")
        with self._lock:
            stream = None if self._null_stream is None else self._null_stream()
            if stream is None:
                stream = SimulatedStream(self._null_worker, handle=0, device=self)
                self._null_stream = weakref.ref(stream)
            return stream

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
        return self._own_stream(stream)

    @contextlib.contextmanager
    def use_stream(self, stream: Stream) -> Iterator[None]:
        """Make ``stream`` the calling thread's current one within a ``with`` block."""
        stack = self._stack()
        stack.append(self._own_stream(stream))
        try:
            yield
        finally:
            stack.pop()

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
        return self._reduce("asum", _asum, x, dtype=dtype, stream=stream)

    def sumsq(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        """Return the sum of squares, in NumPy's pairwise order; see ``Device.sumsq``."""
        return self._reduce("sumsq", _sumsq, x, dtype=dtype, stream=stream)

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

    def peek(self, buffer: DeviceBuffer) -> NDArray[np.uint8]:
        """Return a copy of what is in device memory now, out of order with every stream.

        For tests, through ``memory.testing.peek``: nothing is waited for, so this is where a copy
        that has not run yet shows.

        Args:
            buffer: Of this device.

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
        if self._closed:
            dst[:] = self.peek(src)
        return self._closed

    def stats(self) -> TransferStats:
        """Return what was copied since the device was opened, counted when it was queued."""
        with self._lock:
            return TransferStats(**self._transferred)

    def memory_info(self) -> DeviceMemory:
        """Return what is allocated now, on both sides."""
        return device_memory(
            self._host, self._memory.ledger, limit_bytes=self._memory.ledger.limit_bytes
        )

    def close(self) -> None:
        """Finish the work of every stream and join its thread. Idempotent; buffers stay valid."""
        if self._null_worker.inherited:
            self._closed = True
            return
        with self._lock:
            self._closed = True
        self._null_worker.close()
        close_group(self._group)

    def _make_worker(self, name: str) -> StreamWorker:
        return StreamWorker(device=self.name, name=name, group=self._group, sleep=self._sleep)

    def _stack(self) -> list[SimulatedStream]:
        stack: list[SimulatedStream] | None = getattr(self._threads, "stack", None)
        if stack is None:
            stack = self._threads.stack = []
        return stack

    def _check_open(self, operation: str) -> None:
        self._null_worker.refuse_inherited(operation)
        if self._closed:
            raise ClosedError(f"device {self.name!r}", operation=operation)

    def _check_buffer(self, what: str, buffer: object) -> None:
        if not isinstance(buffer, DeviceBuffer) or buffer.device is not self:
            raise DeviceMismatchError(what, expected=repr(self), found=describe_owner(buffer))
        # Looked up again when the work runs; here, the traceback still shows who asked.
        self._memory.view(buffer.ptr, buffer.nbytes)

    def _own_stream(self, stream: object) -> SimulatedStream:
        if not isinstance(stream, SimulatedStream) or stream.device is not self:
            raise DeviceMismatchError("stream", expected=repr(self), found=describe_owner(stream))
        return stream

    def _queue_copy(
        self, way: str, function: Callable[[], None], nbytes: int, stream: Stream
    ) -> None:
        over_bus = way != "on_device"
        duration_s = self._latency_s + nbytes * self._s_per_byte if over_bus else 0.0
        work = Work(f"copy_{way} of {nbytes} bytes", function, duration_s=duration_s)
        self._own_stream(stream).submit(f"copy_{way}", work)
        with self._lock:
            self._transferred[f"num_{way}"] += 1
            self._transferred[f"bytes_{way}"] += nbytes

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
        self._own_stream(stream).submit(operation, work)

    def _reduce(
        self,
        operation: str,
        function: Callable[[NDArray[Any]], float],
        x: DeviceBuffer,
        *,
        dtype: DTypeLike,
        stream: Stream,
    ) -> float:
        kind = check_floats(operation, dtype, x)
        result: list[float] = []
        self._launch(
            operation, lambda array: result.append(function(array.view(kind))), x, stream=stream
        )
        stream.record().synchronize()
        return result[0]

    def __repr__(self) -> str:
        info = self.memory_info()
        limit = "no limit" if info.limit_bytes is None else f"limit {info.limit_bytes}"
        state = ", closed" if self._closed else ""
        return f"<SimulatedDevice {info.allocated_bytes} bytes, {limit}{state}>"


def _check_options(
    latency_s: float, bandwidth_bytes_per_s: float | None, limit_bytes: int | None
) -> None:
    if not (latency_s >= 0 and math.isfinite(latency_s)):
        raise OptionValueError("latency_s", expected="0 seconds or more", found=latency_s)
    if bandwidth_bytes_per_s is not None and not bandwidth_bytes_per_s > 0:
        raise OptionValueError(
            "bandwidth_bytes_per_s", expected="more than 0, or None", found=bandwidth_bytes_per_s
        )
    if limit_bytes is not None and limit_bytes < 0:
        raise OptionValueError("limit_bytes", expected="0 or more, or None", found=limit_bytes)


# What runs on a stream's thread. Addresses are looked up here, when the work runs, so that memory
# which has been freed too early fails the stream, as it does on a GPU.


def _write(memory: SimulatedMemory, dst: DeviceBuffer, src: NDArray[np.uint8]) -> None:
    np.copyto(memory.view(dst.ptr, dst.nbytes), src.reshape(-1))


def _read(memory: SimulatedMemory, src: DeviceBuffer, dst: NDArray[np.uint8]) -> None:
    np.copyto(dst.reshape(-1), memory.view(src.ptr, src.nbytes))


def _move(memory: SimulatedMemory, dst: DeviceBuffer, src: DeviceBuffer) -> None:
    np.copyto(memory.view(dst.ptr, dst.nbytes), memory.view(src.ptr, src.nbytes))


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


def _asum(x: NDArray[Any]) -> float:
    return float(np.abs(x).sum(dtype=x.dtype))


def _sumsq(x: NDArray[Any]) -> float:
    return float(np.square(x).sum(dtype=x.dtype))
