"""What a device is: a memory of its own beside the host's, and streams that work on it.

Device, DeviceBuffer, Stream and Kernel name each other, so they stand in one module;
docs/design/0017-adding-a-device.md says how another device is added.

Rules that hold on all of them, and that the contract test checks:

* Work given to a stream runs in the order in which it was given; two streams are ordered only by
  events. The default stream orders nothing beyond itself.
* Giving work to a stream never waits for that work, and a stream never waits on the caller's
  thread: ``Event.synchronize`` and ``Stream.synchronize`` are the only waits, besides
  the results of ``Device.asum`` and ``Device.sumsq`` and ``Stream.close``.
* A copy keeps both of its ends alive until it has run, so nothing has to wait for it before it
  drops a reference. It reads the bytes that are there when it *runs*: refilling a host buffer
  before the copy's event has passed tears the data.
* The current stream belongs to the calling thread; no other thread changes it.
* Every method may be called from any thread.
* Buffers are freed by reference counting, possibly within a garbage collection on any thread;
  freeing takes no lock and makes no device call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, final, runtime_checkable

from memory._device.copies import DeviceCopies
from memory._device.maths import DeviceMaths
from memory._errors import BufferMismatchError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from memory._device.accounting import DeviceMemory
    from memory._device.event import Event
    from memory._device.host_memory import HostBuffer


@runtime_checkable
class UseObserver(Protocol):
    """An owner of device memory that wants to know which streams are handed its data."""

    def note_use(self, stream: Stream, /) -> None:
        """Take note that work on ``stream`` may use the data from now on, and keep it alive.

        Called on the thread that asked for the data, before it gets it. Must not block.

        Args:
            stream: The asking thread's current stream.
        """
        ...


@final
class DeviceBuffer:
    """A range of a device's memory: an address, a size, and an owner that keeps the memory alive.

    Attributes:
        ptr: Address of the first byte in the device's memory; never an address of the host's.
        nbytes: Size in bytes.
        device: The device whose memory it is.
        owner: What keeps the memory allocated, kept alive by this object; may be a UseObserver.
    """

    __slots__ = ("__weakref__", "_parent", "device", "nbytes", "owner", "ptr")

    def __init__(self, ptr: int, nbytes: int, *, device: Device, owner: object = None) -> None:
        self.ptr = ptr
        self.nbytes = nbytes
        self.device = device
        self.owner = owner
        self._parent: DeviceBuffer | None = None

    def slice(self, offset: int, nbytes: int, owner: object = None) -> DeviceBuffer:
        """Return a part of this buffer.

        Args:
            offset: First byte of the part, counted from this buffer's first.
            nbytes: Size of the part in bytes.
            owner: What the part names as its owner; None for this buffer's own. The memory that
                this buffer keeps alive is kept alive by the part in either case.

        Raises:
            BufferMismatchError: Where the part is not wholly inside of this buffer.
        """
        if offset < 0 or nbytes < 0 or offset + nbytes > self.nbytes:
            raise BufferMismatchError(
                "slice",
                expected=f"a part of the buffer's {self.nbytes} bytes",
                found=f"{nbytes} bytes from byte {offset}",
            )
        part = DeviceBuffer(
            self.ptr + offset,
            nbytes,
            device=self.device,
            owner=self.owner if owner is None else owner,
        )
        part._parent = self if owner is not None else self._parent
        return part

    def note_use(self, stream: Stream) -> None:
        """Tell the owner, if it is a ``UseObserver``, that ``stream`` may use this buffer."""
        # A plain attribute look-up: isinstance() of a runtime protocol costs microseconds.
        note = getattr(self.owner, "note_use", None)
        if note is not None:
            note(stream)

    def __repr__(self) -> str:
        return f"<DeviceBuffer {self.nbytes} bytes at {self.ptr:#x} on {self.device.name}>"


@runtime_checkable
class Stream(Protocol):
    """A queue of work on a device, which runs in order.

    Closing finishes the queued work first. A stream that is collected open closes itself, without
    waiting, and gives a ResourceWarning.
    """

    @property
    def handle(self) -> int:
        """The stream's number, unique among the device's open streams; 0 is the null stream."""
        ...

    @property
    def name(self) -> str:
        """The name given to make_stream(), for people."""
        ...

    @property
    def device(self) -> Device:
        """The device it works on."""
        ...

    def record(self) -> Event:
        """Return an event that passes when all work given to the stream until now has run.

        Raises:
            ClosedError: After close().
        """
        ...

    def wait(self, event: Event) -> None:
        """Let all later work of this stream wait for ``event``. The host does not block.

        If the event fails, the work after it still runs, and the failure counts as this stream's.

        Args:
            event: Of any stream; also one that host code passes, such as a test's latch.

        Raises:
            ClosedError: After close().
        """
        ...

    def synchronize(self) -> None:
        """Block the calling thread until all work given until now has run.

        Raises:
            DeviceError: If any of it failed that no earlier call has reported. The failure is
                reported once: the stream is good again afterwards.
            ClosedError: After close().
        """
        ...

    def close(self) -> None:
        """Finish the queued work, then end the stream. Idempotent; blocks; raises no failure."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...


