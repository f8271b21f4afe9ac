"""The two sides of some bytes: their allocation, the copies between them, and what is in flight.

This is the part of a SyncedMemory that touches the device. It knows nothing of the head: its owner
asks for one thing at a time, under a lock, and takes the new head when that has succeeded.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from memory._device.checks import address_of
from memory._errors import BufferMismatchError, ClosedError, DeviceError, SyncedMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from memory._device.device import Device, DeviceBuffer, Stream
    from memory._device.event import Event


from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memory._device.device import Stream


PushEnds: TypeAlias = "tuple[DeviceBuffer, NDArray[np.uint8]]"
"""Where a copy goes and what it reads."""


class Sides:
    """A host side and a device side of the same size, each allocated when first needed.

    Not thread-safe.

    Attributes:
        host: uint8, shape (size,), writable; None until needed.
        gpu: ``size`` bytes; None until needed.
        in_flight: The event of the latest copy or filling that is not known to have run.
        is_filling: Whether that is a filling of the device side, which leaves no copy on the host.
        streams: Those that were handed the device side and may still be at work on it.
    """

    __slots__ = ("device", "gpu", "host", "in_flight", "is_filling", "size", "streams")

    def __init__(self, size: int, device: Device) -> None:
        self.size = size
        self.device = device
        self.host: NDArray[np.uint8] | None = None
        self.gpu: DeviceBuffer | None = None
        self.in_flight: Event | None = None
        self.is_filling = False
        self.streams: tuple[Stream, ...] = ()

    def need_host(self) -> NDArray[np.uint8]:
        """Return the host side; what a new one holds is unspecified."""
        if self.host is None:
            self.host = self.device.alloc_host(self.size).array
        return self.host

    def need_gpu(self) -> DeviceBuffer:
        """Return the device side; what a new one holds is unspecified."""
        if self.gpu is None:
            self.gpu = self.device.alloc_device(self.size)
        return self.gpu

    def zero_host(self) -> None:
        """Take a new host side, of zeros."""
        # Not a fill: the system hands out large blocks of zeros for nothing.
        self.host = self.device.alloc_host(self.size, zero=True).array

    def zero_gpu(self, stream: Stream) -> None:
        """Let a stream make the device side zero."""
        self.device.fill(self.need_gpu(), 0, stream=stream)

    def copy_to_host(self) -> None:
        """Copy the device side to the host side on the current stream, and wait for it.

        What a closed device holds can still be read: its memory may have owners that did not close
        it.
        """
        self.settle()
        try:
            host, gpu, stream = self.need_host(), self.need_gpu(), self.device.current_stream()
            self._start(lambda: self.device.copy_to_host(host, gpu, stream=stream), stream=stream)
        except ClosedError:
            if not self._fetch_when_closed():
                raise
            return
        self._finish(stream)

    def copy_to_gpu(self, stream: Stream) -> None:
        """Copy the host side to the device side on a stream, and wait for it."""
        self.push(stream, None)
        self._finish(stream)

    def push(self, stream: Stream, ends: PushEnds | None) -> None:
        """Give a stream a copy of the host side to the device side, and do not wait for it."""
        self.settle()  # one event at a time: in_flight has to cover the host side
        host, gpu = self.need_host(), self.need_gpu()
        if ends is not None:
            gpu, host = _checked_ends(ends, gpu, host)
        self._start(lambda: self.device.copy_to_device(gpu, host, stream=stream), stream=stream)
        # Their work is behind the copy's event now.
        self.streams = ()

    def settle(self) -> None:
        """Wait until no copy and no filling is in flight.

        Raises:
            DeviceError: The copy failed. It is reported once; nothing is in flight afterwards. That
                of a filling is reported each time, as there are no other bytes to fall back on.
        """
        if self.in_flight is None:
            return
        try:
            self.in_flight.synchronize()
        except DeviceError:
            if not self.is_filling:
                self.in_flight = None
            raise
        # Not in a finally: if Ctrl-C ends the wait, the copy is still in flight.
        self.in_flight = None

    def has_passed(self) -> bool:
        """Return whether the copy in flight has passed or failed, which was not reported yet."""
        return self.in_flight is not None and self.in_flight.done()

    def order(self, stream: Stream) -> None:
        """Let later work of a stream come after all that is at work on the device side."""
        if self.in_flight is not None:
            stream.wait(self.in_flight)
        order_behind(stream, self.streams)

    def note(self, stream: Stream) -> None:
        """Take note that a stream is handed the device side."""
        self.streams = with_stream(self.streams, stream)

    def _fetch_when_closed(self) -> bool:
        """Copy the device side to the host's without a stream; return False for an open device."""
        fetch = getattr(self.device, "fetch_when_closed", None)
        if fetch is None or self.gpu is None:
            return False
        for stream in self.streams:
            with contextlib.suppress(ClosedError):  # closing it has finished its work
                stream.synchronize()
        host = np.empty(self.size, np.uint8) if self.host is None else self.host
        if not fetch(host, self.gpu):
            return False
        self.host = host
        return True

    def _start(self, copy: Callable[[], None], *, stream: Stream) -> None:
        """Give a copy to a stream, behind the others that are at work on the device side."""
        order_behind(stream, self.streams)
        copy()
        self.is_filling = False
        try:
            self.in_flight = stream.record()
        except BaseException:
            # Without an event there is nothing to wait for later.
            with contextlib.suppress(SyncedMemoryError):
                stream.synchronize()
            raise

    def _finish(self, stream: Stream) -> None:
        """Wait for the copy just given to a stream."""
        # The stream and not the event, which would leave the failure to the stream's next user.
        try:
            stream.synchronize()
        except DeviceError:
            if self.has_passed():
                self.in_flight = None
            raise
        self.in_flight = None


def _checked_ends(ends: PushEnds, own_gpu: DeviceBuffer, own_host: NDArray[np.uint8]) -> PushEnds:
    """Return the ends of a copy if they are the sides that it is to be between.

    Raises:
        BufferMismatchError: They are other memory.
    """
    gpu, host = ends
    same_gpu = (gpu.ptr, gpu.nbytes, gpu.device) == (own_gpu.ptr, own_gpu.nbytes, own_gpu.device)
    if not same_gpu or host.nbytes != own_host.nbytes or address_of(host) != address_of(own_host):
        raise BufferMismatchError(
            "async_gpu_push",
            expected="ends that are the two sides themselves",
            found=f"{gpu.nbytes} bytes on the device and {host.nbytes} on the host, elsewhere",
        )
    return ends


def with_stream(streams: tuple[Stream, ...], stream: Stream) -> tuple[Stream, ...]:
    """Add a stream to those noted, in place of one with the same handle, which is closed."""
    if stream in streams:
        return streams
    return (*(noted for noted in streams if noted.handle != stream.handle), stream)


def order_behind(stream: Stream, streams: tuple[Stream, ...]) -> None:
    """Let later work of ``stream`` wait for all that the noted streams were given until now."""
    for noted in streams:
        if noted.handle == stream.handle:
            continue
        try:
            event = noted.record()
        except ClosedError:
            # Closing has finished its work; the handle of a closed stream may be another's by now.
            continue
        stream.wait(event)
