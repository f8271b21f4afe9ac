"""What is allowed to a process is told from what the machine has, on files like those of Linux."""

from __future__ import annotations

import os
import resource
from typing import TYPE_CHECKING

import pytest
from processes import run_code

import prefetch
from prefetch._feed import open as opening
from prefetch._process.resource_limits import MemoryLimit, memory_limit, num_cores
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

PHYSICAL = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
UNLIMITED_V1 = "9223372036854771712"
V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate"
V1_MEMORY = "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory"
V1_CPU = "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct"


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3})


class Machine:
    """A folder with what a process would find in ``/proc`` and ``/sys/fs/cgroup``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.write("proc/self/status", "Name:\tpython\n")

    def write(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")

    def enter(self, groups: str, *mounts: str) -> None:
        self.write("proc/self/cgroup", groups)
        other = "22 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw"
        self.write("proc/self/mountinfo", "\n".join([other, *mounts]))

    def allowed_bytes(self) -> int:
        return memory_limit(self.root).nbytes

    def cores(self) -> int:
        return num_cores(self.root)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_a_control_group_it_is_what_the_machine_has(machine: Machine) -> None:
    assert MemoryLimit("this machine has", PHYSICAL) == memory_limit(machine.root)
    assert 4 == machine.cores()
    (machine.root / "proc/self/status").unlink()
    assert PHYSICAL == machine.allowed_bytes()


def test_of_version_2_the_least_of_all_groups_up_to_the_root_counts(machine: Machine) -> None:
    machine.enter("0::/a/b", V2)
    machine.write("sys/fs/cgroup/a/b/memory.max", "max")
    machine.write("sys/fs/cgroup/a/memory.max", "3000000")
    machine.write("sys/fs/cgroup/a/b/memory.high", "max")
    assert 3000000 == machine.allowed_bytes()
    assert f"({machine.root}/sys/fs/cgroup/a/memory.max)" in str(memory_limit(machine.root))
    machine.write("sys/fs/cgroup/a/b/memory.max", "2000000")
    assert 2000000 == machine.allowed_bytes()
    machine.write("sys/fs/cgroup/a/b/memory.high", "1000000")
    assert 1000000 == machine.allowed_bytes()


def test_of_version_1_the_least_of_all_groups_up_to_the_root_counts(machine: Machine) -> None:
    machine.enter("5:cpu,cpuacct:/x\n4:memory:/a/b\n0::/", V1_CPU, V1_MEMORY)
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", UNLIMITED_V1)
    machine.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", UNLIMITED_V1)
    machine.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", UNLIMITED_V1)
    assert PHYSICAL == machine.allowed_bytes()
    machine.write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "3000000")
    assert 3000000 == machine.allowed_bytes()
    machine.write("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "2000000")
    assert 2000000 == machine.allowed_bytes()
    machine.write("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "1000000")  # of nobody's
    assert 2000000 == machine.allowed_bytes()


@pytest.mark.parametrize("group", ["/docker/1f", "/", "/../../elsewhere", "/docker/1"])
def test_in_a_container_its_own_group_is_what_is_mounted(machine: Machine, group: str) -> None:
    root = "/docker/1f" if group != "/" else "/"  # "/": a control group namespace
    machine.enter(f"4:memory:{group}", V1_MEMORY.replace(" / ", f" {root} ", 1))
    machine.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000000")
    assert 3000000 == machine.allowed_bytes()


def test_in_a_group_within_a_mounted_one_both_count(machine: Machine) -> None:
    machine.enter("0::/docker/1f/job", V2.replace(" / ", " /docker/1f ", 1))
    machine.write("sys/fs/cgroup/job/memory.max", "3000000")
    assert 3000000 == machine.allowed_bytes()
    machine.write("sys/fs/cgroup/memory.max", "2000000")
    assert 2000000 == machine.allowed_bytes()


def test_names_of_groups_may_hold_blanks_and_colons(machine: Machine) -> None:
    machine.enter("0::/a b:c", V2.replace("/sys/fs/cgroup", "/my\\040groups"))
    machine.write("my groups/a b:c/memory.max", "3000000")
    assert 3000000 == machine.allowed_bytes()


def test_what_the_process_has_already_is_not_there_for_a_ring(machine: Machine) -> None:
    machine.write("proc/self/status", "VmSize:\t  900 kB\nRssAnon:\t    1000 kB\nVmSwap:\t 0 kB")
    machine.enter("0::/a", V2)
    machine.write("sys/fs/cgroup/a/memory.max", "3000000")
    limit = memory_limit(machine.root)
    assert (3000000, 1024000, 1976000) == (limit.nbytes, limit.used_bytes, limit.available_bytes)
    assert "allows it 3000000 bytes of memory, 1024000 of them taken" in str(limit)
    machine.write("sys/fs/cgroup/a/memory.max", "1000")
    assert 0 == memory_limit(machine.root).available_bytes
    machine.write("proc/meminfo", "MemTotal: 24684092 kB\nSwapTotal:    8 kB")
    assert 0 == memory_limit(machine.root).used_bytes  # it can be swapped out


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("max 100000", 4), ("100000 100000", 1), ("150000 100000", 2), ("1000 100000", 1)],
)
def test_of_version_2_a_quota_of_time_is_so_many_cores(
    machine: Machine, quota: str, cores: int
) -> None:
    machine.enter("0::/a", V2)
    machine.write("sys/fs/cgroup/a/cpu.max", "300000 100000")
    assert 3 == machine.cores()
    machine.enter("0::/a/b", V2)
    machine.write("sys/fs/cgroup/a/b/cpu.max", quota)
    assert min(3, cores) == machine.cores()


@pytest.mark.parametrize(("quota", "cores"), [("-1", 4), ("100000", 2), ("900000", 4)])
def test_of_version_1_a_quota_of_time_is_so_many_cores(
    machine: Machine, quota: str, cores: int
) -> None:
    machine.enter("5:cpuacct,cpu:/a\n4:memory:/x", V1_CPU, V1_MEMORY)
    machine.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", quota)
    machine.write("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "50000")
    assert cores == machine.cores()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "command"), [(resource.RLIMIT_AS, "ulimit -v"), (resource.RLIMIT_DATA, "ulimit -d")]
)
def test_a_ring_beyond_a_limit_of_the_process_is_refused_at_opening(
    tmp_path: Path, kind: int, command: str
) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(4096, (1, 64, 64)))
    code = """
        import resource, sys
        import prefetch
        options = {"source": sys.argv[1], "batch_size": 4096, "device": "cpu", "threads": 1}
        kind = int(sys.argv[2])
        resource.setrlimit(kind, (2 << 30, resource.getrlimit(kind)[1]))
        with prefetch.open(options, prefetch=1) as feed:
            next(iter(feed))
            feed.load_state_dict(feed.state_dict())
        try:
            prefetch.open(options, prefetch=31)
        except prefetch.RingTooLargeError as error:
            print(error)
    """
    ended = run_code(code, source, kind)
    assert f"and {command} allows it {2 << 30} bytes of memory, " in ended.stdout, ended.stderr


def test_a_feed_that_goes_on_elsewhere_has_the_memory_of_its_ring_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write_database(tmp_path / "db", fingerprinted_images(8))
    with prefetch.open({"source": source, "batch_size": 4, "device": "cpu"}) as feed:
        next(iter(feed))
        monkeypatch.setattr(opening, "memory_limit", lambda: MemoryLimit("now there is", 1))
        feed.load_state_dict(feed.state_dict())
        assert 1 == next(iter(feed)).number
    with pytest.raises(prefetch.RingTooLargeError, match="now there is 1 bytes"):
        prefetch.open({"source": source, "batch_size": 4, "device": "cpu"})
