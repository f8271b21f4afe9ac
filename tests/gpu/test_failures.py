"""What fails on the device: which error says so, where, and what it names."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from memory import DeviceError, SyncedMemory, open_device
from memory.testing import hold

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

LOST = 700  # cudaErrorIllegalAddress: the context is lost


@pytest.mark.fake_only
def test_a_copy_that_is_refused_raises_at_once_and_leaves_the_stream_good(
    cuda: Any, fake: Any
) -> None:
    source, target = cuda.alloc_host(64).array, cuda.alloc_device(64)
    source[:] = 1
    with cuda.make_stream() as stream:
        fake.inject("cuMemcpyHtoDAsync@1=1")
        with pytest.raises(DeviceError, match="copy_to_device of 64 bytes failed") as caught:
            cuda.copy_to_device(target, source, stream=stream)
        assert caught.value.operation == "copy_to_device of 64 bytes"
        assert "cudaErrorInvalidValue" in caught.value.reason
        cuda.copy_to_device(target, source, stream=stream)
        stream.synchronize()


@pytest.mark.fake_only
@pytest.mark.parametrize("where", ["event", "stream", "record", "another copy"])
def test_a_copy_that_fails_on_the_device_shows_at_the_next_call_that_can_tell(
    cuda: Any, fake: Any, where: str
) -> None:
    source, target = cuda.alloc_host(64).array, cuda.alloc_device(64)
    stream = cuda.make_stream("fails")
    with hold(stream):
        fake.inject(f"cuMemcpyHtoDAsync@1={LOST}!")
        cuda.copy_to_device(target, source, stream=stream)
        event = stream.record()
    done = threading.Event()
    event.notify(done.set)
    assert done.wait(10)
    calls: dict[str, Callable[[], object]] = {
        "event": event.synchronize,
        "stream": stream.synchronize,
        "record": stream.record,
        "another copy": lambda: cuda.copy_to_device(target, source, stream=stream),
    }
    with pytest.raises(DeviceError) as caught:
        calls[where]()
    assert "cudaErrorIllegalAddress" in caught.value.reason
    assert "copy_to_device of 64 bytes" in caught.value.reason
    with pytest.raises(DeviceError):
        event.synchronize()  # every time
    fake.clear_failure()
    stream.close()


@pytest.mark.fake_only
def test_a_notification_comes_although_the_work_failed(cuda: Any, fake: Any) -> None:
    called = threading.Event()
    source, target = cuda.alloc_host(64).array, cuda.alloc_device(64)
    with cuda.make_stream() as stream:
        with hold(stream):
            fake.inject(f"cuMemcpyHtoDAsync@1={LOST}!")
            cuda.copy_to_device(target, source, stream=stream)
            stream.record().notify(called.set)
        assert called.wait(10)
        fake.clear_failure()


@pytest.mark.fake_only
def test_a_lost_context_makes_closing_no_harder(cuda: Any, fake: Any) -> None:
    stream = cuda.make_stream()
    fake.inject(f"cuMemcpyHtoDAsync@1={LOST}!")
    cuda.copy_to_device(cuda.alloc_device(64), cuda.alloc_host(64).array, stream=stream)
    stream.close()
    cuda.close()
    fake.clear_failure()


@pytest.mark.fake_only
def test_a_push_that_failed_is_told_by_the_memory_that_made_it(cuda: Any, fake: Any) -> None:
    with SyncedMemory(64, cuda) as memory, cuda.make_stream() as stream:
        memory.mutable_cpu_data()[:] = 1
        memory.overwrite_gpu_data()
        memory.mutable_cpu_data()[:] = 2
        with hold(stream):
            fake.inject(f"cuMemcpyHtoDAsync@1={LOST}!")
            memory.async_gpu_push(stream)
        with pytest.raises(DeviceError, match="cudaErrorIllegalAddress"):
            memory.synchronize()
        fake.clear_failure()


@pytest.mark.fake_only
@pytest.mark.parametrize(
    ("call", "make"),
    [
        ("cuStreamCreate", lambda device: device.make_stream()),
        ("cuMemAlloc", lambda device: device.alloc_device(64)),
        ("cuMemHostAlloc", lambda device: device.alloc_host(64)),
    ],
)
def test_any_other_refusal_is_an_error_of_the_device(
    cuda: Any, fake: Any, call: str, make: Callable[[Any], object]
) -> None:
    fake.inject(f"{call}@1+=999")
    with pytest.raises(DeviceError, match="cudaErrorUnknown"):
        make(cuda)
    fake.inject(None)
    kept = make(cuda)
    if call == "cuStreamCreate":
        kept.close()  # type: ignore[attr-defined]


def test_a_hold_that_nobody_releases_ends_with_a_failure_told_once(cuda: Any) -> None:
    with cuda.make_stream("forgotten") as stream:
        latch = hold(stream, limit_s=0.05)
        event = stream.record()
        with pytest.raises(DeviceError, match=r"held for 0\.05 s and not released"):
            stream.synchronize()
        stream.synchronize()
        with pytest.raises(DeviceError, match="a hold failed"):
            event.synchronize()
        latch.release()


def test_a_failure_on_the_host_passes_on_to_a_stream_that_waits(cuda: Any) -> None:
    with cuda.make_stream() as first, cuda.make_stream() as second, hold(first, limit_s=0.05):
        second.wait(first.record())
        with pytest.raises(DeviceError, match="a hold failed"):
            second.synchronize()


def test_a_stream_waits_for_events_of_other_devices_too(cuda: Any) -> None:
    with (
        open_device("simulated") as simulated,
        simulated.make_stream() as theirs,
        cuda.make_stream() as stream,
    ):
        with hold(theirs):
            stream.wait(theirs.record())
            event = stream.record()
            assert not event.done()
        event.synchronize()


@pytest.mark.fake_only
def test_a_kernel_that_the_driver_does_not_run_is_an_error_that_says_so(cuda: Any) -> None:
    source = 'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.f; }'
    with pytest.raises(
        NotImplementedError, match=r"compile of 'twice'.*its driver runs no kernels"
    ):
        cuda.compile(source, "twice")


def test_a_source_that_does_not_compile_is_told_with_the_compilers_words(cuda: Any) -> None:
    with pytest.raises(DeviceError, match=r"(?s)compile of 'broken'.*identifier"):
        cuda.compile('extern "C" __global__ void broken() { nothing(); }', "broken")


@pytest.mark.fake_only
def test_without_nvrtc_whatever_needs_a_kernel_says_what_to_install(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = """
import cuda.pathfinder
def none(name):
    raise cuda.pathfinder.DynamicLibNotFoundError(name)
