"""The streams of one simulated device: its own, the null stream, and each thread's current one."""

from __future__ import annotations

import contextlib
import itertools
import threading
import weakref
from typing import TYPE_CHECKING

from memory._device.checks import describe_owner
from memory._errors import ClosedError, DeviceMismatchError
from memory._simulated.stream import SimulatedStream
from memory._simulated.stream_thread import StreamWorker, close_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory._device.device import Device


class SimulatedStreams:
    """Makes, finds and ends the streams of one device. Thread-safe.

    Args:
        device: Given to the streams, and else known weakly: nothing here keeps it alive.
        sleep: Called on a stream's thread with the seconds that a copy takes.
    """

    def __init__(self, device: Device, *, sleep: Callable[[float], object]) -> None:
        self.closed = False
        self._name = device.name
        self._device = weakref.ref(device)
        self._sleep = sleep
        self._lock = threading.Lock()
        self._handles = itertools.count(1)
        self._group = object()
        self._threads = threading.local()
        # The worker is kept, its handle made when asked for: a handle refers to the device, and the
        # cycle would leave both, and a thread, to the garbage collector.
        self._null_worker = self._make_worker("null")
        self._null: weakref.ref[SimulatedStream] | None = None

    def make(self, name: str) -> SimulatedStream:
        """Make a stream and start its thread.

        Raises:
            ClosedError: After close().
            DeviceError: If the system gives no thread.
        """
        self._null_worker.refuse_inherited("make_stream")
        handle = next(self._handles)
        worker = self._make_worker(name or f"{self._name}-{handle}")
        # Within the lock: close() must find every stream that was made before it.
        with self._lock:
            self.check_open("make_stream")
            worker.start()
        return self._make_handle(worker, handle)

    def current(self) -> SimulatedStream:
        """Return the calling thread's current stream, the null stream by default."""
        stack = self._stack()
        if stack:
            return stack[-1]
        self._null_worker.refuse_inherited("current_stream")
        with self._lock:
            stream = None if self._null is None else self._null()
            if stream is None:
                stream = self._make_handle(self._null_worker, 0)
                self._null = weakref.ref(stream)
            return stream

    @contextlib.contextmanager
    def use(self, stream: object) -> Iterator[None]:
        """Make a stream the calling thread's current one within a ``with`` block."""
        stack = self._stack()
        stack.append(self.own(stream))
        try:
            yield
        finally:
            stack.pop()

    def own(self, stream: object) -> SimulatedStream:
        """Return a stream of this device as what it is.

        Raises:
            DeviceMismatchError: If it is not this device's.
        """
        device = self._device()
        if not isinstance(stream, SimulatedStream) or stream.device is not device:
            raise DeviceMismatchError("stream", expected=repr(device), found=describe_owner(stream))
        return stream

    def check_open(self, operation: str) -> None:
        """Raise ClosedError after close(), and DeviceError in a forked child."""
        self._null_worker.refuse_inherited(operation)
        if self.closed:
            raise ClosedError(f"device {self._name!r}", operation=operation)

    def stop_null_soon(self) -> None:
        """Let the null stream's thread end after what is queued; for the device's finalizer."""
        self._null_worker.stop_soon()

    def close(self) -> None:
        """Finish the work of every stream and join its thread. Idempotent."""
        if self._null_worker.inherited:
            # The parent's lock may have been held at the fork, and its threads are not here.
            self.closed = True
            return
        with self._lock:
            self.closed = True
        self._null_worker.close()
        close_group(self._group)

    def _make_worker(self, name: str) -> StreamWorker:
        return StreamWorker(device=self._name, name=name, group=self._group, sleep=self._sleep)

    def _make_handle(self, worker: StreamWorker, handle: int) -> SimulatedStream:
        device = self._device()
        assert device is not None  # these are the device's own calls
        return SimulatedStream(worker, handle=handle, device=device)

    def _stack(self) -> list[SimulatedStream]:
        stack: list[SimulatedStream] = self._threads.__dict__.setdefault("stack", [])
        return stack
