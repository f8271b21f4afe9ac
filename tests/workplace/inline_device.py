"""A device written for a test by docs/design/0017-adding-a-device.md: its streams have no threads.

Its memory is the host's. A stream runs what it is given at once, on the thread that gives it,
unless it waits for an event; then whoever lets the event pass runs what has been queued since.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
import weakref
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from memory import (
    BufferMismatchError,
    ClosedError,
    Device,
    DeviceBuffer,
    DeviceMismatchError,
    Event,
    NotImplementedDeviceError,
    Stream,
)
from memory._device.accounting import DeviceMemory, Ledger, device_memory
from memory._device.checks import check_byte, check_equal_sizes, check_floats, check_host_array
from memory._device.closeable import Closeable
from memory._device.event import Failure, HostEvent
from memory._device.host_memory import PageableBuffer, allocate_host
from memory._open_device import refuse_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from numpy.typing import DTypeLike, NDArray


def open_inline(_: int | None, options: Mapping[str, Any]) -> Device:
    """Open one, for ``register_device``."""
    refuse_options("inline", options)
    return InlineDevice()


class InlineStream(Closeable):
    """A queue that the threads which give it work empty."""

    def __init__(self, device: InlineDevice, *, handle: int, name: str) -> None:
        self.device = device
        self.handle = handle
        self.name = name
        self.closed = False
        self._queue: deque[Callable[[], None]] = deque()
        self._turn = threading.Lock()
        self._is_waiting = False
        self._failure: Failure | None = None

    def submit(self, operation: str, work: Callable[[], None]) -> None:
        """Queue work, and run what can be run."""
        if self.closed:
            raise ClosedError(f"stream {self.name!r}", operation=operation)
        self._queue.append(partial(self._attempt, operation, work))
        self._run()

    def record(self) -> Event:
        event = HostEvent()
        self.submit("record", lambda: event.complete(self._failure))
        return event

    def wait(self, event: Event) -> None:
        def resume() -> None:
            self._attempt("wait", event.synchronize)
            self._is_waiting = False
            self._run()

        def begin() -> None:
            self._is_waiting = True
            event.notify(resume)

        self.submit("wait", begin)

    def synchronize(self) -> None:
        event = HostEvent()

        def report() -> None:
            failure, self._failure = self._failure, None
            event.complete(failure)

        self.submit("synchronize", report)
        event.synchronize()

    def close(self) -> None:
        if not self.closed:
            finished = HostEvent()
            self.submit("close", finished.complete)
            finished.wait_for(None)
            self.closed = self.handle != 0 or self.device.closed

    def _attempt(self, operation: str, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 - it shows at the stream's next event
            if self._failure is None:
                self._failure = Failure(self.device.name, operation=operation, error=error)

    def _run(self) -> None:
        # Looked at again after the turn has ended: another thread may have queued work meanwhile.
        while self._queue and not self._is_waiting and self._turn.acquire(blocking=False):
            try:
                while self._queue and not self._is_waiting:
                    self._queue.popleft()()
            finally:
                self._turn.release()


class InlineDevice(Closeable):
    """Host memory as a device's, with streams that have no threads."""

    name = "inline"
    has_device_memory = True

    def __init__(self) -> None:
        self.closed = False
        self._host = Ledger(self.name, "host")
        self._memory = Ledger(self.name, "device")
        self._handles = itertools.count(1)
        self._streams: weakref.WeakSet[InlineStream] = weakref.WeakSet()
        self._null: weakref.ref[InlineStream] | None = None
        self._threads = threading.local()

    def alloc_host(self, nbytes: int, *, zero: bool = False) -> PageableBuffer:
        return allocate_host(nbytes, self._host, zero=zero)

    def alloc_device(self, nbytes: int) -> DeviceBuffer:
        self._check_open("alloc_device")
        array = allocate_host(nbytes, self._memory, poison=0xCC).array
        return DeviceBuffer(array.ctypes.data, array.nbytes, device=self, owner=array)

    def make_stream(self, name: str = "") -> InlineStream:
        self._check_open("make_stream")
        handle = next(self._handles)
        return self._add(InlineStream(self, handle=handle, name=name or f"inline-{handle}"))

    def dedicate_thread(self) -> None:
        pass

    def current_stream(self) -> InlineStream:
        if self._stack:
            return self._stack[-1]
        null = None if self._null is None else self._null()
        if null is None:
            null = self._add(InlineStream(self, handle=0, name="null"))
            null.closed = self.closed
            self._null = weakref.ref(null)
        return null

    def stream_from(self, stream: object) -> InlineStream:
        if not isinstance(stream, Stream):
            raise BufferMismatchError("stream", expected="a stream", found=repr(stream))
        if not isinstance(stream, InlineStream) or stream.device is not self:
            raise DeviceMismatchError("stream", expected=repr(self), found=repr(stream.device))
        return stream

    @contextlib.contextmanager
    def use_stream(self, stream: Stream) -> Iterator[None]:
        self._stack.append(self.stream_from(stream))
        try:
            yield
        finally:
            self._stack.pop()

    def copy_to_device(self, dst: DeviceBuffer, src: NDArray[np.uint8], *, stream: Stream) -> None:
        self._check_buffer("dst", dst)
        check_host_array("src", src, nbytes=dst.nbytes)
        self._submit("copy_to_device", lambda: np.copyto(_view(dst), src.reshape(-1)), stream)

    def copy_to_host(self, dst: NDArray[np.uint8], src: DeviceBuffer, *, stream: Stream) -> None:
        self._check_buffer("src", src)
        check_host_array("dst", dst, nbytes=src.nbytes, writable=True)
        self._submit("copy_to_host", lambda: np.copyto(dst.reshape(-1), _view(src)), stream)

    def copy_on_device(self, dst: DeviceBuffer, src: DeviceBuffer, *, stream: Stream) -> None:
        self._check_buffer("dst", dst)
        self._check_buffer("src", src)
        check_equal_sizes("dst", dst, other=src)
        self._submit("copy_on_device", lambda: np.copyto(_view(dst), _view(src)), stream)

    def fill(self, dst: DeviceBuffer, value: int, *, stream: Stream) -> None:
        self._check_buffer("dst", dst)
        check_byte("value", value)
        self._submit("fill", lambda: _view(dst).fill(value), stream)

    def axpy(
        self, y: DeviceBuffer, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream
    ) -> None:
        kind = check_floats("axpy", dtype, y)
        check_equal_sizes("x", x, other=y)

        def add() -> None:
            typed = _view(y).view(kind)
            typed += kind.type(alpha) * _view(x).view(kind)

        self._submit("axpy", add, stream)

    def scale(self, x: DeviceBuffer, *, alpha: float, dtype: DTypeLike, stream: Stream) -> None:
        kind = check_floats("scale", dtype, x)

        def multiply() -> None:
            typed = _view(x).view(kind)
            typed *= kind.type(alpha)

        self._submit("scale", multiply, stream)

    def asum(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        return self._reduce("asum", np.abs, x, dtype, stream)

    def sumsq(self, x: DeviceBuffer, *, dtype: DTypeLike, stream: Stream) -> float:
        return self._reduce("sumsq", np.square, x, dtype, stream)

    def compile(self, source: str, name: str) -> Any:  # noqa: ARG002 - the protocol's signature
        raise NotImplementedDeviceError(
            self.name, operation="compile", missing="it has no compiler"
        )

    def memory_info(self) -> DeviceMemory:
        return device_memory(self._host, self._memory)

    def close(self) -> None:
        self.closed = True
        for stream in tuple(self._streams):
            stream.close()

    @property
    def _stack(self) -> list[InlineStream]:
        stack: list[InlineStream] = self._threads.__dict__.setdefault("stack", [])
        return stack

    def _add(self, stream: InlineStream) -> InlineStream:
        self._streams.add(stream)
        return stream

    def _check_open(self, operation: str) -> None:
        if self.closed:
            raise ClosedError(f"device {self.name!r}", operation=operation)

    def _check_buffer(self, what: str, buffer: DeviceBuffer) -> None:
        if buffer.device is not self:
            raise DeviceMismatchError(what, expected=repr(self), found=repr(buffer.device))

    def _submit(self, operation: str, work: Callable[[], None], stream: Stream) -> None:
        def run() -> None:
            with np.errstate(all="ignore"):
                work()

        self.stream_from(stream).submit(operation, run)

    def _reduce(
        self,
        operation: str,
        term: Callable[[NDArray[Any]], NDArray[Any]],
        x: DeviceBuffer,
        dtype: DTypeLike,
        stream: Stream,
    ) -> float:
        kind = check_floats(operation, dtype, x)
        sums: list[float] = []
        self._submit(operation, lambda: sums.append(term(_view(x).view(kind)).sum()), stream)
        stream.record().synchronize()
        return float(sums[0])


def _view(buffer: DeviceBuffer) -> NDArray[np.uint8]:
    raw = (ctypes.c_uint8 * buffer.nbytes).from_address(buffer.ptr)
    return np.frombuffer(memoryview(raw), np.uint8) if buffer.nbytes else np.empty(0, np.uint8)
