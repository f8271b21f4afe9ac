"""Tests of the fake CUDA device itself: that it does what a device does, and sees what goes wrong.

Collected by ``pytest -p fakecuda`` only.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

collect_ignore_glob = [] if os.environ.get("RINGFEED_TEST_CUDA") == "fake" else ["test_*.py"]
os.environ.setdefault("FAKECUDA_DEVICES", "2")


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """Leave the device as it was, whatever the test has done to it."""
    import cupy  # noqa: PLC0415 - collected on the fake only
    import fakecuda  # noqa: PLC0415 - as above

    cupy.get_default_memory_pool().free_all_blocks()  # so that what a test takes is fresh
    yield
    fakecuda.release_all()
    fakecuda.inject(None)
    fakecuda.clear_failure()
    cupy.cuda.Device(0).synchronize()
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


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code on the fake device in a process of its own."""

    def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", "import fakecuda\n" + code],
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
