"""Host memory: what a device promises of its host buffers, and ordinary memory as one.

The array handed out has for its base a block that is no ndarray. NumPy shortens chains of ndarray
bases but stops at a foreign object, so the block lives exactly as long as the last slice of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import numpy as np

from memory._device.checks import check_nbytes
from memory._errors import ClosedError, HostMemoryError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from memory._device.accounting import Ledger

# A cache line, and the widest vector load: the transformation kernels store aligned.
ALIGNMENT_BYTES: Final = 64


@runtime_checkable
class HostBuffer(Protocol):
    """A block of host memory, pinned where the device is a GPU.

    It is freed when it has been closed or collected *and* no array of it is left.
    """

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        ...

    @property
    def array(self) -> NDArray[np.uint8]:
        """The bytes: uint8, shape (nbytes,), writable, C-contiguous, aligned to 64 bytes.

        The array and every view of it keep the memory alive through their base.

        Raises:
            ClosedError: After close().
        """
        ...

    def close(self) -> None:
        """Give up this object's own hold on the memory; arrays that exist stay valid.

        Idempotent; never blocks.
        """
        ...


def array_interface(ptr: int, nbytes: int) -> dict[str, Any]:
    """Describe writable bytes of host memory to NumPy."""
    return {"version": 3, "shape": (nbytes,), "typestr": "|u1", "data": (ptr, False)}


class HostBlock:
    """Bytes of host memory; given back to the ledger when nothing refers to them any more."""

    __slots__ = ("__weakref__", "_ledger", "_memory", "nbytes")

    def __init__(self, memory: NDArray[np.uint8], ledger: Ledger) -> None:
        self._memory = memory
        self._ledger = ledger
        self.nbytes = memory.nbytes

    @property
    def __array_interface__(self) -> dict[str, Any]:
        return array_interface(self._memory.ctypes.data, self.nbytes)

    def __del__(self) -> None:
        if hasattr(self, "nbytes"):  # else Ctrl-C came while it was made
            self._ledger.give_back(self.nbytes)


class BlockBuffer:
    """A hold on a block of host memory; see ``HostBuffer``.

    Args:
        block: The memory, of any kind that has an ``__array_interface__``.
    """

    _called = "host buffer"

    def __init__(self, block: Any) -> None:
        self.nbytes: int = block.nbytes
        self._array: NDArray[np.uint8] | None = np.asarray(block)

    @property
    def array(self) -> NDArray[np.uint8]:
        """The bytes: uint8, shape (nbytes,), writable; see ``HostBuffer.array``."""
        if self._array is None:
            raise ClosedError(f"{self._called} of {self.nbytes} bytes", operation="array")
        return self._array

    def close(self) -> None:
        """Give up this object's own hold on the memory; arrays that exist stay valid."""
        self._array = None

    def __repr__(self) -> str:
        state = "closed" if self._array is None else "open"
        return f"<{type(self).__name__} {self.nbytes} bytes, {state}>"


class PageableBuffer(BlockBuffer):
    """A host buffer that is not pinned.

    Example:
        >>> from memory import open_device
        >>> buffer = open_device("cpu").alloc_host(4, zero=True)
        >>> buffer.array
        array([0, 0, 0, 0], dtype=uint8)
    """


def allocate_host(
    nbytes: int, ledger: Ledger, *, zero: bool = False, poison: int | None = None
) -> PageableBuffer:
    """Allocate host memory that is aligned to ``ALIGNMENT_BYTES``.

    Args:
        nbytes: Size in bytes; 0 is valid.
        ledger: Counts it.
        zero: Fill it with zeros; large blocks come so from the system, at no cost.
        poison: Byte to fill it with where it is not zeroed; None to leave it as it comes.

    Raises:
        BufferMismatchError: If ``nbytes`` is negative.
        HostMemoryError: If there is not enough memory.
    """
    nbytes = check_nbytes("nbytes", nbytes)
    ledger.take(nbytes)
    try:
        padded = (np.zeros if zero else np.empty)(nbytes + ALIGNMENT_BYTES, np.uint8)
    except (MemoryError, ValueError) as error:  # ValueError: beyond the address space
        ledger.give_back(nbytes)
        raise HostMemoryError(
            ledger.device, requested_bytes=nbytes, used_bytes=ledger.balance().nbytes
        ) from error
    start = -padded.ctypes.data % ALIGNMENT_BYTES
    block = HostBlock(padded[start : start + nbytes], ledger)
    buffer = PageableBuffer(block)
    if poison is not None and not zero:
        buffer.array.fill(poison)
    return buffer
