"""Memory of a GPU and pinned memory of the host: allocated exactly, freed by `DeferredFree`.

A block is one allocation, and lives until no buffer, array or queued copy refers to it, and then
until all work of every stream that the device has met has run.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from memory._cuda.context import is_out_of_memory
from memory._cuda.runtime import cupy, runtime
from memory._device.accounting import Ledger
from memory._device.checks import check_nbytes
from memory._device.host_memory import BlockBuffer, allocate_host, array_interface
from memory._errors import DeviceError, DeviceMemoryError, HostMemoryError

if TYPE_CHECKING:
    from collections.abc import Callable

    from memory._cuda.context import CudaContext
    from memory._device.host_memory import HostBuffer

_logger = logging.getLogger("memory")

FALLBACK_OPTION: Final = "pageable_fallback"


# Called on the thread of `DeferredFree`, which has waited for the streams: a library that was given
# an address may have queued work there on a stream of its own. ``cudaFree`` is known to wait for
# such work, but that is promised nowhere.


def _free_device(ptr: int) -> None:
    runtime.free(ptr)


def _free_host(ptr: int) -> None:
    runtime.freeHost(ptr)


class CudaBlock:
    """One allocation of device memory; its address is 0 if it has no bytes."""

    __slots__ = ("__weakref__", "_context", "_ledger", "nbytes", "ptr")

    _free = staticmethod(_free_device)

    def __init__(self, ptr: int, nbytes: int, *, context: CudaContext, ledger: Ledger) -> None:
        self.ptr = ptr
        self.nbytes = nbytes
        self._ledger = ledger
        self._context = context
        ledger.take(nbytes)
        context.deferred_free.expect()

    def __del__(self) -> None:
        if not hasattr(self, "_context"):
            return  # Ctrl-C came while it was made
        self._ledger.give_back(self.nbytes)
        # Not freed here: a finalizer may run anywhere, and cudaFree waits for the GPU.
        self._context.deferred_free.submit(self._free, self.ptr)


class PinnedBlock(CudaBlock):
    """One allocation of pinned host memory; the base of the arrays over it."""

    __slots__ = ()

    _free = staticmethod(_free_host)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return array_interface(self.ptr, self.nbytes)


class PinnedBuffer(BlockBuffer):
    """A pinned host buffer."""

    _called = "pinned host buffer"


class CudaMemory:
    """Allocates both kinds of memory of one opened GPU, and counts them. Thread-safe.

    Args:
        context: The GPU.
        total_bytes: Size of its memory.
        pageable_fallback: Whether to take ordinary host memory where no more can be pinned.
    """

    def __init__(self, context: CudaContext, *, total_bytes: int, pageable_fallback: bool) -> None:
        self.device = Ledger(context.name, "device")
        self.host = Ledger(context.name, "host")
        self.total_bytes = total_bytes
        self._context = context
        self._pageable_fallback = pageable_fallback
        self._has_fallen_back = False

    def alloc_device(self, nbytes: int) -> CudaBlock:
        """Allocate device memory.

        Raises:
            BufferMismatchError: If ``nbytes`` is negative.
            DeviceMemoryError: If there is not enough.
        """
        nbytes = check_nbytes("nbytes", nbytes)
        # Not from CuPy's pool, which hands memory out again in the order of one stream only.
        ptr = self._allocate(
            f"alloc_device of {nbytes} bytes",
            lambda: runtime.malloc(nbytes) if nbytes else 0,
            cupy.get_default_memory_pool(),
        )
        if ptr is None:
            raise DeviceMemoryError(
                self._context.name,
                requested_bytes=nbytes,
                used_bytes=self.device.balance().nbytes,
                limit_bytes=self.total_bytes,
            )
        return CudaBlock(ptr, nbytes, context=self._context, ledger=self.device)

    def alloc_host(self, nbytes: int, *, zero: bool) -> HostBuffer:
        """Allocate pinned host memory, or ordinary memory where that is allowed and needed.

        Raises:
            BufferMismatchError: If ``nbytes`` is negative.
            HostMemoryError: If no more can be pinned, or there is not enough memory at all.
        """
        nbytes = check_nbytes("nbytes", nbytes)
        if nbytes == 0:
            return allocate_host(0, self.host)
        # Not from CuPy's pool, which rounds up to a power of two and hands a block out again while
        # a copy from it is in flight.
        ptr = self._allocate(
            f"alloc_host of {nbytes} bytes",
            # Portable: pinned for every GPU of the process, not only for this one.
            lambda: runtime.hostAlloc(nbytes, runtime.hostAllocPortable),
            cupy.get_default_pinned_memory_pool(),
        )
        if ptr is None:
            if not self._pageable_fallback:
                raise self._pinning_refused(nbytes)
            self._announce(nbytes)
            return allocate_host(nbytes, self.host, zero=zero)
        block = PinnedBlock(ptr, nbytes, context=self._context, ledger=self.host)
        buffer = PinnedBuffer(block)
        if zero:
            buffer.array.fill(0)
        return buffer

    def _allocate(self, operation: str, allocate: Callable[[], int], pool: Any) -> int | None:
        """Allocate; if that fails, once more after everything that could be freed is.

        Returns:
            The address; None if there is not enough memory.
        """
        try:
            with self._context.call(operation):
                return allocate()
        except OverflowError:  # more than can be addressed
            return None
        except DeviceError as error:
            if not is_out_of_memory(error):
                raise
        # Blocks that were collected are free only once their thread has come to them.
        self._context.deferred_free.settle()
        try:
            with self._context.call(operation):
                # Unused blocks that CuPy's pool keeps would be missing here.
                pool.free_all_blocks()
                return allocate()
        except DeviceError as error:
            if not is_out_of_memory(error):
                raise
        return None

    def _pinning_refused(self, nbytes: int) -> HostMemoryError:
        return HostMemoryError(
            self._context.name,
            requested_bytes=nbytes,
            used_bytes=self.host.balance().nbytes,
            # Not `ulimit -l`: it has no say in what the driver pins.
            cure="no more host memory can be pinned: see how much the machine has free and the "
            "container's memory limit (memory.max) allows, and under WSL2 that half of the memory "
            "is the most; lower prefetch or batch_size, or allow slower copies from ordinary "
            f"memory with open_device('{self._context.name}', {FALLBACK_OPTION}=True)",
        )

    def _announce(self, nbytes: int) -> None:
        level = logging.DEBUG if self._has_fallen_back else logging.WARNING
        self._has_fallen_back = True
        _logger.log(
            level,
            "device %s: %d bytes of host memory could not be pinned; ordinary memory is used as "
            "%s allows, and copies from it are slower and hold up the thread that asks for them",
            self._context.name,
            nbytes,
            FALLBACK_OPTION,
        )
