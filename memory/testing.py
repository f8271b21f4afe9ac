"""Tools for tests of code that works on devices.

* ``hold``: stop a stream, so that "the copy is still in flight" is a state that a test controls.
* ``peek``: look at the device's bytes as they are now, past every stream and without moving a head.
* ``FailingDevice``: let the nth call of an operation fail.
* ``live_buffers``: what is allocated, to find what was not freed.
* ``VirtualClock``: time that passes at once, for the simulated device's latency.

A limit on memory is an option of the simulated device,
``open_device("simulated", limit_bytes=...)``.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Self

import numpy as np

from memory._device.accounting import all_ledgers
from memory._device.device import DeviceBuffer
from memory._errors import BufferMismatchError, NoDataError, NotImplementedDeviceError
from memory._simulated.bus_timing import TransferStats
from memory._simulated.device import SimulatedDevice
from memory._simulated.failing import FAILING_OPERATIONS, FailingDevice, FailingStream

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray

    from memory._device.device import Device, Stream
    from memory._device.event import HostEvent

__all__ = [
    "FAILING_OPERATIONS",
    "FailingDevice",
    "FailingStream",
    "Hold",
    "LiveBuffers",
    "TransferStats",
    "VirtualClock",
    "hold",
    "live_buffers",
    "peek",
]

_HOLD_LIMIT_S: Final = 30.0


class Hold:
    """A stream that stands still; made by ``hold``.

    It is released by ``release()``, by the end of its ``with`` block, or when it is collected,
    whichever is first. Thread-safe.
    """

    def __init__(self, latch: HostEvent) -> None:
        self._latch = latch

    @property
    def released(self) -> bool:
        """Whether the stream may continue."""
        return self._latch.done()

    def release(self) -> None:
        """Let the stream continue. Idempotent; does not wait for its work."""
        self._latch.complete()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def __del__(self) -> None:
        if hasattr(self, "_latch"):  # else Ctrl-C came while it was made
            self.release()


def hold(stream: Stream, *, limit_s: float = _HOLD_LIMIT_S) -> Hold:
    """Hold a stream: work given to it from now on does not run until the hold is released.

    Work given before runs on. Several holds of a stream are passed one after the other.

    Example:
        >>> from memory import open_device
        >>> with open_device("simulated") as device, device.make_stream() as stream:
        ...     with hold(stream):
        ...         event = stream.record()
        ...         event.done()
        ...     event.synchronize()
        False

    Args:
        stream: Of a simulated device, also through a FailingDevice.
        limit_s: Seconds after which the stream continues by itself, with a failure. A test that
            waits for a stream which it holds itself then ends with an error that says so.

    Raises:
        NotImplementedDeviceError: For a stream that cannot be held.
        ClosedError: For a closed stream.
    """
    while isinstance(stream, FailingStream):
        stream = stream.inner
    make_latch = getattr(stream, "hold", None)
    if make_latch is None:
        raise NotImplementedDeviceError(
            stream.device.name,
            operation="hold",
            missing="its streams cannot be stopped; use the simulated device",
        )
    return Hold(make_latch(limit_s=limit_s))


def peek(data: object, *, wait: bool = True) -> NDArray[Any]:
    """Return a copy of what a device holds for ``data``.

    Nothing moves: no head, no copy into the host's side. A push of a Blob or SyncedMemory that is
    still in flight is waited for; no other work is. With ``wait=False`` nothing is waited for, so
    that on the simulated device a copy that has not run yet shows. Elsewhere the bytes are fetched
    on a stream of its own, which no other work is ordered with.

    Example:
        >>> import numpy as np
        >>> from memory import open_device
        >>> with open_device("simulated") as device:
        ...     hex(peek(device.alloc_device(1))[0])
        '0xcb'

    Args:
        data: A Blob, a SyncedMemory or a DeviceBuffer. A Blob's diff: ``peek(blob.diff)``.
        wait: Whether to wait for a push in flight.

    Returns:
        Host array: of a Blob its shape and dtype, of anything else uint8, shape (nbytes,).

    Raises:
        NoDataError: If there is no device memory behind it.
        BufferMismatchError: If ``data`` is something else.
    """
    if isinstance(data, DeviceBuffer):
        return _fetch(data)
    if wait:
        _await_push(data)
    if hasattr(data, "_gpu"):
        return _fetch(_device_side(data))
    if hasattr(data, "_data"):
        blob: Any = data
        dtype, count = np.dtype(blob.dtype), blob.count()
        # The memory may be larger than the blob, whose shape can shrink within its capacity.
        whole = _device_side(blob._data)  # noqa: SLF001 - asking the blob would move its head
        values: NDArray[Any] = _fetch(whole.slice(0, count * dtype.itemsize)).view(dtype)
        return values.reshape(blob.shape)
    raise BufferMismatchError(
        "peek", expected="a Blob, SyncedMemory or DeviceBuffer", found=type(data).__name__
    )


def _await_push(data: object) -> None:
    event = getattr(data, "push_event", None)
    if event is not None:
        event.synchronize()


def _device_side(memory: object) -> DeviceBuffer:
    buffer = getattr(memory, "_gpu", None)
    if not isinstance(buffer, DeviceBuffer):
        raise NoDataError("peek", reason="nothing has asked for device memory yet")
    return buffer


def _fetch(buffer: DeviceBuffer) -> NDArray[np.uint8]:
    device = buffer.device
    while isinstance(device, FailingDevice):
        buffer, device = device.unwrap(buffer), device.inner
    if isinstance(device, SimulatedDevice):
        return device.peek(buffer)
    host = device.alloc_host(buffer.nbytes).array
    with device.make_stream("peek") as stream:
        device.copy_to_host(host, buffer, stream=stream)
        stream.synchronize()
    return host.copy()


@dataclass(frozen=True, slots=True)
class LiveBuffers:
    """Buffers of one device that are allocated.

    Attributes:
        device: Name of the device.
        side: Whose memory they take.
        num_buffers: How many there are.
        nbytes: Their bytes together.
    """

    device: str
    side: Literal["host", "device"]
    num_buffers: int
    nbytes: int

    def __str__(self) -> str:
        return f"{self.num_buffers} {self.side} buffers of {self.nbytes} bytes ({self.device})"


def live_buffers(device: Device | None = None) -> tuple[LiveBuffers, ...]:
    """Return what is allocated now; empty if all was freed.

    A fixture asks before and after a test, after ``gc.collect()``, and fails it if there is more.

    Args:
        device: The device; None for all that this process has ever opened, closed and collected
            ones included.
    """
    if device is None:
        counted = [(book.device, book.side, book.balance()) for book in all_ledgers()]
        found = [LiveBuffers(name, side, b.num_blocks, b.nbytes) for name, side, b in counted]
    else:
        info = device.memory_info()
        found = [
            LiveBuffers(device.name, "device", info.num_buffers, info.allocated_bytes),
            LiveBuffers(device.name, "host", info.num_host_buffers, info.host_allocated_bytes),
        ]
    live = (buffers for buffers in found if buffers.num_buffers)
    return tuple(sorted(live, key=lambda buffers: (buffers.device, buffers.side)))


class VirtualClock:
    """A clock on which sleeping takes no time: it only moves the hands. Thread-safe.

    Example:
        >>> import numpy as np
        >>> from memory import open_device
        >>> clock = VirtualClock()
        >>> with open_device("simulated", latency_s=0.5, sleep=clock.sleep) as device:
        ...     stream = device.current_stream()
        ...     device.copy_to_device(device.alloc_device(8), np.zeros(8, np.uint8), stream=stream)
        ...     stream.synchronize()
        >>> clock.now_s
        0.5
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now_s = 0.0

    @property
    def now_s(self) -> float:
        """Seconds slept since the clock was made, by all threads together."""
        with self._lock:
            return self._now_s

    def sleep(self, seconds: float) -> None:
        """Move the hands by ``seconds`` and return at once."""
        with self._lock:
            self._now_s += seconds


# Tracebacks and reprs name the place to import from.
for _public in (FailingDevice, FailingStream, TransferStats):
    _public.__module__ = __name__
