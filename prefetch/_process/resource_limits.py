"""What this process may take of the machine's memory and processors.

A container, a batch system and a shell allow a process less than the machine has: by Linux's
control groups, of version 1 and 2 and each within others, and by the limits that ``ulimit`` sets.
The least of all of them counts. What cannot be read is no limit.
"""

from __future__ import annotations

import math
import os
import re
import resource
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# Of version 2 and of version 1. Above memory.high a process is not killed, but as good as stopped.
_MEMORY_FILES: Final = ("memory.max", "memory.high", "memory.limit_in_bytes")
_RESOURCES: Final = (
    (resource.RLIMIT_AS, "VmSize", "ulimit -v"),
    (resource.RLIMIT_DATA, "VmData", "ulimit -d"),
)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """How much memory somebody allows, and how much of that this process has already.

    Attributes:
        allowed_by: Whose limit it is, in words that end in a verb.
        nbytes: What is allowed, in bytes.
        used_bytes: What this process has of it and cannot do without, in bytes.
    """

    allowed_by: str
    nbytes: int
    used_bytes: int = 0

    @property
    def available_bytes(self) -> int:
        """What is left, in bytes."""
        return max(self.nbytes - self.used_bytes, 0)

    def __str__(self) -> str:
        used = f", {self.used_bytes} of them taken" if self.used_bytes else ""
        return f"{self.allowed_by} {self.nbytes} bytes of memory{used}"


def memory_limit(root: Path = Path("/")) -> MemoryLimit:
    """Return the limit of memory that leaves this process the least.

    Args:
        root: Folder that holds ``proc`` and the mounted control groups.
    """
    held = _text(root / "proc/self/status")
    # What a process holds can make room for more only where there is swap space.
    has_swap = _size(_text(root / "proc/meminfo"), "SwapTotal") > 0
    resident = 0 if has_swap else _size(held, "RssAnon")
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limits = [MemoryLimit("this machine has", physical, resident)]
    for folder in _control_groups("memory", root):
        for file in (folder / name for name in _MEMORY_FILES):
            for nbytes in _numbers(file)[:1]:
                allowed_by = f"the control group of this process ({file}) allows it"
                limits.append(MemoryLimit(allowed_by, nbytes, resident))
    for kind, field, command in _RESOURCES:
        nbytes, _ = resource.getrlimit(kind)
        if nbytes != resource.RLIM_INFINITY:
            limits.append(MemoryLimit(f"{command} allows it", nbytes, _size(held, field)))
    return min(limits, key=lambda limit: limit.available_bytes)


def num_cores(root: Path = Path("/")) -> int:
    """Return how many processors can work for this process at a time, 1 or more.

    A part of a processor, which a quota of time may give, counts as one.
    """
    cores = len(os.sched_getaffinity(0))
    for folder in _control_groups("cpu", root):
        quota = _numbers(folder / "cpu.max") or [
            *_numbers(folder / "cpu.cfs_quota_us"),
            *_numbers(folder / "cpu.cfs_period_us"),
        ]
        if len(quota) == 2 and min(quota) > 0:  # a single number is the period of no quota
            cores = min(cores, math.ceil(quota[0] / quota[1]))
    return cores


def _control_groups(controller: str, root: Path) -> Iterator[Path]:
    """Yield the folders of the groups that a process is in, each before the one around it.

    Args:
        controller: Such as ``memory``.
        root: As for `memory_limit`.
    """
    found = re.findall(r"^\d+:([^:]*):(.*)$", _text(root / "proc/self/cgroup"), re.MULTILINE)
    groups = {name: group for names, group in found for name in names.split(",")}
    for mounted, top, controllers in _mounts(root):
        name = controller if controllers else ""  # version 2 has one hierarchy for all
        if name in controllers.split(",") and name in groups:
            folder = top / _beneath(groups[name], mounted)
            yield folder
            while folder != top:
                folder = folder.parent
                yield folder


@cache  # reading them takes a twentieth of opening a feed
def _mounts(root: Path) -> list[tuple[str, Path, str]]:
    """Return which group is mounted where, and for which controllers; none for version 2."""
    found = re.findall(
        r"^\S+ \S+ \S+ (\S+) (\S+) .* - cgroup(2?) \S+ (\S+)$",
        _text(root / "proc/self/mountinfo"),
        re.MULTILINE,
    )
    return [
        (_unescape(mounted), root / _unescape(top).lstrip("/"), "" if is_second else options)
        for mounted, top, is_second, options in found
    ]


def _beneath(group: str, mounted: str) -> str:
    """Return a group's path beneath the group that is mounted.

    A namespace of its own, or a mount of the container's group alone, shows a process paths that
    lead nowhere from the mount. Its group is then the one that is mounted, or within that.
    """
    if ".." in group.split("/"):
        return ""
    mounted = mounted.rstrip("/")
    return group[len(mounted) :].lstrip("/") if f"{group}/".startswith(f"{mounted}/") else ""


def _unescape(name: str) -> str:
    return re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), name)


def _text(path: Path) -> str:
    try:
        return os.fsdecode(path.read_bytes())
    except OSError:
        return ""


def _numbers(path: Path) -> list[int]:
    """Return the numbers in a file; ``max`` and -1 are none."""
    return [int(word) for word in _text(path).split() if word.isdecimal()]


def _size(text: str, name: str) -> int:
    """Return a size that a file of ``/proc`` gives in kB, in bytes; 0 where it does not."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", text, re.MULTILINE)
    return 0 if found is None else 1024 * int(found[1])
