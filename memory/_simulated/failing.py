"""A device that fails on command, in front of another that does the work."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn

from memory._device.closeable import Closeable
from memory._device.device import DeviceBuffer
from memory._errors import (
    DeviceError,
    DeviceMemoryError,
    DeviceMismatchError,
    HostMemoryError,
    NotImplementedDeviceError,
    OptionValueError,
)
from memory._simulated.device import SimulatedDevice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np
    from numpy.typing import DTypeLike, NDArray

    from memory._device.accounting import DeviceMemory
    from memory._device.device import Device, Kernel, Stream
    from memory._device.event import Event
    from memory._device.host_memory import HostBuffer

_QUEUED: Final = (
    *("copy_to_device", "copy_to_host", "copy_on_device", "fill", "axpy", "scale", "launch"),
)
FAILING_OPERATIONS: Final = (
    "alloc_host",
    "alloc_device",
    "make_stream",
    *_QUEUED,
    "asum",
    "sumsq",
    "record",
    "wait",
    "synchronize",
)
"""The operations whose calls a ``FailingDevice`` counts, and can fail.

``launch`` is that of a compiled kernel, or of the function that stands in for one.
"""


class FailingDevice(Closeable):
    """A device of which the nth call of an operation fails; everything else reaches the real one.

    Fault injection in the manner of an allocator adaptor: run the code under test with the first
    call failing, then the second, and so on until ``num_failures`` stays 0, and ask each time for
    the right error, no hang and no leak. Thread-safe.

    Why it is this large: it has every method of ``Device``, and `launch`; each is a line.

    Example:
        >>> from memory import DeviceMemoryError, open_device
        >>> with FailingDevice(open_device("simulated"), fail={"alloc_device": 2}) as device:
        ...     first = device.alloc_device(64)
        ...     try:
        ...         device.alloc_device(64)
        ...     except DeviceMemoryError:
        ...         print("refused")
        refused

    Args:
        device: Does the work. Buffers and streams of it must come through this object.
        fail: For an operation of ``FAILING_OPERATIONS``, which of its calls fails, counted from 1
            over all threads; alloc_host raises HostMemoryError, alloc_device DeviceMemoryError,
            all others DeviceError. Calls after that one work again.
        when: ``called``: the call itself raises. ``run``: copies and computations are accepted, and
            fail when the stream comes to them, so that the failure shows at an event; only for a
            SimulatedDevice. Operations that queue nothing raise in either case.

    Attributes:
        inner: The device that does the work.

    Raises:
        OptionValueError: For an operation that does not exist, a number below 1, or ``run`` on
            a device that cannot.
    """

    def __init__(
        self,
        device: Device,
        *,
        fail: Mapping[str, int],
        when: Literal["called", "run"] = "called",
    ) -> None:
        for operation, number in fail.items():
            if operation not in FAILING_OPERATIONS or number < 1:
                raise OptionValueError(
                    "fail",
                    expected=f"a call, counted from 1, of one of {', '.join(FAILING_OPERATIONS)}",
                    found={operation: number},
                )
        if when == "run" and not isinstance(device, SimulatedDevice):
            raise OptionValueError("when", expected="'called' on this device", found=when)
        self.inner = device
        self._fail = dict(fail)
        self._when = when
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()
        self._num_failures = 0
        # One FailingStream for each stream, so that `is` works; weak, as they hold this device.
        self._streams: weakref.WeakValueDictionary[int, FailingStream] = (
            weakref.WeakValueDictionary()
        )

    @property
    def name(self) -> str:
        """Name of the device that does the work."""
        return self.inner.name

    @property
    def has_device_memory(self) -> bool:
        """Whether the device that does the work has a second memory."""
        return self.inner.has_device_memory

    @property
    def num_failures(self) -> int:
        """How many calls have failed on command until now."""
        with self._lock:
            return self._num_failures

    def calls(self) -> Mapping[str, int]:
        """Return how often each operation has been called until now."""
        with self._lock:
            return dict(self._calls)

    def strikes(self, operation: str) -> bool:
        """Count a call, and return whether it is the one to fail."""
        with self._lock:
            self._calls[operation] += 1
            hit = self._calls[operation] == self._fail.get(operation)
            self._num_failures += hit
            return hit

    def check(self, operation: str) -> None:
        """Count a call.

        Raises:
            DeviceError: If it is the one to fail.
        """
        if self.strikes(operation):
            raise self._error(operation)

    def alloc_host(self, nbytes: int, *, zero: bool = False) -> HostBuffer:
        """Allocate host memory, or raise HostMemoryError."""
        if self.strikes("alloc_host"):
            used_bytes = self.inner.memory_info().host_allocated_bytes
            raise HostMemoryError(self.name, requested_bytes=nbytes, used_bytes=used_bytes)
        return self.inner.alloc_host(nbytes, zero=zero)

    def alloc_device(self, nbytes: int) -> DeviceBuffer:
        """Allocate device memory, or raise DeviceMemoryError."""
        if self.strikes("alloc_device"):
            info = self.inner.memory_info()
            raise DeviceMemoryError(
                self.name,
                requested_bytes=nbytes,
                used_bytes=info.allocated_bytes,
                limit_bytes=info.limit_bytes,
            )
        buffer = self.inner.alloc_device(nbytes)
        return DeviceBuffer(buffer.ptr, buffer.nbytes, device=self, owner=buffer.owner)

    def make_stream(self, name: str = "") -> FailingStream:
        """Make a stream, or raise DeviceError."""
        self.check("make_stream")
        return self._wrap(self.inner.make_stream(name))

    def dedicate_thread(self) -> None:
        """Give the calling thread to the device that does the work."""
        self.inner.dedicate_thread()

    def current_stream(self) -> FailingStream:
        """Return the calling thread's current stream."""
        return self._wrap(self.inner.current_stream())

    def stream_from(self, stream: object) -> FailingStream:
        """Return this device's stream for one of the device that does the work."""
        if isinstance(stream, FailingStream):
            stream = self._inner_stream(stream)
        return self._wrap(self.inner.stream_from(stream))

    @contextlib.contextmanager
    def use_stream(self, stream: Stream) -> Iterator[None]:
        """Make ``stream`` the calling thread's current one within a ``with`` block."""
        with self.inner.use_stream(self._inner_stream(stream)):
            yield

    def copy_to_device(self, dst: DeviceBuffer, src: NDArray[np.uint8], *, stream: Stream) -> None:
        """Queue a copy from the host, or fail."""
        self._queue("copy_to_device", dst, src, stream=stream)

    def copy_to_host(self, dst: NDArray[np.uint8], src: DeviceBuffer, *, stream: Stream) -> None:
        """Queue a copy to the host, or fail."""
        self._queue("copy_to_host", dst, src, stream=stream)

    def copy_on_device(self, dst: DeviceBuffer, src: DeviceBuffer, *, stream: Stream) -> None:
        """Queue a copy within the device's memory, or fail."""
        self._queue("copy_on_device", dst, src, stream=stream)

    def fill(self, dst: DeviceBuffer, value: int, *, stream: Stream) -> None:
        """Queue setting every byte of ``dst``, or fail."""
        self._queue("fill", dst, value, stream=stream)

    def axpy(
        self, y: DeviceBuffer, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream
    ) -> None:
        """Queue y = alpha * x + y, or fail."""
        self._queue("axpy", y, x, stream=stream, alpha=alpha, dtype=dtype)

    def scale(self, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream) -> None:
        """Queue x = alpha * x, or fail."""
        self._queue("scale", x, stream=stream, alpha=alpha, dtype=dtype)

    def asum(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        """Return the sum of absolute values, or raise DeviceError."""
        self.check("asum")
        return self.inner.asum(self.unwrap(x), dtype=dtype, stream=self._inner_stream(stream))

    def sumsq(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        """Return the sum of squares, or raise DeviceError."""
        self.check("sumsq")
        return self.inner.sumsq(self.unwrap(x), dtype=dtype, stream=self._inner_stream(stream))

    def launch(
        self, function: Callable[..., object], *buffers: DeviceBuffer, stream: Stream
    ) -> None:
        """Queue a function that stands in for a kernel, or fail; see ``SimulatedDevice.launch``.

        Raises:
            NotImplementedDeviceError: The device that does the work runs no such functions.
        """
        if not isinstance(self.inner, SimulatedDevice):
            raise NotImplementedDeviceError(
                self.name, operation="launch", missing="it runs kernels that were compiled for it"
            )
        self._queue("launch", function, *buffers, stream=stream)

    def compile(self, source: str, name: str) -> Kernel:
        """Compile a kernel on the device that does the work; its launches count, and can fail."""
        kernel = self.inner.compile(source, name)

        def call(
            grid: tuple[int, ...],
            block: tuple[int, ...],
            args: tuple[Any, ...],
            *,
            stream: Stream,
        ) -> None:
            if self._is_admitted("launch", stream):
                inner = tuple(map(self._inner_of, args))
                kernel(grid, block, inner, stream=self._inner_stream(stream))

        return call

    def memory_info(self) -> DeviceMemory:
        """Return what the device that does the work has allocated."""
        return self.inner.memory_info()

    def close(self) -> None:
        """Close the device that does the work."""
        self.inner.close()

    def unwrap(self, buffer: DeviceBuffer) -> DeviceBuffer:
        """Return the same memory as a buffer of the device that does the work.

        Raises:
            DeviceMismatchError: If it is not this device's.
        """
        if buffer.device is not self:
            raise DeviceMismatchError("buffer", expected=repr(self), found=repr(buffer.device))
        # The buffer as the owner: what it keeps alive stays so while the work is queued.
        return DeviceBuffer(buffer.ptr, buffer.nbytes, device=self.inner, owner=buffer)

    def _queue(self, operation: str, *args: object, stream: Stream, **options: object) -> None:
        """Count a call that queues work, and have the real device queue it unless it fails."""
        if self._is_admitted(operation, stream):
            queue = getattr(self.inner, operation)
            queue(*map(self._inner_of, args), stream=self._inner_stream(stream), **options)

    def _is_admitted(self, operation: str, stream: Stream) -> bool:
        """Count a call, and return whether the real device is to have it.

        Raises:
            DeviceError: It is the one to fail, when it is called.
        """
        if not self.strikes(operation):
            return True
        if self._when == "called" or not isinstance(self.inner, SimulatedDevice):
            raise self._error(operation)
        # The error now and not the device: queued work must not keep it alive.
        fail = partial(_raise, self._error(operation))
        self.inner.launch(fail, stream=self._inner_stream(stream))
        return False

    def _error(self, operation: str) -> DeviceError:
        number = self._fail[operation]
        return DeviceError(
            self.name,
            operation=operation,
            reason=f"call {number} fails on command of a FailingDevice",
        )

    def _wrap(self, stream: Stream) -> FailingStream:
        with self._lock:
            wrapped = self._streams.get(stream.handle)
            if wrapped is None:
                wrapped = self._streams[stream.handle] = FailingStream(stream, device=self)
            return wrapped

    def _inner_of(self, argument: object) -> object:
        return self.unwrap(argument) if isinstance(argument, DeviceBuffer) else argument

    def _inner_stream(self, stream: Stream) -> Stream:
        if not isinstance(stream, FailingStream) or stream.device is not self:
            raise DeviceMismatchError("stream", expected=repr(self), found=repr(stream))
        return stream.inner

    def __repr__(self) -> str:
        planned = ", ".join(f"{operation} {number}" for operation, number in self._fail.items())
        return f"<FailingDevice {planned or 'nothing'}, {self._num_failures} failed, {self.inner}>"


def _raise(error: DeviceError) -> NoReturn:
    raise error


class FailingStream(Closeable):
    """A stream of a ``FailingDevice``.

    Attributes:
        inner: The stream that does the work.
    """

    def __init__(self, inner: Stream, *, device: FailingDevice) -> None:
        self.inner = inner
        self._device = device

    @property
    def handle(self) -> int:
        """The stream's number; 0 is the null stream."""
        return self.inner.handle

    @property
    def name(self) -> str:
        """The stream's name."""
        return self.inner.name

    @property
    def device(self) -> FailingDevice:
        """The device it works on."""
        return self._device

    def record(self) -> Event:
        """Return an event, or raise DeviceError."""
        self._device.check("record")
        return self.inner.record()

    def wait(self, event: Event) -> None:
        """Let later work wait for ``event``, or raise DeviceError."""
        self._device.check("wait")
        self.inner.wait(event)

    def synchronize(self) -> None:
        """Block until all work given until now has run, or raise DeviceError."""
        self._device.check("synchronize")
        self.inner.synchronize()

    def close(self) -> None:
        """Close the stream that does the work."""
        self.inner.close()

    def __repr__(self) -> str:
        return f"<FailingStream of {self.inner!r}>"
