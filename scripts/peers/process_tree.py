"""What a process and its children take of the machine."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a process tree holds; of what processes share, each counts its part.

    Attributes:
        anonymous_bytes: Memory that only it can use: heaps, stacks, batches, and the read-only
            copies that libraries' data sections become.
        shared_bytes: Shared memory and temporary files in memory, where workers leave batches.
    """

    anonymous_bytes: int
    shared_bytes: int

    @property
    def total_bytes(self) -> int:
        """All that no page cache could give back."""
        return self.anonymous_bytes + self.shared_bytes


def family(pid: int) -> list[int]:
    """Return a process and all of its living descendants."""
    members, seen = [pid], 0
    while seen < len(members):
        for thread in (_PROC / str(members[seen]) / "task").glob("*/children"):
            try:
                members += map(int, thread.read_text().split())
            except FileNotFoundError:
                continue  # the thread has just ended
        seen += 1
    return members


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far, in seconds, all threads and descendants included.

    Descendants that have ended are included once they were waited for.
    """
    total_s = 0.0
    for member in family(pid):
        try:
            total_s += time.clock_gettime(_cpu_clock(member)) + _ended_children_s(member)
        except (FileNotFoundError, OSError):
            continue  # it has just ended
    return total_s


def memory(pid: int) -> Memory:
    """Return what a process and its descendants hold now; it takes milliseconds."""
    anonymous = shared = 0
    for member in family(pid):
        try:
            text = (_PROC / str(member) / "smaps_rollup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        sizes = dict(line.split(":", 1) for line in text.splitlines()[1:])
        anonymous += 1024 * int(sizes["Pss_Anon"].split()[0])
        shared += 1024 * int(sizes["Pss_Shmem"].split()[0])
    return Memory(anonymous_bytes=anonymous, shared_bytes=shared)


def _cpu_clock(pid: int) -> int:
    """Return the clock of a process's CPU time, in nanoseconds where /proc counts ticks.

    This is Linux's clock_getcpuclockid(3), which the time module lacks.
    """
    return (~pid << 3) | 2


def _ended_children_s(pid: int) -> float:
    fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    return _TICK_S * (int(fields[13]) + int(fields[14]))  # cutime, cstime
