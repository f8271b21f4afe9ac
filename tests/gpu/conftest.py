"""Tests on a CUDA device: CuPy's fake one, or a GPU.

They run where RINGFEED_TEST_CUDA is set: by ``pytest -p fakecuda`` (``make test-fakecuda``), which
sets it to ``fake``, or by hand on a machine with a GPU. Elsewhere they are not collected. Whoever
asks for them gets them: where there is no device they fail, and are not skipped.

Marker ``fake_only``: the test holds, slows down or breaks the device, which a GPU does not let it.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest

from memory import open_device
from memory.testing import live_buffers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from memory import Device

WHERE = os.environ.get("RINGFEED_TEST_CUDA", "")
ON_THE_FAKE = WHERE == "fake"

collect_ignore_glob = [] if WHERE else ["test_*.py"]
# Read when the driver is first asked. A GPU is as it is.
os.environ.setdefault("FAKECUDA_DEVICES", "2")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "gpu: runs on a CUDA device, fake or not")
    config.addinivalue_line("markers", "fake_only: needs the controls of the fake device")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    mine = [item for item in items if item.path.parent == config.rootpath / "tests" / "gpu"]
    for item in mine:
        item.add_marker("gpu")
    if not ON_THE_FAKE:
        out = [item for item in mine if item.get_closest_marker("fake_only")]
        config.hook.pytest_deselected(items=out)
        items[:] = [item for item in items if item not in out]


@pytest.fixture
def fake() -> Any:
    """The controls of the fake device; for tests marked ``fake_only``."""
    import fakecuda  # noqa: PLC0415 - there is none on a machine with a GPU

    return fakecuda


@pytest.fixture(autouse=True)
def _no_hazard_and_no_race() -> Iterator[None]:
    """Fail a test in which memory was freed or used out of order; leave the device as it was."""
    if not ON_THE_FAKE:
        yield
        return
    import cupy  # noqa: PLC0415 - not where these tests are not collected
    import fakecuda  # noqa: PLC0415 - there is none on a machine with a GPU

    # What earlier tests have left there would be given back where memory is said to be used up.
    cupy.get_default_memory_pool().free_all_blocks()
    cupy.get_default_pinned_memory_pool().free_all_blocks()
    before = fakecuda.stat("hazards"), fakecuda.stat("races")
    yield
    fakecuda.release_all()
    fakecuda.inject(None)
    fakecuda.clear_failure()
    fakecuda.configure(
        latency_us=0,
        mbps=0,
        jitter_us=0,
        poison=1,
        poison_dst=0,
        mem=1 << 30,
        pinned=0,
        queue=1024,
    )
    assert (fakecuda.stat("hazards"), fakecuda.stat("races")) == before


@pytest.fixture(autouse=True)
def _no_hold_has_run_out(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fail a test whose held stream went on by itself: the rest of it was about no held stream."""
    from memory._cuda.event import HostWait  # noqa: PLC0415 - imports CuPy

    ran_out: list[float] = []
    wait = HostWait._wait

    def watched(host_wait: HostWait) -> None:
        wait(host_wait)
        limit_s = host_wait._limit_s
        if host_wait.failure is not None and limit_s is not None and limit_s > 1:
            ran_out.append(limit_s)

    monkeypatch.setattr(HostWait, "_wait", watched)
    yield
    assert ran_out == []


@pytest.fixture
def open_checked() -> Iterator[Callable[..., Any]]:
    """Open CUDA devices; when the test is over, nothing of them may be left."""
    opened: list[Device] = []
    threads = set(threading.enumerate())

    def make(spec: str = "cuda:0", **options: Any) -> Device:
        opened.append(open_device(spec, **options))
        return opened[-1]

    yield make
    for device in opened:
        device.close()
        # Twice, because leases that die in a collection put their slots on the feed's queue.
        for _ in range(2):
            if live_buffers(device):
                gc.collect()
        device.close()  # again: joins the thread that stays until the last buffer is freed
        assert live_buffers(device) == ()
    left = set(threading.enumerate()) - threads
    if left:
        gc.collect()  # a feed's own device, if only a cycle holds on to its slots
        gc.collect()
    for thread in left:
        thread.join(5)
    assert set(threading.enumerate()) <= threads


@pytest.fixture
def cuda(open_checked: Callable[..., Any]) -> Any:
    """GPU 0."""
    return open_checked()


@pytest.fixture
def two_devices(open_checked: Callable[..., Any]) -> tuple[Any, Any]:
    """GPUs 0 and 1."""
    from memory._cuda.runtime import count_gpus  # noqa: PLC0415 - imports CuPy

    if count_gpus("cuda") < 2:
        assert not ON_THE_FAKE, "FAKECUDA_DEVICES must be 2 or more"
        pytest.skip("this machine has one GPU")
    return open_checked("cuda:0"), open_checked("cuda:1")


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code in a process of its own, on the fake device where this one is."""

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        head = "import fakecuda\n" if ON_THE_FAKE else ""
        return subprocess.run(
            [sys.executable, "-c", head + code],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
