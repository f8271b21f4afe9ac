"""Bytes that live on the host and on a device, and are copied only when the other side needs them.

Caffe's SyncedMemory with its holes closed. The module ``head`` is its state machine, ``sides`` does
the work. A call that fails leaves the contents and the head as they were.
"""

from __future__ import annotations

import logging
import operator
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, Self, final

from memory._device.closeable import Closeable
from memory._errors import (
    BufferMismatchError,
    ClosedError,
    DeviceError,
    DeviceMismatchError,
    HeadError,
    NoDeviceMemoryError,
)
from memory._open_device import open_device
from memory._synced.foreign_buffers import device_buffer, host_bytes
from memory._synced.head_transitions import Call, Head, Transition, Work, transition
from memory._synced.sides import Sides
from memory._synced.views import read_only

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from memory._device.device import Device, DeviceBuffer, Stream
    from memory._device.event import Event
    from memory._synced.sides import PushEnds

_logger = logging.getLogger("memory")


@final
class SyncedMemory(Closeable):
    """A number of bytes with a host side and a device side, either allocated when first touched.

    Bytes that were never written are zero. Any thread may call any method: each is one step,
    guarded by a lock that no finalizer takes. The views handed out are not guarded; two threads
    that share them agree between themselves who writes.

    A view shows the newest bytes until the next call that moves the head; its memory is good for as
    long as it lives. An access that needs the other side's bytes copies them on the calling
    thread's current stream, behind all that the streams which were handed the device's bytes had
    been given until then, and waits for the copy. Access to the device alone waits for nothing: the
    current stream is put behind a push in flight and behind those streams.

    After :meth:`close` each call that reaches the bytes raises ClosedError. Collection waits for
    nothing: before you refill an array that was given to it, call ``push_event.synchronize()``, or
    close it.

    Why it is this large: it is the interface of Caffe's SyncedMemory, and its like for pushes.

    Example:
        >>> from memory import SyncedMemory, open_device
        >>> with open_device("simulated") as device:
        ...     memory = SyncedMemory(4, device)
        ...     memory.mutable_cpu_data()[:] = 7
        ...     buffer = memory.gpu_data()
        ...     memory.head
        <Head.SYNCED: 3>
    """

    # No finalizer, on purpose: it could run in a garbage collection on any thread, and waiting
    # there may deadlock. Nothing needs one, because a copy in flight holds both of its ends (a rule
    # of all devices): memory is freed, and a lease behind an external array returns, with the last
    # of object, views and copies.

    __slots__ = ("__weakref__", "_closed", "_device", "_head", "_lock", "_sides", "_size")

    def __init__(self, size: int = 0, device: Device | None = None) -> None:
        """Describe the memory; nothing is allocated yet.

        Args:
            size: Bytes.
            device: Where the other side is; None for ``cpu``, which has none.

        Raises:
            BufferMismatchError: ``size`` is negative, or more than can be addressed.
        """
        size = operator.index(size)
        if not 0 <= size <= sys.maxsize:
            raise BufferMismatchError(
                "SyncedMemory", expected=f"0 to {sys.maxsize} bytes", found=f"{size} bytes"
            )
        self._size: Final = size
        self._device: Final = open_device("cpu") if device is None else device
        self._lock: Final = threading.Lock()
        self._head = Head.UNINITIALIZED
        self._sides = Sides(size, self._device)
        self._closed = False

    @classmethod
    def over(cls, array: NDArray[Any], device: Device | None = None) -> Self:
        """Make a memory of an array's size whose host's side it is, as by :meth:`set_cpu_data`.

        Args:
            array: Any dtype but object, any shape; C-contiguous, aligned, writable.
            device: Where the other side is; None for ``cpu``, which has none.

        Raises:
            BufferMismatchError: It is something else.
        """
        memory = cls(array.nbytes, device)
        memory._sides.host = host_bytes("over", array, array.nbytes)
        memory._head = Head.HEAD_AT_CPU
        return memory

    @property
    def head(self) -> Head:
        """Which side holds the newest bytes."""
        return self._head

    @property
    def size(self) -> int:
        """Bytes."""
        return self._size

    @property
    def device(self) -> Device:
        """Where the other side is."""
        return self._device

    @property
    def push_event(self) -> Event | None:
        """The event of the push, or of the filling of the device's side, that is in flight.

        None if there is none, or it is known to have passed.
        """
        return self._sides.in_flight

    def cpu_data(self) -> NDArray[np.uint8]:
        """Read the bytes on the host.

        Blocks for a copy if the newest bytes are on the device; never for a push in flight.

        Returns:
            A read-only view, uint8, shape (size,).

        Raises:
            HostMemoryError: The host's side cannot be allocated.
            DeviceError: The copy failed.
        """
        return read_only(self._on_host(Call.CPU_DATA))

    def mutable_cpu_data(self) -> NDArray[np.uint8]:
        """Read and write the bytes on the host; the device's copy is out of date from here on.

        Blocks for a copy if the newest bytes are on the device, and until a push in flight has
        passed.

        Returns:
            A writable view, uint8, shape (size,).

        Raises:
            HostMemoryError: The host's side cannot be allocated.
            DeviceError: The copy failed, or the push in flight had.
        """
        return self._on_host(Call.MUTABLE_CPU_DATA).view()

    def overwrite_cpu_data(self) -> NDArray[np.uint8]:
        """Write all of the bytes on the host without a look at the old ones.

        As :meth:`mutable_cpu_data`, but nothing is copied or zeroed: what the view shows at first
        is unspecified, and what is not written stays so.

        Returns:
            A writable view, uint8, shape (size,).

        Raises:
            HostMemoryError: The host's side cannot be allocated.
            DeviceError: The push in flight had failed.
        """
        return self._on_host(Call.OVERWRITE_CPU_DATA).view()

    def gpu_data(self) -> DeviceBuffer:
        """Read the bytes on the device, with work on the calling thread's current stream.

        Blocks for a copy if the newest bytes are on the host only; a push in flight is waited for
        by the current stream, not by the host.

        Returns:
            The device's side, ``size`` bytes. It is not to be written to.

        Raises:
            NoDeviceMemoryError: The device has no memory of its own.
            DeviceMemoryError: The device's side cannot be allocated.
            DeviceError: The copy failed, or the push in flight had.
        """
        return self._on_device(Call.GPU_DATA)

    def mutable_gpu_data(self) -> DeviceBuffer:
        """Read and write the bytes on the device; the host's copy is out of date from here on.

        Blocks and raises as :meth:`gpu_data` does.

        Returns:
            The device's side, ``size`` bytes.
        """
        return self._on_device(Call.MUTABLE_GPU_DATA)

    def overwrite_gpu_data(self) -> DeviceBuffer:
        """Write all of the bytes on the device without a look at the old ones.

        As :meth:`mutable_gpu_data`, but nothing is copied or zeroed, so it never blocks: what is
        not written is unspecified.

        Returns:
            The device's side, ``size`` bytes.
        """
        return self._on_device(Call.OVERWRITE_GPU_DATA)

    def set_cpu_data(self, array: NDArray[Any]) -> None:
        """Use the caller's array as the host's side; the device's copy is out of date.

        The array is used in place and kept alive. A later copy from the device lands in it. Blocks
        until a push in flight has passed, after which the old host side is no longer used.

        Args:
            array: Any dtype but object, any shape; C-contiguous, aligned, writable, of exactly
                ``size`` bytes.

        Raises:
            BufferMismatchError: It is something else.
            DeviceError: The push in flight had failed.
        """
        host: NDArray[np.uint8] | None = host_bytes("set_cpu_data", array, self._size)
        with self._lock:
            step = self._begin(Call.SET_CPU_DATA)
            self._settle_for_others()
            # Swapped, so that the old array dies after the lock is given back: what its last
            # reference sets off is not ours to know.
            self._sides.host, host = host, self._sides.host
            self._head = step.head

    def set_gpu_data(
        self,
        buffer: DeviceBuffer,
        *,
        filled: Event | None = None,
        host: NDArray[Any] | None = None,
    ) -> None:
        """Use the caller's buffer as the device's side; the host's copy is out of date.

        The buffer, and its owner with it, is kept alive. Blocks until a push in flight has passed.

        Args:
            buffer: Of this object's device, exactly ``size`` bytes.
            filled: Passes when the work that fills the buffer has run: later calls for the bytes
                are ordered behind it, as behind a push. Without it, such work must be on, or
                ordered before, the streams that are current where the bytes are asked for.
            host: The same bytes, as an array for :meth:`set_cpu_data`. Both sides are set then, as
                after a push with ``filled`` for its event, and the head is at SYNCED.

        Raises:
            NoDeviceMemoryError: The device has no memory of its own.
            BufferMismatchError: It is no DeviceBuffer, or of another size; or ``host`` is.
            DeviceMismatchError: It is another device's.
            DeviceError: The push in flight had failed.
        """
        self._refuse_without_device_memory(Call.SET_GPU_DATA)
        gpu: DeviceBuffer | None = device_buffer("set_gpu_data", buffer, self._size, self._device)
        here = None if host is None else host_bytes("set_gpu_data", host, self._size)
        with self._lock:
            step = self._begin(Call.SET_GPU_DATA if here is None else Call.SET_BOTH)
            self._settle_for_others()
            self._sides.gpu, gpu = gpu, self._sides.gpu
            if here is not None:
                self._sides.host, here = here, self._sides.host
            self._sides.streams = ()
            self._sides.in_flight = filled
            self._sides.is_filling = filled is not None and host is None
            self._head = step.head

    def async_gpu_push(self, stream: Stream, *, ends: PushEnds | None = None) -> None:
        """Start to copy the host's bytes to the device, and return.

        The head is at SYNCED at once; :attr:`push_event` passes when the copy has run. The copy
        comes after all that the streams which were handed the device's bytes had been given.

        Args:
            stream: Of this object's device; runs the copy.
            ends: The same two sides, as objects that the copy keeps alive instead of this one's
                own until it has run: (device buffer, (size,) uint8 host array). For an owner that
                lends the sides and waits for :attr:`push_event` itself, so that a copy in flight
                does not count as a use of what was lent.

        Raises:
            NoDeviceMemoryError: The device has no memory of its own.
            BufferMismatchError: ``ends`` are not this object's two sides.
            HeadError: The head is not at HEAD_AT_CPU, so there is nothing new to push.
            DeviceMismatchError: The stream is another device's.
            DeviceMemoryError: The device's side cannot be allocated.
            ClosedError: After :meth:`close`, or after the stream's.
        """
        self._refuse_without_device_memory(Call.ASYNC_GPU_PUSH)
        if stream.device is not self._device:
            raise DeviceMismatchError(
                "stream", expected=self._device.name, found=repr(stream.device.name)
            )
        with self._lock:
            step = self._begin(Call.ASYNC_GPU_PUSH)
            self._sides.push(stream, ends)
            self._head = step.head

    def copy_from(self, source: SyncedMemory, *, nbytes: int | None = None) -> None:
        """Copy another object's newest bytes to the start of this one's.

        The copy is made on the side where the newest bytes of the source are: on the device, on the
        current stream and without a wait, if its head is at HEAD_AT_GPU or SYNCED and both objects
        are on one device; else on the host. That is also where the head of this one is afterwards.

        Args:
            source: May be this object itself.
            nbytes: How many; None for all of this object's. The others stay as they are.

        Raises:
            BufferMismatchError: One of the two has fewer bytes.
            SyncedMemoryError: What the accessors of both raise.
        """
        count = self._size if nbytes is None else operator.index(nbytes)
        if not 0 <= count <= min(self._size, source._size):
            raise BufferMismatchError(
                "copy_from",
                expected=f"0 to {min(self._size, source._size)} bytes",
                found=f"{count} bytes",
            )
        if source is self:
            return
        whole = count == self._size
        on_device = source._head in {Head.HEAD_AT_GPU, Head.SYNCED}
        if on_device and source._device is self._device:
            there = source.gpu_data().slice(0, count)
            self._on_device(
                Call.OVERWRITE_GPU_DATA if whole else Call.MUTABLE_GPU_DATA,
                lambda gpu, stream: self._device.copy_on_device(
                    gpu.slice(0, count), there, stream=stream
                ),
            )
        else:
            here = source.cpu_data()[:count]
            host = self._on_host(Call.OVERWRITE_CPU_DATA if whole else Call.MUTABLE_CPU_DATA)
            host[:count] = here

    def synchronize(self) -> None:
        """Block until the push in flight, if there is one, has passed.

        Raises:
            DeviceError: It failed.
        """
        with self._lock:
            self._settle()

    def close(self) -> None:
        """Wait for a push in flight and release both sides. Idempotent.

        Views and buffers handed out keep their memory. The failure of a push that was not raised
        is logged, not raised: the contents are being thrown away.
        """
        # Swapped within the lock and waited for without it: other threads are refused at once.
        with self._lock:
            sides, self._sides = self._sides, Sides(0, self._device)
            self._head = Head.UNINITIALIZED
            self._closed = True
        try:
            sides.settle()
        except DeviceError as error:
            # Its text only: a kept record would keep the frames, and with them the buffers.
            _logger.warning("closed; a failed push had not been raised yet: %s", str(error))

    def __repr__(self) -> str:
        event = self._sides.in_flight
        flight = ", push in flight" if event is not None and not event.done() else ""
        state = "closed" if self._closed else self._head.name
        return f"<SyncedMemory {self._size} bytes on {self._device.name}, {state}{flight}>"

    @property
    def _gpu(self) -> DeviceBuffer | None:
        """The device's side as it is, for ``memory.testing.peek``."""
        return self._sides.gpu

    def _on_host(self, call: Call) -> NDArray[np.uint8]:
        """Do what a call for the host's side has to do, and return that side."""
        with self._lock:
            step = self._begin(call)
            # A push reads the host's bytes: reading them too does no harm, all else must wait.
            if call is not Call.CPU_DATA:
                self._settle()
            if step.work is Work.ZERO_HOST:
                self._sides.zero_host()
            elif step.work is Work.COPY_TO_HOST:
                self._sides.copy_to_host()
            host = self._sides.need_host()
            # Last: a failure before this has left the head where it was.
            self._head = step.head
            return host

    def _on_device(
        self, call: Call, write: Callable[[DeviceBuffer, Stream], None] | None = None
    ) -> DeviceBuffer:
        """Do what a call for the device's side has to do, and return that side.

        Args:
            call: The call.
            write: Gives work on the buffer to the stream, before the head moves.
        """
        self._refuse_without_device_memory(call)
        with self._lock:
            step = self._begin(call)
            stream = self._device.current_stream()
            if step.work is Work.COPY_TO_DEVICE:
                self._sides.copy_to_gpu(stream)
            else:
                # One that has passed costs no wait, and shows a failure here and not on the stream.
                if self._sides.has_passed():
                    self._settle()
                self._sides.order(stream)
            if step.work is Work.ZERO_DEVICE:
                self._sides.zero_gpu(stream)
            gpu = self._sides.need_gpu()
            self._sides.note(stream)
            if write is not None:
                write(gpu, stream)
            self._head = step.head
        # Without the lock: the owner's code is not ours.
        gpu.note_use(stream)
        return gpu

    def _begin(self, call: Call) -> Transition:
        """Look up what a call has to do.

        Raises:
            ClosedError: After close().
            HeadError: The head does not allow the call.
        """
        if self._closed:
            raise ClosedError(repr(self), operation=_name(call))
        step = transition(call, self._head)
        if step is None:
            raise HeadError(
                _name(call),
                expected=Head.HEAD_AT_CPU.name,
                found=self._head.name,
                cure="there is something to push after mutable_cpu_data() or set_cpu_data()",
            )
        return step

    def _settle(self) -> None:
        """Wait for the push in flight."""
        try:
            self._sides.settle()
        except DeviceError:
            # The host still has the newest bytes, so that the next push repairs it. At HEAD_AT_GPU
            # it was a filling that failed: there are no good bytes until others are set.
            if self._head is Head.SYNCED:
                self._head = Head.HEAD_AT_CPU
            raise

    def _settle_for_others(self) -> None:
        """Wait as `_settle` does, before other bytes are set."""
        try:
            self._settle()
        except DeviceError:
            # Also a failed filling is reported once here: the bytes that come replace it.
            self._sides.in_flight = None
            raise

    def _refuse_without_device_memory(self, call: Call) -> None:
        if not self._device.has_device_memory:
            raise NoDeviceMemoryError(self._device.name, operation=_name(call))


def _name(call: Call) -> str:
    """Return the name of the method that makes a call."""
    return call.name.lower()
