"""Devices for the tests of memory, each checked for leaks when the test is over."""

from __future__ import annotations

import gc
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
from blobs import BLOB_DTYPES
from inline_device import InlineDevice

from memory._device.cpu import CpuDevice
from memory._open_device import open_device
from memory._simulated.device import SimulatedDevice
from memory.testing import live_buffers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

    from memory._device.device import Device, Stream

# A device that is added here is held to the whole contract.
WITH_SECOND_MEMORY: dict[str, Callable[[], Device]] = {
    "simulated": SimulatedDevice,
    "inline": InlineDevice,
}
# "fake" on CuPy's fake driver (tests/fakecuda), anything else on a GPU; see tests/gpu.
if os.environ.get("RINGFEED_TEST_CUDA"):
    WITH_SECOND_MEMORY["cuda"] = lambda: open_device("cuda")
EVERY_DEVICE: dict[str, Callable[[], Device]] = {"cpu": CpuDevice, **WITH_SECOND_MEMORY}


@contextmanager
def _opened(make: Callable[[], Device]) -> Iterator[Device]:
    threads = set(threading.enumerate())
    with make() as device:
        yield device
    if live_buffers(device):
        gc.collect()  # only if needed: it takes longer than most tests
        device.close()  # joins the thread of a GPU that stays until the last buffer is freed
    assert live_buffers(device) == ()
    assert set(threading.enumerate()) <= threads


@pytest.fixture(params=EVERY_DEVICE)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    with _opened(EVERY_DEVICE[request.param]) as device:
        yield device


@pytest.fixture(params=[name for name in EVERY_DEVICE if name != "cuda"])
def off_gpu(request: pytest.FixtureRequest) -> Iterator[Device]:
    """A device whose blobs are exported from the host; a GPU's are where they are, by DLPack."""
    with _opened(EVERY_DEVICE[request.param]) as device:
        yield device


@pytest.fixture(params=WITH_SECOND_MEMORY)
def second_memory(request: pytest.FixtureRequest) -> Iterator[Device]:
    with _opened(WITH_SECOND_MEMORY[request.param]) as device:
        yield device


@pytest.fixture
def stream(second_memory: Device) -> Iterator[Stream]:
    with second_memory.make_stream("under test") as stream:
        yield stream


@pytest.fixture
def simulated() -> Iterator[SimulatedDevice]:
    with _opened(SimulatedDevice) as device:
        assert isinstance(device, SimulatedDevice)
        yield device


@pytest.fixture(params=BLOB_DTYPES, ids=lambda dtype: dtype.__name__)
def dtype(request: pytest.FixtureRequest) -> type[np.generic]:
    dtype: type[np.generic] = request.param
    return dtype
