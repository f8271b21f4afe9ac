"""Where the newest bytes are, and what every call does about it: Caffe's state machine, pure.

:func:`transition` is all of it, a table look-up: given a call and the head, it says which work
has to be done on the bytes first, and where the head is afterwards. :class:`SyncedMemory` does the
work and then takes the new head, so that a call that fails in the middle leaves the old one.

The table, by the head before; Caffe's own plus the last three rows (zero: allocate and fill with
zeros; down: copy device to host; up: copy host to device)::

    call                   UNINITIALIZED    HEAD_AT_CPU      HEAD_AT_GPU      SYNCED
    cpu_data               zero -> CPU      CPU              down -> SYNCED   SYNCED
    mutable_cpu_data       zero -> CPU      CPU              down -> CPU      CPU
    gpu_data               zero -> GPU      up -> SYNCED     GPU              SYNCED
    mutable_gpu_data       zero -> GPU      up -> GPU        GPU              GPU
    set_cpu_data           CPU              CPU              CPU              CPU
    set_gpu_data           GPU              GPU              GPU              GPU
    async_gpu_push         refused          up -> SYNCED     refused          refused
    overwrite_cpu_data     CPU              CPU              CPU              CPU
    overwrite_gpu_data     GPU              GPU              GPU              GPU
    set_both               SYNCED           SYNCED           SYNCED           SYNCED
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final


class Head(enum.IntEnum):
    """Which side of a :class:`SyncedMemory` holds the newest bytes.

    Attributes:
        UNINITIALIZED: Neither; nothing has been touched, and the first read will find zeros.
        HEAD_AT_CPU: The host; the device's copy, if there is one, is out of date.
        HEAD_AT_GPU: The device; the host's copy, if there is one, is out of date.
        SYNCED: Both hold the same, or will as soon as the push in flight has passed.
    """

    UNINITIALIZED = 0
    HEAD_AT_CPU = 1
    HEAD_AT_GPU = 2
    SYNCED = 3


class Call(enum.IntEnum):
    """The calls that read or move the head, named as the methods of :class:`SyncedMemory`.

    Attributes:
        SET_BOTH: ``set_gpu_data`` with the same bytes on the host.
    """

    CPU_DATA = 0
    MUTABLE_CPU_DATA = 1
    GPU_DATA = 2
    MUTABLE_GPU_DATA = 3
    SET_CPU_DATA = 4
    SET_GPU_DATA = 5
    ASYNC_GPU_PUSH = 6
    OVERWRITE_CPU_DATA = 7
    OVERWRITE_GPU_DATA = 8
    SET_BOTH = 9


class Work(enum.Enum):
    """What has to happen to the bytes before the head may move."""

    NONE = enum.auto()
    ZERO_HOST = enum.auto()
    ZERO_DEVICE = enum.auto()
    COPY_TO_HOST = enum.auto()
    COPY_TO_DEVICE = enum.auto()


@dataclass(frozen=True, slots=True)
class Transition:
    """One cell of the table: what to do first with the bytes, and where the head is afterwards."""

    work: Work
    head: Head


def _row(*cells: tuple[Work, Head] | None) -> tuple[Transition | None, ...]:
    """Build the cells of one call, in the order of `Head`."""
    return tuple(None if cell is None else Transition(*cell) for cell in cells)


_ON_CPU: Final = (Work.NONE, Head.HEAD_AT_CPU)
_ON_GPU: Final = (Work.NONE, Head.HEAD_AT_GPU)
_ON_BOTH: Final = (Work.NONE, Head.SYNCED)
_ZERO_CPU: Final = (Work.ZERO_HOST, Head.HEAD_AT_CPU)
_ZERO_GPU: Final = (Work.ZERO_DEVICE, Head.HEAD_AT_GPU)
_UP: Final = (Work.COPY_TO_DEVICE, Head.SYNCED)
_DOWN: Final = (Work.COPY_TO_HOST, Head.SYNCED)

# Tuples indexed by the two enums and not a dict: this runs on each access, and hashing a member of
# an enum costs more than the rest of the look-up.
_TABLE: Final[tuple[tuple[Transition | None, ...], ...]] = (
    _row(_ZERO_CPU, _ON_CPU, _DOWN, _ON_BOTH),
    _row(_ZERO_CPU, _ON_CPU, (Work.COPY_TO_HOST, Head.HEAD_AT_CPU), _ON_CPU),
    _row(_ZERO_GPU, _UP, _ON_GPU, _ON_BOTH),
    _row(_ZERO_GPU, (Work.COPY_TO_DEVICE, Head.HEAD_AT_GPU), _ON_GPU, _ON_GPU),
    _row(_ON_CPU, _ON_CPU, _ON_CPU, _ON_CPU),
    _row(_ON_GPU, _ON_GPU, _ON_GPU, _ON_GPU),
    _row(None, _UP, None, None),
    _row(_ON_CPU, _ON_CPU, _ON_CPU, _ON_CPU),
    _row(_ON_GPU, _ON_GPU, _ON_GPU, _ON_GPU),
    _row(_ON_BOTH, _ON_BOTH, _ON_BOTH, _ON_BOTH),
)


def transition(call: Call, head: Head) -> Transition | None:
    """Say what a call has to do, and where the head goes.

    Args:
        call: The call.
        head: Where the head is before it.

    Returns:
        The work and the next head; None where Caffe refuses the call, which it does for
        ASYNC_GPU_PUSH anywhere but at HEAD_AT_CPU.
    """
    return _TABLE[call][head]
