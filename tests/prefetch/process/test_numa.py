"""Which cores are near a GPU, and that a reader keeps to them: told by files as Linux has them."""

from __future__ import annotations

import logging
import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from prefetch._process.numa import Node, find_node, stay_near

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

GPU = SimpleNamespace(name="cuda:0", pci_bus_id="0000:3B:00.0")
ALLOWED = sorted(os.sched_getaffinity(0))


@pytest.fixture
def machine(tmp_path: Path) -> Callable[..., Path]:
    """Write what Linux says of nodes and of where the GPU is; return the root."""

    def write(*cpulists: str, node: str = "0", device: str = "0000:3b:00.0") -> Path:
        folder = tmp_path / "sys/bus/pci/devices" / device
        folder.mkdir(parents=True)
        (folder / "numa_node").write_text(f"{node}\n")
        for number, cpulist in enumerate(cpulists):
            place = tmp_path / f"sys/devices/system/node/node{number}"
            place.mkdir(parents=True)
            (place / "cpulist").write_text(f"{cpulist}\n")
        return tmp_path

    return write


def affinity_after(root: Path, *, num_readers: int = 1, device: object = GPU) -> set[int]:
    """Return the cores of a thread that was to stay near the GPU."""
    found: list[set[int]] = []

    def run() -> None:
        stay_near(device, num_readers=num_readers, is_first=True, root=root)
        found.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return found[0]


@pytest.mark.parametrize(
    ("cpulist", "cores"), [("0-2,8", {0, 1, 2, 8}), ("7", {7}), ("0,2-3\n", {0, 2, 3}), ("", set())]
)
def test_a_node_has_the_cores_of_its_list(
    machine: Callable[..., Path], cpulist: str, cores: set[int]
) -> None:
    root = machine("99", cpulist, node="1")
    assert find_node("0000:3B:00.0", root) == Node(1, frozenset(cores))


@pytest.mark.parametrize("bus_id", ["00000000:3B:00.0", "0000:3b:00.0"])
def test_either_way_to_write_the_domain_is_known(machine: Callable[..., Path], bus_id: str) -> None:
    assert find_node(bus_id, machine("0", "1")) == Node(0, frozenset({0}))


def test_where_there_is_one_node_or_none_is_known_there_is_none(
    machine: Callable[..., Path], tmp_path: Path
) -> None:
    assert find_node("0000:3B:00.0", tmp_path / "nowhere") is None
    root = machine("0", "1", node="-1")
    assert find_node("0000:3B:00.0", root) is None
    assert find_node("0000:3C:00.0", root) is None
    (root / "sys/bus/pci/devices/0000:3b:00.0/numa_node").write_text("0")
    assert find_node("0000:3B:00.0", root) is not None
    (root / "sys/devices/system/node/node1/cpulist").unlink()
    (root / "sys/devices/system/node/node1").rmdir()
    assert find_node("0000:3B:00.0", root) is None


def test_a_thread_keeps_to_the_cores_near_the_gpu_and_the_log_says_so(
    machine: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    assert len(ALLOWED) > 1, "a machine with two cores"
    with caplog.at_level(logging.INFO, logger="prefetch"):
        assert affinity_after(machine(f"{ALLOWED[0]},9999", "1")) == {ALLOWED[0]}
    assert sorted(os.sched_getaffinity(0)) == ALLOWED
    assert caplog.messages == ["readers run on NUMA node 0 (cores: 1), where cuda:0 is"]


def test_readers_for_which_the_cores_do_not_suffice_stay_where_they_are(
    machine: Callable[..., Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="prefetch"):
        assert sorted(affinity_after(machine(f"{ALLOWED[0]}", "1"), num_readers=2)) == ALLOWED
    assert "(cores: 1) than there are readers (2)" in caplog.text


@pytest.mark.parametrize("near", ["9999", f"{ALLOWED[0]}-{ALLOWED[-1]}"])
def test_cores_that_the_process_may_not_use_are_none_and_all_of_them_no_news(
    machine: Callable[..., Path], near: str
) -> None:
    assert sorted(affinity_after(machine(near, "1"))) == ALLOWED


def test_a_device_that_is_no_gpu_is_near_to_all(machine: Callable[..., Path]) -> None:
    root = machine(f"{ALLOWED[0]}", "1")
    assert sorted(affinity_after(root, device=SimpleNamespace(name="cpu"))) == ALLOWED
