"""scripts/gpu_check.py, as far as it goes on the fake device: its verdicts and its exit status."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import cupy
import numpy as np
import pytest

import gpu_check
import gpu_check_bench
import gpu_check_bytes
import gpu_check_speed
from gpu_check_bench import BATCH, RECORDS, Bench
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.fake_only

SIDE = 16
SHAPE = (3, SIDE, SIDE)
BYTES = ("torn batches", "held stream", "memory", "device transform")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fingerprints") / "db"
    return write_database(folder, fingerprinted_images(RECORDS, SHAPE))


@pytest.fixture
def bench(source: Path, cuda: Any) -> Bench:
    """A bench that takes this device for a GPU."""
    return Bench(
        device=cuda,
        source=source,
        side=SIDE,
        on_fake=False,
        batches=20,
        epochs=3,
        quick=True,
        until=time.monotonic() + 60,
    )


@pytest.fixture
def main(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Any]]:
    """Run the command with small images; return the exit status and what it wrote as JSON."""

    # Limits are for hangs on a GPU, and this machine may stand still for a while.
    monkeypatch.setattr(gpu_check, "LIMITS_S", dict.fromkeys(gpu_check.CHECKS, 100.0))

    def run(*words: str) -> tuple[int, Any]:
        found = tmp_path / "found.json"
        options = ["--json", str(found), "--batches", "20", "--side", str(SIDE)]
        monkeypatch.setattr(sys, "argv", ["gpu_check.py", *options, *words])
        status = gpu_check.main()
        return status, json.loads(found.read_text())

    return run


def verdicts(found: Any) -> list[str]:
    return [check["verdict"] for check in found["checks"]]


def test_right_bytes_are_said_to_be_right_and_no_speed_is_told(
    main: Callable[..., tuple[int, Any]],
) -> None:
    status, found = main("--only", "device transform", "--only", "bandwidth")
    assert status == 0
    assert found["device"] == "fake device"
    assert "fakecuda" in found["description"]
    assert verdicts(found) == ["right", "not run"]


@pytest.mark.parametrize("name", BYTES)
def test_the_checks_of_bytes_find_nothing_wrong(bench: Bench, name: str) -> None:
    assert gpu_check.CHECKS[name](bench).verdict == "right"


@pytest.mark.parametrize("name", sorted({*gpu_check.CHECKS} - {*BYTES}))
def test_no_speed_is_told_of_a_fake_device(bench: Bench, name: str) -> None:
    with pytest.raises(gpu_check_bench.NotHereError):
        gpu_check.CHECKS[name](dataclasses.replace(bench, on_fake=True))


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import os; os.abort()", "status -6"),
        ("import time; time.sleep(60)", "did not get to its end in 1 s"),
        ("raise SystemExit('the context is lost')", "the context is lost"),
    ],
)
def test_a_check_that_crashes_or_hangs_is_wrong_and_the_others_run(
    main: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch, code: str, text: str
) -> None:
    command = gpu_check._command

    def broken(name: str, *arguments: Any) -> list[str]:
        if name == "held stream":
            return [sys.executable, "-c", code]
        return command(name, *arguments)

    monkeypatch.setattr(gpu_check, "_command", broken)
    if "sleep" in code:
        monkeypatch.setitem(gpu_check.LIMITS_S, "held stream", 1.0)
    status, found = main("--only", "held stream", "--only", "memory")
    assert status == 1
    assert verdicts(found) == ["wrong", "right"]
    assert text in found["checks"][0]["text"]


def test_what_there_is_no_time_for_is_not_run(main: Callable[..., tuple[int, Any]]) -> None:
    status, found = main("--budget-s", "2")
    assert status == 0
    assert set(verdicts(found)) == {"not run"}


def test_what_the_end_of_the_time_cuts_off_is_not_run(
    main: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sleeps = [sys.executable, "-c", "import time; time.sleep(60)"]
    monkeypatch.setattr(gpu_check, "_command", lambda *_: sleeps)
    status, found = main("--budget-s", "4", "--only", "memory")
    assert status == 0
    assert verdicts(found) == ["not run"]


def test_without_a_device_it_says_why_and_the_exit_status_is_2(
    main: Callable[..., tuple[int, Any]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_check.py", "--device", "cuda:9", "--side", "16"])
    assert gpu_check.main() == 2
    assert "there is no GPU 9" in capsys.readouterr().err


def test_what_a_check_raises_is_wrong(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gpu_check.CHECKS, "held stream", lambda _: 1 / 0)
    options = ["--side", str(SIDE), "--limit-s", "20"]
    arguments = gpu_check._parser().parse_args(options)
    outcome = gpu_check.check("held stream", arguments, source)["outcome"]
    assert outcome["verdict"] == "wrong"
    assert "ZeroDivisionError" in outcome["text"]


@pytest.mark.parametrize("check", ["torn batches", "held stream"])
def test_one_wrong_byte_is_found(bench: Bench, tmp_path: Path, check: str) -> None:
    def one_byte_off() -> Any:
        for number, (key, value) in enumerate(fingerprinted_images(RECORDS, SHAPE)):
            yield key, value[:-9] + b"\xfe" + value[-8:] if number == 70 else value

    spoilt = write_database(tmp_path / "spoilt", one_byte_off())
    outcome = gpu_check.CHECKS[check](dataclasses.replace(bench, source=spoilt))
    assert outcome.verdict == "wrong"


def test_a_torn_batch_is_found(bench: Bench, fake: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # Slots that are filled again at once, as if nobody were at work on them. The ring's memory is
    # never freed, so nothing but the bytes can tell.
    monkeypatch.setattr("prefetch._ring.Ring._last_uses", lambda *_: [])
    fake.configure(race=0, latency_us=3000)
    try:
        outcome = gpu_check_bytes.check_torn(dataclasses.replace(bench, batches=100))
    finally:
        fake.configure(race=1, latency_us=0)
    assert outcome.verdict == "wrong"


def test_the_hunt_ends_when_its_time_is_up_and_says_so(bench: Bench) -> None:
    outcome = gpu_check_bytes.check_torn(dataclasses.replace(bench, until=0.0))
    assert outcome.numbers["batches"] == 0
    assert "0 of 0 batches were torn, of 20 wanted: time was up" in outcome.text


def test_memory_that_outgrows_the_ring_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    opened = Bench.open

    def leaking(bench: Any, **options: Any) -> Any:
        kept.append(bench.device.alloc_device(1 << 20))
        feed = opened(bench, **options)
        kept.extend(bench.device.alloc_device(1 << 20) for _ in range(2))
        return feed

    monkeypatch.setattr(Bench, "open", leaking)
    assert gpu_check_bytes.check_memory(bench).verdict == "wrong"
    kept.clear()


def test_memory_that_somebody_else_takes_all_the_time_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    asked = gpu_check_bytes._free_bytes

    def leaking(bench: Bench) -> int:
        kept.append(cupy.cuda.alloc(4 << 20))
        return asked(bench)

    monkeypatch.setattr(gpu_check_bytes, "_free_bytes", leaking)
    outcome = gpu_check_bytes.check_memory(dataclasses.replace(bench, epochs=6))
    kept.clear()
    cupy.get_default_memory_pool().free_all_blocks()
    assert outcome.verdict == "wrong"
    grown = outcome.numbers["driver_grown_bytes"]
    assert 3 * (4 << 20) <= grown < 4 * (4 << 20)  # and some, where a stream was made meanwhile


class TestWhatIsMeasured:
    """Not how much, which means nothing here: that the loops run to their end."""

    def test_the_rates_of_copies_and_feeds(self, bench: Bench) -> None:
        numbers = gpu_check_speed.check_bandwidth(bench).numbers
        assert len(numbers) == 5
        assert min(numbers.values()) > 0

    def test_the_transformation_on_both_sides(self, bench: Bench) -> None:
        numbers = gpu_check_speed.check_transform_speed(bench).numbers
        assert len(numbers) == 2 * len(gpu_check_bytes.transforms(SIDE))
        assert min(numbers.values()) > 0

    def test_the_hunt_makes_its_consumer_slow(self, bench: Bench) -> None:
        outcome = gpu_check_bytes.check_torn(bench)
        assert outcome.verdict == "right"
        assert outcome.numbers["ballast_copies"] >= 1

    def test_a_loop_of_pytorchs(self, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
        torch = torch_on_cupy()
        monkeypatch.setitem(sys.modules, "torch", torch)
        numbers = gpu_check_speed.check_step_time(bench).numbers
        assert numbers["feed_s"] > 0
        numbers = gpu_check_speed.check_torch_loader(bench).numbers
        assert min(numbers.values()) > 0

    def test_without_pytorch_or_its_gpu_it_says_so(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "torch", None)
        with pytest.raises(gpu_check_bench.NotHereError, match="PyTorch is not installed"):
            gpu_check_speed.check_step_time(bench)
        torch = SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False))
        monkeypatch.setitem(sys.modules, "torch", torch)
        with pytest.raises(gpu_check_bench.NotHereError, match="sees no GPU"):
            gpu_check_speed.check_torch_loader(bench)


class OnHost:
    """A tensor of the loader's."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def to(self, device: str, *, non_blocking: bool) -> Any:
        assert (device, non_blocking) == ("cuda:0", True)
        return cupy.asarray(self.values)


class Loader:
    """PyTorch's, without its processes."""

    def __init__(self, data: Any, **options: Any) -> None:
        assert options["pin_memory"]
        assert options["batch_size"] == BATCH
        self.data = data

    def __iter__(self) -> Iterator[tuple[OnHost, OnHost]]:
        for start in range(0, len(self.data), BATCH):
            data, labels = zip(*(self.data[start + i] for i in range(BATCH)), strict=True)
            yield OnHost(np.stack(data)), OnHost(labels)


def torch_on_cupy() -> MagicMock:
    """What the checks use of PyTorch, on a stream of CuPy's; tensors do nothing."""
    stream = cupy.cuda.Stream(non_blocking=True)
    theirs = SimpleNamespace(cuda_stream=stream.ptr, device_index=0, kept=stream)

    def from_dlpack(blob: Any) -> MagicMock:
        blob.__dlpack__(stream=theirs.cuda_stream, max_version=(1, 0))
        return MagicMock()

    torch = MagicMock()
    torch.cuda.current_stream.return_value = theirs
    torch.cuda.synchronize = stream.synchronize
    torch.from_dlpack = from_dlpack
    torch.utils.data.DataLoader = Loader
    return torch
