from __future__ import annotations

import logging
import sys
import types
from typing import TYPE_CHECKING, Any

import pytest

from memory import _open_device
from memory._device.cpu import CpuDevice
from memory._errors import DeviceOptionError, DeviceUnavailableError, UnknownDeviceError
from memory._open_device import open_device
from memory._simulated.device import SimulatedDevice

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> None:
    _open_device._log_once.cache_clear()


def backend(monkeypatch: pytest.MonkeyPatch, open_cuda: Callable[..., object]) -> None:
    module: Any = types.ModuleType("memory._cuda.open")
    module.open_cuda = open_cuda
    monkeypatch.setitem(sys.modules, "memory._cuda.open", module)


def no_driver(*_: object, **__: object) -> None:
    raise DeviceUnavailableError("cuda", reason="there is no driver", cure="install one")


def test_cpu_is_one_device_for_the_whole_process() -> None:
    assert isinstance(open_device("cpu"), CpuDevice)
    assert open_device("cpu") is open_device("cpu")


def test_simulated_is_a_new_device_each_time_with_its_options() -> None:
    with open_device("simulated", limit_bytes=5) as first, open_device("simulated") as second:
        assert isinstance(first, SimulatedDevice)
        assert (first.memory_info().limit_bytes, second.memory_info().limit_bytes) == (5, None)


def test_auto_is_cpu_without_a_gpu_and_the_log_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    backend(monkeypatch, no_driver)
    with caplog.at_level(logging.INFO, logger="memory"):
        assert open_device() is open_device("auto") is open_device("cpu")
    assert [record.getMessage() for record in caplog.records] == [
        "device auto is cpu: there is no driver"
    ]


def test_auto_is_the_gpu_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    gpu = object()
    backend(monkeypatch, lambda _ordinal: gpu)
    with caplog.at_level(logging.INFO, logger="memory"):
        assert open_device("auto") is gpu
    assert caplog.records == []


def test_a_fault_of_the_gpu_is_not_taken_for_its_absence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_ordinal: int | None) -> None:
        raise ZeroDivisionError

    backend(monkeypatch, broken)
    with pytest.raises(ZeroDivisionError):
        open_device("auto")


@pytest.mark.parametrize(
    ("spec", "ordinal"), [("cuda", None), ("cuda:0", 0), ("cuda:3", 3), ("cuda:12", 12)]
)
def test_cuda_names_a_gpu_by_its_ordinal(
    monkeypatch: pytest.MonkeyPatch, spec: str, ordinal: int | None
) -> None:
    asked: list[tuple[int | None, dict[str, object]]] = []

    def record(ordinal: int | None, **options: object) -> None:
        asked.append((ordinal, options))

    backend(monkeypatch, record)
    open_device(spec, pool="async")
    assert asked == [(ordinal, {"pool": "async"})]


@pytest.mark.parametrize("spec", ["cuda", "cuda:1"])
def test_cuda_without_its_module_says_what_is_missing_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, spec: str
) -> None:
    # None makes importing it fail as if it were absent.
    monkeypatch.setitem(sys.modules, "memory._cuda.open", None)
    with pytest.raises(DeviceUnavailableError, match="has no CUDA device; use 'cpu'") as caught:
        open_device(spec)
    assert isinstance(caught.value, RuntimeError)
    assert caught.value.device == spec


@pytest.mark.parametrize(
    ("spec", "nearest"),
    [
        ("gpu", "cuda"),
        ("GPU:0", "cuda"),
        ("CPU", "cpu"),
        ("host", "cpu"),
        ("simulate", "simulated"),
        ("cuda:x", "cuda"),
        ("cuda:-1", "cuda"),
        ("cuda:", "cuda"),
        (" cuda:0", "cuda"),
        ("tpu", "cpu"),
        ("quantum", None),
        ("", None),
    ],
)
def test_a_name_that_no_device_has_is_refused_with_the_nearest(
    spec: str, nearest: str | None
) -> None:
    with pytest.raises(
        UnknownDeviceError, match="expected a Device or one of auto, cpu, simulated, cuda, cuda:N"
    ) as caught:
        open_device(spec)
    assert isinstance(caught.value, ValueError)
    assert (caught.value.spec, caught.value.nearest) == (spec, nearest)
    assert (f"did you mean {nearest!r}?" in str(caught.value)) == (nearest is not None)


def test_what_is_no_device_at_all_is_refused() -> None:
    with pytest.raises(UnknownDeviceError, match="there is no device 0: "):
        open_device(0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "valid"),
    [
        ("cpu", ()),
        ("auto", ()),
        ("simulated", ("latency_s", "bandwidth_bytes_per_s", "limit_bytes", "sleep")),
        (CpuDevice(), ()),
    ],
)
def test_options_that_a_device_does_not_take_are_refused(
    monkeypatch: pytest.MonkeyPatch, spec: Any, valid: tuple[str, ...]
) -> None:
    backend(monkeypatch, no_driver)
    with pytest.raises(DeviceOptionError, match="does not take latency: ") as caught:
        open_device(spec, latency=1.0)
    assert isinstance(caught.value, TypeError)
    assert (caught.value.unknown, caught.value.valid) == (("latency",), valid)
