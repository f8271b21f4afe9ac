"""Readers near their GPU: on the cores of the NUMA node that it is attached to.

CUDA pins memory on the node of the thread that asks for it. Copies from another node go over the
link between the nodes, which all of the machine shares.
"""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

logger = logging.getLogger("prefetch")

_ROOT = Path("/")


class Node(NamedTuple):
    """A NUMA node.

    Attributes:
        number: Its number.
        cores: The numbers of its cores.
    """

    number: int
    cores: frozenset[int]


def stay_near(device: object, *, num_readers: int, is_first: bool, root: Path = _ROOT) -> None:
    """Bind the calling thread to the cores near a device, of those that it may run on.

    Not where they are fewer than the readers, which would get in each other's way; and not where
    there is one node, or the system does not say which one the device is attached to.

    Args:
        device: Of a feed; one that is no GPU is near to all cores.
        num_readers: Readers of the feed.
        is_first: Whether this is the first of them, which says in the log what all do.
        root: Folder that holds ``sys``.
    """
    bus_id = getattr(device, "pci_bus_id", None)
    node = None if bus_id is None else find_node(bus_id, root)
    if node is None:
        return
    allowed = os.sched_getaffinity(0)
    cores = node.cores & allowed
    if cores == allowed:
        return
    name, number = getattr(device, "name", "the device"), node.number
    if len(cores) < num_readers:
        if is_first:
            logger.info(
                "readers run on all cores: %s is on NUMA node %d, where they have fewer (cores: "
                "%d) than there are readers (%d)",
                *(name, number, len(cores), num_readers),
            )
        return
    with suppress(OSError):  # the cores that are allowed have changed meanwhile
        os.sched_setaffinity(0, cores)  # 0: this thread, not the process
        if is_first:
            logger.info(
                "readers run on NUMA node %d (cores: %d), where %s is", number, len(cores), name
            )


def find_node(bus_id: str, root: Path = _ROOT) -> Node | None:
    """Return the node that a device is attached to; None for a single node, or if unknown.

    Args:
        bus_id: The device's, as CUDA writes it: domain, bus, device and function.
        root: Folder that holds ``sys``.
    """
    system = root / "sys/devices/system/node"
    if len(list(system.glob("node[0-9]*"))) < 2:
        return None
    try:
        domain, _, rest = bus_id.lower().partition(":")
        file = root / f"sys/bus/pci/devices/{int(domain, 16):04x}:{rest}/numa_node"
        number = int(file.read_text())
        cores = _numbers((system / f"node{number}/cpulist").read_text())
    except (OSError, ValueError):  # a virtual machine may hide it; -1 has no folder
        return None
    return Node(number, cores)


def _numbers(text: str) -> frozenset[int]:
    """Return the numbers of a list such as ``0-3,8``."""
    found: set[int] = set()
    for part in filter(None, text.strip().split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