cuda.pathfinder.load_nvidia_dynamic_lib = none
import logging, numpy as np, prefetch, prefetch.testing
from memory import NotImplementedDeviceError, open_device
logging.basicConfig(level=logging.INFO, format="%(message)s")
device = open_device("cuda")
buffer, stream = device.alloc_device(8), device.current_stream()
for needs in (
    lambda: device.compile("", "any"),
    lambda: device.asum(buffer, dtype=np.float32, stream=stream),
    lambda: device.axpy(buffer, buffer, alpha=1.0, dtype=np.float32, stream=stream),
):
    try:
        needs()
    except NotImplementedDeviceError as error:
        assert "install ringfeed[cuda12-ctk] or ringfeed[cuda13-ctk]" in str(error), error
    else:
        raise AssertionError(needs)
with prefetch.testing.example_database() as path:
    with prefetch.open({"source": path}, device=device) as feed:
        assert [batch.epoch for batch in feed] == [0]
    try:
        prefetch.open({"source": path, "transform": {"where": "device"}}, device=device)
    except prefetch.ConfigError as error:
        assert "'/path/to/checkout[cuda13-ctk]'" in str(error), error
    else:
        raise AssertionError
device.close()
"""
    done = run_python(code)
    assert done.returncode == 0, done.stderr
    assert "transform.where: auto resolved to host" in done.stderr


@pytest.mark.fake_only
def test_a_device_address_is_no_address_of_the_host(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    done = run_python(
        "import ctypes, memory\n"
        "buffer = memory.open_device('cuda').alloc_device(4)\n"
        "ctypes.string_at(buffer.ptr, 1)"
    )
    assert done.returncode == -11
