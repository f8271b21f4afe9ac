"""The simulated device's own memory, which host code cannot mistake for host memory.

Addresses start at 2**48, above all that an x86-64 process can map, so using one as a host pointer
faults at once. Each block has a window of 64 GiB to itself in one address space for all simulated
devices of the process, and windows are never used again: an address that has gone out of bounds, or
whose block was freed, or that is another device's, is always found out.
"""

from __future__ import annotations

import itertools
import weakref
from typing import TYPE_CHECKING, Final

import numpy as np

from memory._device.accounting import Ledger
from memory._device.checks import check_nbytes
from memory._errors import BufferMismatchError, DeviceMemoryError

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WINDOW_BITS: Final = 36
_FIRST_WINDOW: Final = 1 << (48 - _WINDOW_BITS)
_windows = itertools.count(_FIRST_WINDOW)

POISON: Final = 0xCB
"""Fresh device memory is filled with this byte: 0xCBCBCBCB is about -2.67e7 as a float32."""


class Block:
    """One allocation, alive for as long as a DeviceBuffer of it."""

    __slots__ = ("__weakref__", "_ledger", "_storage", "nbytes", "ptr")

    def __init__(self, window: int, storage: NDArray[np.uint8], ledger: Ledger) -> None:
        self._storage = storage
        self._ledger = ledger
        self.ptr = window << _WINDOW_BITS
        self.nbytes = storage.nbytes

    def view(self, offset: int, nbytes: int) -> NDArray[np.uint8]:
        """Return the bytes from ``offset`` on, for the device alone."""
        return self._storage[offset : offset + nbytes]

    def __del__(self) -> None:
        if hasattr(self, "nbytes"):  # else Ctrl-C came while it was made
            self._ledger.give_back(self.nbytes)


class SimulatedMemory:
    """The memory of one simulated device. Thread-safe.

    Args:
        device: Name of the device, for errors.
        limit_bytes: The most that may be allocated at once; None for no limit.
    """

    def __init__(self, device: str, *, limit_bytes: int | None) -> None:
        self.ledger = Ledger(device, "device", limit_bytes=limit_bytes)
        # Weak values: a block's entry goes with it, without a lock that a finalizer would need.
        self._blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()

    def allocate(self, nbytes: int) -> Block:
        """Return a new block, filled with ``POISON``.

        Raises:
            BufferMismatchError: If ``nbytes`` is negative.
            DeviceMemoryError: If the limit or the machine's memory does not allow it.
        """
        nbytes = check_nbytes("nbytes", nbytes)
        self.ledger.take(nbytes)
        try:
            if nbytes > 1 << _WINDOW_BITS:
                raise MemoryError(f"a block has at most {1 << _WINDOW_BITS} bytes")  # noqa: TRY301 - handled like the machine's own refusal
            storage = np.full(nbytes, POISON, np.uint8)
        except MemoryError as error:
            self.ledger.give_back(nbytes)
            raise DeviceMemoryError(
                self.ledger.device,
                requested_bytes=nbytes,
                used_bytes=self.ledger.balance().nbytes,
                limit_bytes=self.ledger.limit_bytes,
            ) from error
        window = next(_windows)
        block = Block(window, storage, self.ledger)
        self._blocks[window] = block
        return block

    def view(self, ptr: int, nbytes: int) -> NDArray[np.uint8]:
        """Return the bytes at an address, which may lie within a block: uint8, shape (nbytes,).

        Raises:
            BufferMismatchError: If they are not all in one block that is allocated now.
        """
        window, offset = divmod(ptr, 1 << _WINDOW_BITS)
        block = self._blocks.get(window)
        if block is None or offset + nbytes > block.nbytes:
            inside = "no allocated block" if block is None else f"a block of {block.nbytes} bytes"
            raise BufferMismatchError(
                "device address",
                expected="a range within one allocated block of this device",
                found=f"{nbytes} bytes at {ptr:#x}, byte {offset} of {inside}",
                cure="keep the DeviceBuffer, or a slice of it, for as long as its address is used",
            )
        return block.view(offset, nbytes)
