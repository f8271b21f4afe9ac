"""Ownership of a batch's memory, as an object.

A lease is the hold of one filling on its slot. All that reaches the consumer - arrays, slices of
them, DLPack capsules, Blobs, device buffers - refers to the lease, so that the slot comes back
exactly when the last of them is gone, and never while one is in use.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np

from memory import DeviceBuffer

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue

    import numpy.typing as npt

    from memory import HostBuffer, Stream


class Leased(Protocol):
    """What is leased: it notes what its memory is still used for."""

    def note_use(self, stream: Stream) -> None:
        """Remember that work on ``stream`` may use the memory."""
        ...

    def keep_until(self, waits: list[Callable[[], object]], *, name: str, batch: object) -> None:
        """Do not fill the memory again before all of ``waits`` have returned."""
        ...


class Lease:
    """The hold of one batch on its slot."""

    __slots__ = ("__weakref__", "_slot")

    def __init__(self, slot: Leased) -> None:
        self._slot = slot

    def note_use(self, stream: Stream) -> None:
        """Remember that work on ``stream`` may use the slot's device memory."""
        self._slot.note_use(stream)

    def keep_until(self, waits: list[Callable[[], object]], *, name: str, batch: object) -> None:
        """Keep the slot's memory as it is until all of ``waits`` have returned; see `Slot`."""
        self._slot.keep_until(waits, name=name, batch=batch)


class LeaseEnd(weakref.ref[Lease]):
    """What arrives on the queue of returns when the last reference to a lease is gone.

    It must be kept until then.

    Attributes:
        slot: The lease's slot.
    """

    __slots__ = ("slot",)

    slot: Any

    def __new__(cls, lease: Lease, returns: SimpleQueue[Any], slot: object) -> Self:
        """Make the reference."""
        # The end may come inside garbage collection, on a thread that holds any lock: what is
        # called takes none and makes no device call. SimpleQueue's put is reentrant, and is C: in a
        # ``__del__`` of Python's Ctrl-C may come, and would be printed and lost.
        end = super().__new__(cls, lease, returns.put)
        end.slot = slot
        return end

    def __init__(self, lease: Lease, returns: SimpleQueue[Any], slot: object) -> None:
        """Do nothing: ``__new__`` has done it."""


class FeedEnd(weakref.ref[Any]):
    """What arrives on the queue of returns when a feed is gone, so that its readers end.

    Its ``__del__`` asks them to, but that is Python code: Ctrl-C may come at its entry.
    """

    __slots__ = ()

    def __new__(cls, feed: object, returns: SimpleQueue[Any]) -> Self:
        """Make the reference."""
        return super().__new__(cls, feed, returns.put)

    def __init__(self, feed: object, returns: SimpleQueue[Any]) -> None:
        """Do nothing: ``__new__`` has done it."""


class HostExport:
    """The base of the arrays over a slot's host memory; keeps the buffer and the lease alive."""

    # No ndarray: NumPy collapses chains of ndarray bases, so a finalizer on the array handed out
    # would fire while slices of it live.
    __slots__ = ("__array_interface__", "_buffer", "_lease")

    def __init__(self, buffer: HostBuffer, lease: Lease, interface: dict[str, Any]) -> None:
        self._buffer = buffer
        self._lease = lease
        self.__array_interface__ = interface


class DeviceHold:
    """The owner of the device buffers over a slot; keeps the allocation and the lease alive."""

    __slots__ = ("_allocation", "_lease")

    def __init__(self, allocation: DeviceBuffer, lease: Lease) -> None:
        self._allocation = allocation
        self._lease = lease

    def note_use(self, stream: Stream) -> None:
        """Pass on to the lease that ``stream`` was handed the memory."""
        self._lease.note_use(stream)

    def without_lease(self, buffer: DeviceBuffer) -> DeviceBuffer:
        """Return a range of the allocation that keeps nothing but that."""
        return DeviceBuffer(buffer.ptr, buffer.nbytes, device=buffer.device, owner=self._allocation)


def without_lease(buffer: DeviceBuffer) -> DeviceBuffer:
    """Return the same range of a slot's memory, but not as a hold on the batch.

    For work on a stream that the slot knows of: it waits for that by itself.
    """
    hold = buffer.owner
    assert isinstance(hold, DeviceHold)
    return hold.without_lease(buffer)


def describe_array(address: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> dict[str, Any]:
    """Return a writable C-contiguous array as NumPy's array interface describes it.

    Args:
        address: Address of its first byte.
        shape: Its shape.
        dtype: Its element type.
    """
    return {"data": (address, False), "shape": shape, "typestr": dtype.str, "version": 3}


def export_array(
    buffer: HostBuffer, lease: Lease, interface: dict[str, Any], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Return a writable C-contiguous array over the start of ``buffer`` that holds ``lease``.

    Args:
        buffer: The slot's host memory.
        lease: What the array, and every view of it, keeps alive.
        interface: From `describe_array`; its bytes must lie in the buffer.
        dtype: Element type of the array.

    Returns:
        The array; its base, or that of its base, is a `HostExport`.
    """
    array = np.asarray(HostExport(buffer, lease, interface))
    # The interface has no name for bfloat16: what comes is without a type.
    return array if array.dtype is dtype else array.view(dtype)
