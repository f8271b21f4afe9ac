"""Counts of the bytes of a memory that are in use.

Bytes are taken by ordinary calls and given back by finalizers, which may run within a garbage
collection on any thread, also on one that holds this module's lock. Giving back therefore takes no
lock: it appends to a deque, which is atomic, and the next call that takes or asks settles it.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Literal

from memory._errors import DeviceMemoryError


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """What a device has allocated, at one moment.

    Attributes:
        allocated_bytes: Device memory in use. Growing from batch to batch means that something
            keeps old buffers alive.
        peak_bytes: The most that was ever in use at once.
        limit_bytes: What the device has in all; None where there is no limit.
        host_allocated_bytes: Host memory in use by this device's host buffers (pinned, on a GPU).
        num_buffers: Device allocations in use; also counts those of 0 bytes.
        num_host_buffers: Host buffers in use.
    """

    allocated_bytes: int
    peak_bytes: int
    limit_bytes: int | None
    host_allocated_bytes: int
    num_buffers: int
    num_host_buffers: int


@dataclass(frozen=True, slots=True)
class Balance:
    """What is in use at one moment; allocations of 0 bytes count as blocks too."""

    nbytes: int
    peak_bytes: int
    num_blocks: int


class Ledger:
    """The count of one memory's bytes. Thread-safe.

    Attributes:
        limit_bytes: The most that may be in use at once; None for no limit.
    """

    def __init__(
        self, device: str, side: Literal["host", "device"], *, limit_bytes: int | None = None
    ) -> None:
        self.device = device
        self.side = side
        self.limit_bytes = limit_bytes
        self._lock = threading.Lock()
        self._given_back: deque[int] = deque()
        self._nbytes = 0
        self._peak_bytes = 0
        self._num_blocks = 0
        with _ledgers_lock:
            _ledgers.add(self)

    def take(self, nbytes: int) -> None:
        """Count a new allocation.

        Raises:
            DeviceMemoryError: If it would exceed the limit; nothing is counted then.
        """
        with self._lock:
            self._settle()
            used_bytes = self._nbytes
            granted = self.limit_bytes is None or used_bytes + nbytes <= self.limit_bytes
            if granted:
                self._nbytes += nbytes
                self._peak_bytes = max(self._peak_bytes, self._nbytes)
                self._num_blocks += 1
        if not granted:
            raise DeviceMemoryError(
                self.device,
                requested_bytes=nbytes,
                used_bytes=used_bytes,
                limit_bytes=self.limit_bytes,
            )

    def give_back(self, nbytes: int) -> None:
        """Count an allocation as freed. Takes no lock, for finalizers."""
        self._given_back.append(nbytes)

    def balance(self) -> Balance:
        """Return what is in use now."""
        with self._lock:
            self._settle()
            return Balance(self._nbytes, self._peak_bytes, self._num_blocks)

    def _settle(self) -> None:
        while self._given_back:
            self._nbytes -= self._given_back.popleft()
            self._num_blocks -= 1


def device_memory(
    host: Ledger, device: Ledger | None = None, *, limit_bytes: int | None = None
) -> DeviceMemory:
    """Return what a device has allocated.

    Args:
        host: The count of its host buffers.
        device: The count of its own memory; None where it has none.
        limit_bytes: What it has in all; None where there is no limit.
    """
    here = host.balance()
    there = Balance(0, 0, 0) if device is None else device.balance()
    return DeviceMemory(
        allocated_bytes=there.nbytes,
        peak_bytes=there.peak_bytes,
        limit_bytes=limit_bytes,
        host_allocated_bytes=here.nbytes,
        num_buffers=there.num_blocks,
        num_host_buffers=here.num_blocks,
    )


_ledgers_lock = threading.Lock()
# A block holds its ledger, so what a dead device has left behind is still to be found here.
_ledgers: weakref.WeakSet[Ledger] = weakref.WeakSet()


def all_ledgers() -> tuple[Ledger, ...]:
    """Return the ledgers of every device of this process, closed ones that left bytes included."""
    with _ledgers_lock:
        return tuple(_ledgers)


def _renew_locks() -> None:
    # A lock that another thread held at the fork is held for ever in the child, which may well go
    # on to allocate host memory.
    global _ledgers_lock  # noqa: PLW0603 - as above
    _ledgers_lock = threading.Lock()
    for ledger in tuple(_ledgers):
        ledger._lock = threading.Lock()  # noqa: SLF001 - this module's own class


os.register_at_fork(after_in_child=_renew_locks)
