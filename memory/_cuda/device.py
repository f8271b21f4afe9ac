"""An NVIDIA GPU as a device, through CuPy: its life, memory, streams and copies."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Final

from memory._cuda.context import CudaContext
from memory._cuda.export import CudaExports
from memory._cuda.maths import CudaMaths
from memory._cuda.memory import CudaMemory
from memory._cuda.priority import priority_number
from memory._cuda.runtime import runtime
from memory._cuda.stream import CudaStream
from memory._cuda.stream_registry import CudaStreams
from memory._device.accounting import DeviceMemory, device_memory
from memory._device.checks import address_of, check_byte, check_equal_sizes, check_host_array
from memory._device.closeable import Closeable
from memory._device.device import DeviceBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from memory._cuda.priority import StreamPriority
    from memory._device.device import Stream
    from memory._device.host_memory import HostBuffer

_KINDS: Final[dict[str, int]] = {
    "to_device": runtime.memcpyHostToDevice,
    "to_host": runtime.memcpyDeviceToHost,
    "on_device": runtime.memcpyDeviceToDevice,
}


class CudaDevice(CudaMaths, CudaExports, Closeable):
    """A GPU; see ``Device``. Thread-safe.

    Every call may be made with any device current, and leaves it so. The current stream is CuPy's:
    ``with cupy.cuda.Stream(...)`` and ``use_stream`` are the same thing.

    What CUDA adds to the rules of all devices:

    * A copy from host memory that is not pinned reads it before the call returns; one to such
      memory returns when it has run. Buffers of ``alloc_host`` are pinned.
    * A failure on the GPU itself cannot be recovered from: every later call in the process fails.
    * Kernels, which ``axpy``, ``scale``, ``asum``, ``sumsq`` and ``compile`` run, need NVRTC.

    Closing it ends its own streams and its threads. Buffers stay valid.

    Args:
        ordinal: Number of the GPU.
        pageable_fallback: Where no more host memory can be pinned, take ordinary memory and say so
            in the log, instead of raising HostMemoryError.
        stream_priority: Of the streams that it makes, a feed's readers' among them: ``high``,
            ``low`` or CUDA's number, within the GPU's range.

    Raises:
        OptionValueError: If the GPU has no such priority.
    """

    has_device_memory = True

    def __init__(
        self,
        ordinal: int,
        *,
        pageable_fallback: bool = False,
        stream_priority: StreamPriority = "high",
    ) -> None:
        super().__init__(CudaContext(ordinal))
        # The first call that needs a context on the GPU: it shows here if the GPU is not usable.
        with self.context.call("memory_info"):
            _, total_bytes = runtime.memGetInfo()
            self._pci_bus_id: str = runtime.deviceGetPCIBusId(ordinal)
            priority = priority_number(stream_priority, device=self.name)
        self._memory = CudaMemory(
            self.context, total_bytes=int(total_bytes), pageable_fallback=pageable_fallback
        )
        self._streams = CudaStreams(self.context, self, priority=priority)
        weakref.finalize(self, self.context.stop_soon).atexit = False

    @property
    def pci_bus_id(self) -> str:
        """The GPU's place on the PCI bus, as in ``0000:3B:00.0``."""
        return self._pci_bus_id

    def alloc_host(self, nbytes: int, *, zero: bool = False) -> HostBuffer:
        """Allocate pinned memory of exactly that size; see ``Device.alloc_host``."""
        self._check_open("alloc_host")
        return self._memory.alloc_host(nbytes, zero=zero)

    def alloc_device(self, nbytes: int) -> DeviceBuffer:
        """Allocate device memory of exactly that size; see ``Device.alloc_device``."""
        self._check_open("alloc_device")
        block = self._memory.alloc_device(nbytes)
        return DeviceBuffer(block.ptr, block.nbytes, device=self, owner=block)

    def make_stream(self, name: str = "") -> CudaStream:
        """Make a stream that nothing else orders; see ``Device.make_stream``.

        Raises:
            DeviceError: If CUDA refuses.
        """
        self._check_open("make_stream")
        return self._streams.make(name)

    def dedicate_thread(self) -> None:
        """Make the GPU the calling thread's current one for good; see ``Device``.

        Raises:
            DeviceError: If CUDA refuses.
        """
        self.context.dedicate_thread()

    def current_stream(self) -> CudaStream:
        """Return CuPy's current stream of the calling thread for this GPU."""
        return self._streams.current()

    def stream_from(self, stream: object) -> CudaStream:
        """Adopt a stream of another library.

        Args:
            stream: A stream of this device; anything with ``__cuda_stream__``, such as CuPy's
                streams; a ``torch.cuda.Stream``; CUDA's handle as an integer, whose owner has to
                keep the stream for as long as this device uses it.

        Raises:
            BufferMismatchError: If it is none of these.
            DeviceMismatchError: If it belongs to another GPU.
        """
        if isinstance(stream, CudaStream):
            return self.own_stream(stream)
        return self._streams.find(stream)

    @contextlib.contextmanager
    def use_stream(self, stream: Stream) -> Iterator[None]:
        """Make ``stream`` CuPy's current one of the calling thread within a ``with`` block."""
        current = self.own_stream(stream).state.as_cupy()
        # Each in a call() of its own: within the block the caller's GPU is the current one.
        with self.context.call("use_stream"):
            current.__enter__()
        try:
            yield
        finally:
            with self.context.call("use_stream"):
                current.__exit__(None, None, None)

    def copy_to_device(self, dst: DeviceBuffer, src: NDArray[np.uint8], *, stream: Stream) -> None:
        """Queue a copy from the host; see ``Device.copy_to_device``."""
        self.check_buffer("dst", dst)
        check_host_array("src", src, nbytes=dst.nbytes)
        ends = dst.ptr, address_of(src)
        self._copy("to_device", *ends, dst.nbytes, holds=(dst, src), stream=stream)

    def copy_to_host(self, dst: NDArray[np.uint8], src: DeviceBuffer, *, stream: Stream) -> None:
        """Queue a copy to the host; see ``Device.copy_to_host``."""
        self.check_buffer("src", src)
        check_host_array("dst", dst, nbytes=src.nbytes, writable=True)
        ends = address_of(dst), src.ptr
        self._copy("to_host", *ends, src.nbytes, holds=(dst, src), stream=stream)

    def copy_on_device(self, dst: DeviceBuffer, src: DeviceBuffer, *, stream: Stream) -> None:
        """Queue a copy within the device's memory; see ``Device.copy_on_device``."""
        self.check_buffer("dst", dst)
        self.check_buffer("src", src)
        check_equal_sizes("dst", dst, other=src)
        self._copy("on_device", dst.ptr, src.ptr, src.nbytes, holds=(dst, src), stream=stream)

    def fetch_when_closed(self, dst: NDArray[np.uint8], src: DeviceBuffer) -> bool:
        """Copy to the host, after closing, what is in device memory; waits for the copy.

        Args:
            dst: As many bytes as ``src``.
            src: Of this device; nothing is at work on it.

        Returns:
            Whether it is closed; if not, nothing was copied.
        """
        if self._closed:
            self.check_buffer("src", src)
            with self.context.call("fetch_when_closed"):
                # On the null stream, as the device's own are closed.
                runtime.memcpyAsync(address_of(dst), src.ptr, src.nbytes, _KINDS["to_host"], 0)
                runtime.streamSynchronize(0)
        return self._closed

    def fill(self, dst: DeviceBuffer, value: int, *, stream: Stream) -> None:
        """Queue setting every byte of ``dst``; see ``Device.fill``."""
        self.check_buffer("dst", dst)
        check_byte("value", value)
        nbytes, to = dst.nbytes, dst.ptr

        def launch(ptr: int) -> None:
            if nbytes:
                runtime.memsetAsync(to, value, nbytes, ptr)

        operation = f"fill of {nbytes} bytes"
        self._state(stream, operation).submit(operation, launch, dst)

    def memory_info(self) -> DeviceMemory:
        """Return what this object has allocated now; makes no call to CUDA."""
        return device_memory(
            self._memory.host, self._memory.device, limit_bytes=self._memory.total_bytes
        )

    def close(self) -> None:
        """Finish the work of its streams, and end them and its threads. Idempotent."""
        self._closed = True
        if not self.context.forked:
            self._streams.close()
            self.context.stop()

    def _copy(
        self, way: str, to: int, start: int, nbytes: int, *, holds: object, stream: Stream
    ) -> None:
        kind = _KINDS[way]

        def launch(ptr: int) -> None:
            if nbytes:  # a buffer of no bytes has no address
                runtime.memcpyAsync(to, start, nbytes, kind, ptr)

        operation = f"copy_{way} of {nbytes} bytes"
        self._state(stream, operation).submit(operation, launch, holds)

    def __repr__(self) -> str:
        info = self.memory_info()
        state = ", closed" if self._closed else ""
        return (
            f"<CudaDevice {self.name}, {info.allocated_bytes} bytes of {info.limit_bytes}{state}>"
        )
