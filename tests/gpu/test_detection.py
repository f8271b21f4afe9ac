"""Whether a GPU can be used, and what is said where it cannot."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import pytest

from memory import DeviceOptionError, DeviceUnavailableError, _open_device, open_device
from memory._cuda.runtime import count_gpus

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    RunPython = Callable[..., subprocess.CompletedProcess[str]]

OPEN = """
from memory import DeviceUnavailableError, open_device
try:
    open_device("cuda")
except DeviceUnavailableError as error:
    print(error.reason, "|", error.cure)
"""


@pytest.mark.fake_only
@pytest.mark.parametrize(
    ("environment", "reason", "cure"),
    [
        ({"FAKECUDA_NODRIVER": "1"}, "there is no NVIDIA driver", "install one"),
        (
            {"FAKECUDA_DRIVER_VERSION": "11080"},
            "the NVIDIA driver is too old: it supports CUDA 11.8, and the CuPy",
            "update the driver",
        ),
        (
            {"FAKECUDA_DEVICES": "0", "CUDA_VISIBLE_DEVICES": ""},
            "the NVIDIA driver finds no GPU (CUDA_VISIBLE_DEVICES is '')",
            "nvidia-smi",
        ),
        ({"FAKECUDA_FAIL": "cuMemGetInfo@1=46"}, "the GPU is busy", "end that process"),
        ({"FAKECUDA_FAIL": "cuMemGetInfo@1=34"}, "the CUDA toolkit's stub", "LD_LIBRARY_PATH"),
        ({"FAKECUDA_FAIL": "cuMemGetInfo@1=999"}, "cudaErrorUnknown", "nvidia-smi"),
    ],
)
def test_each_way_of_having_no_gpu_has_a_message_and_a_cure(
    run_python: RunPython, environment: dict[str, str], reason: str, cure: str
) -> None:
    done = run_python(OPEN, **environment)
    found = done.stdout.strip().split(" | ")
    assert done.returncode == 0, done.stderr
    assert "Exception ignored" not in done.stderr  # as of a stream of CuPy's that was not made
    assert reason in found[0]
    assert cure in found[1]


def test_without_cupy_the_extras_are_named(
    run_python: RunPython,
) -> None:
    done = run_python("import sys; sys.modules['cupy'] = None" + OPEN)
    assert done.returncode == 0, done.stderr
    assert "ringfeed[cuda13]" in done.stdout
    assert "ringfeed[cuda12]" in done.stdout
    assert "pip install '/path/to/checkout[cuda13]'" in done.stdout  # no index has the package


def test_an_ordinal_that_does_not_exist_is_refused_by_name() -> None:
    count = count_gpus("cuda")
    with pytest.raises(
        DeviceUnavailableError, match=f"there is no GPU {count}: this process sees {count}"
    ) as caught:
        open_device(f"cuda:{count}")
    assert caught.value.device == f"cuda:{count}"


def test_cuda_is_the_current_device_and_auto_takes_it(
    open_checked: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="memory"):
        assert open_checked("cuda").name == "cuda:0"
        assert open_checked("auto").name == "cuda:0"
    assert caplog.records == []


def test_an_option_that_it_does_not_take_is_refused() -> None:
    with pytest.raises(DeviceOptionError, match="its options are: pageable_fallback"):
        open_device("cuda", pool="async")


@pytest.mark.fake_only
def test_auto_falls_back_to_cpu_and_says_so_once(run_python: RunPython) -> None:
    code = """
import logging
logging.basicConfig(level=logging.INFO, format="%(message)s")
from memory import open_device
print(open_device("auto").name, open_device("auto").name)
"""
    done = run_python(code, FAKECUDA_NODRIVER="1")
    assert done.stdout.split() == ["cpu", "cpu"]
    assert done.stderr.splitlines() == ["device auto is cpu: there is no NVIDIA driver"]


def test_auto_raises_what_is_no_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    _open_device._log_once.cache_clear()
    monkeypatch.setattr(
        sys.modules["memory._cuda.runtime"].runtime, "getDeviceCount", lambda: 1 / 0, raising=True
    )
    with pytest.raises(ZeroDivisionError):
        open_device("auto")


def test_importing_costs_no_call_to_cuda(run_python: RunPython) -> None:
    # Before a fork: a call of the parent's would have spoilt CUDA for the child.
    code = """
import memory, os, prefetch, sys
assert "cupy" not in sys.modules
import memory._cuda.runtime
child = os.fork()
if child == 0:
    memory.open_device("cuda").close()
    os._exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    done = run_python(code)
    assert done.stdout.split() == ["7"], done.stderr


def test_after_a_fork_every_call_says_so_and_none_hangs(run_python: RunPython) -> None:
    code = """
import os, sys
import numpy as np
from memory import Blob, DeviceError, DeviceUnavailableError, open_device
device = open_device("cuda")
stream = device.make_stream("parents")
buffer, host = device.alloc_device(4), device.alloc_host(4)
event = stream.record()
blob = Blob((2,), np.float32, device=device)
child = os.fork()
if child == 0:
    for call in (
        stream.record,
        stream.synchronize,
        event.synchronize,
        device.make_stream,
        device.current_stream,
        blob.gpu_data,
        lambda: device.alloc_device(4),
        lambda: device.alloc_host(4),
        lambda: device.fill(buffer, 0, stream=stream),
        lambda: device.copy_to_device(buffer, host.array, stream=stream),
    ):
        try:
            call()
        except DeviceError as error:
            assert "'spawn'" in str(error), error
        else:
            raise AssertionError(call)
    try:
        open_device("cuda")
    except DeviceUnavailableError as error:
        assert "was forked" in error.reason, error
    device.memory_info()
    stream.close()
    device.close()
    del buffer, host, event, stream, device, blob
    sys.exit(7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stream.close()
device.close()
"""
    done = run_python(code)
    assert done.stdout.split() == ["7"], done.stderr


def test_without_a_folder_for_cupys_cache_auto_is_the_cpu_and_says_why(
    run_python: RunPython, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    code = """
import logging, memory
logging.basicConfig(level=logging.INFO, format="%(message)s")
print(memory.open_device("auto").name)
try:
    memory.open_device("cuda")
except memory.DeviceUnavailableError as error:
    assert "CUPY_CACHE_DIR" in str(error), error
else:
    raise AssertionError
"""
    done = run_python(code, CUPY_CACHE_DIR=str(tmp_path / "file" / "cache"))
    assert done.stdout.split() == ["cpu"], done.stderr
    assert "makes a folder for its cache and cannot" in done.stderr