@runtime_checkable
class Kernel(Protocol):
    """A function compiled for a device."""

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        stream: Stream,
    ) -> None:
        """Give the kernel to ``stream``; buffers among ``args`` stay alive until it has run.

        Args:
            grid: Number of blocks in up to three dimensions.
            block: Number of threads in a block, in up to three dimensions.
            args: DeviceBuffers and NumPy scalars, in the order of the kernel's parameters.
            stream: Runs it.
        """
        ...


@runtime_checkable
class Device(
    DeviceCopies["DeviceBuffer", "Stream"], DeviceMaths["DeviceBuffer", "Stream"], Protocol
):
    """A place where data lives beside the host, with streams that move and change it.

    Use it as a context manager, or close() it. All methods may be called from any thread.
    On a device without a second memory, everything but alloc_host(), memory_info() and close()
    raises NoDeviceMemoryError.
    """

    @property
    def name(self) -> str:
        """Name by which open_device() knows it, such as ``cpu``, ``simulated`` or ``cuda:0``."""
        ...

    @property
    def has_device_memory(self) -> bool:
        """Whether it has a memory besides the host's."""
        ...

    def alloc_host(self, nbytes: int, *, zero: bool = False) -> HostBuffer:
        """Allocate host memory, pinned where the device is a GPU.

        Args:
            nbytes: Size in bytes; 0 is valid.
            zero: Fill it with zeros; its bytes are unspecified otherwise.

        Raises:
            HostMemoryError: If there is not enough memory.
            BufferMismatchError: If ``nbytes`` is negative.
        """
        ...

    def alloc_device(self, nbytes: int) -> DeviceBuffer:
        """Allocate device memory; its bytes are unspecified.

        It is freed when the buffer's owner is collected, that is when no DeviceBuffer made from
        it and no queued work is left.

        Args:
            nbytes: Size in bytes; 0 is valid.

        Raises:
            DeviceMemoryError: If there is not enough memory.
            BufferMismatchError: If ``nbytes`` is negative.
        """
        ...

    def make_stream(self, name: str = "") -> Stream:
        """Make a stream of its own order; nothing else, the null stream included, orders it.

        Args:
            name: For people: appears in its repr, in errors and as its thread's name.
        """
        ...

    def dedicate_thread(self) -> None:
        """Take the calling thread, which has no other use, into this device's service.

        Every call leaves the caller's current GPU as it was. On a thread that was given to this
        device the GPU becomes, and stays, the current one instead: a new thread's current GPU is
        the first, and to make that current again, CUDA sets it up and takes memory on it.
        """
        ...

    def current_stream(self) -> Stream:
        """Return the calling thread's current stream; the null stream unless use_stream() is on."""
        ...

    def stream_from(self, stream: object) -> Stream:
        """Return this device's stream for one of its own, or for another library's.

        Args:
            stream: One of this device's streams. On a GPU also another library's: anything with
                ``__cuda_stream__``, a ``torch.cuda.Stream``, or CUDA's handle as an integer.

        Raises:
            DeviceMismatchError: If it is another device's.
            BufferMismatchError: If it is no stream at all.
        """
        ...

    def use_stream(self, stream: Stream) -> AbstractContextManager[None]:
        """Make ``stream`` the calling thread's current stream within a ``with`` block.

        Args:
            stream: One of this device's.
        """
        ...

    def compile(self, source: str, name: str) -> Kernel:
        """Compile a kernel for this device.

        Args:
            source: CUDA C++.
            name: The function in it.

        Raises:
            NotImplementedDeviceError: On a device that runs no such code.
        """
        ...

    def memory_info(self) -> DeviceMemory:
        """Return what is allocated now. Never blocks on a stream; works on a closed device."""
        ...

    def close(self) -> None:
        """Close every stream of the device, which finishes their work. Idempotent; blocks.

        Buffers stay valid, and are freed when they are collected.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...
