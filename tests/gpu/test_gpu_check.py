"""scripts/gpu_check.py, as far as it goes on the fake device: its verdicts and its exit status."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from typing import TYPE_CHECKING, Any

import cupy
import pytest
from databases import images_fixture

import gpu_check
from gpu_checks import batch_bytes
from gpu_checks.bench import RECORDS, Bench, NotHereError
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.fake_only

SIDE = 16
SHAPE = (3, SIDE, SIDE)
BYTES = ("torn batches", "held stream", "memory", "device transform", "graph capture")


source = images_fixture(RECORDS, SHAPE, scope="module")


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
    with pytest.raises(NotHereError):
        gpu_check.CHECKS[name](dataclasses.replace(bench, on_fake=True))


def test_what_measures_comes_first_and_the_tests_come_last() -> None:
    names = list(gpu_check.CHECKS)
    assert names[:3] == ["bandwidth", "step time", "transform speed"]
    assert names[-1] == "tests"


def replace_check(monkeypatch: pytest.MonkeyPatch, name: str, code: str) -> None:
    """Have one check be something else."""
    command = gpu_check._command

    def replaced(asked: str, *arguments: Any) -> list[str]:
        return [sys.executable, "-c", code] if asked == name else command(asked, *arguments)

    monkeypatch.setattr(gpu_check, "_command", replaced)


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import os; os.abort()", "status -6"),
        ("raise SystemExit('the context is lost')", "the context is lost"),
    ],
)
def test_a_check_that_crashes_is_wrong_and_the_others_run(
    main: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch, code: str, text: str
) -> None:
    replace_check(monkeypatch, "held stream", code)
    status, found = main("--only", "held stream", "--only", "memory")
    assert status == 1
    assert verdicts(found) == ["wrong", "right"]
    assert text in found["checks"][0]["text"]


HANGS = "import time; time.sleep(60)"
HANGS_AND_SAYS_WHERE = (
    f"import faulthandler; faulthandler.dump_traceback_later(0.5, exit=True); {HANGS}"
)


@pytest.mark.parametrize("code", [HANGS, HANGS_AND_SAYS_WHERE])
def test_a_check_that_hangs_is_not_run_and_the_others_are(
    main: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    replace_check(monkeypatch, "held stream", code)
    monkeypatch.setitem(gpu_check.LIMITS_S, "held stream", 3.5)
    status, found = main("--only", "held stream", "--only", "memory")
    assert status == 0
    assert verdicts(found) == ["not run", "right"]
    assert "did not get to its end in 4 s" in found["checks"][0]["text"]


def test_what_is_found_is_kept_after_each_check(
    main: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = []
    write = gpu_check._write

    def watched(path: Path, found: Any) -> None:
        write(path, found)
        kept.append([check["check"] for check in json.loads(path.read_text())["checks"]])

    monkeypatch.setattr(gpu_check, "_write", watched)
    main("--only", "held stream", "--only", "bandwidth")
    assert kept == [["held stream"], ["held stream", "bandwidth"]]


def test_a_rehearsal_runs_what_measures_and_tells_no_speed(
    main: Callable[..., tuple[int, Any]],
) -> None:
    names = ["bandwidth", "transform speed", "registered mapping"]
    status, found = main("--rehearse", *(word for name in names for word in ("--only", name)))
    assert status == 0
    assert verdicts(found) == ["rehearsed"] * 3
    assert [check["numbers"] for check in found["checks"]] == [{}] * 3


def test_what_there_is_no_time_for_is_not_run(main: Callable[..., tuple[int, Any]]) -> None:
    status, found = main("--budget-s", "2")
    assert status == 0
    assert set(verdicts(found)) == {"not run"}


def test_what_the_end_of_the_time_cuts_off_is_not_run(
    main: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    replace_check(monkeypatch, "memory", HANGS)
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
    monkeypatch.setattr("prefetch._ring.slot.Slot._last_uses", lambda *_: [])
    fake.configure(race=0, latency_us=3000)
    try:
        outcome = batch_bytes.check_torn(dataclasses.replace(bench, batches=100))
    finally:
        fake.configure(race=1, latency_us=0)
    assert outcome.verdict == "wrong"


def test_the_hunt_ends_when_its_time_is_up_and_says_so(bench: Bench) -> None:
    outcome = batch_bytes.check_torn(dataclasses.replace(bench, until=0.0))
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
    assert batch_bytes.check_memory(bench).verdict == "wrong"
    kept.clear()


def test_memory_that_somebody_else_takes_all_the_time_is_found(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    asked = batch_bytes._free_bytes

    def leaking(bench: Bench) -> int:
        kept.append(cupy.cuda.alloc(4 << 20))
        return asked(bench)

    monkeypatch.setattr(batch_bytes, "_free_bytes", leaking)
    outcome = batch_bytes.check_memory(dataclasses.replace(bench, epochs=6))
    kept.clear()
    cupy.get_default_memory_pool().free_all_blocks()
    assert outcome.verdict == "wrong"
    grown = outcome.numbers["driver_grown_bytes"]
    assert 3 * (4 << 20) <= grown < 4 * (4 << 20)  # and some, where a stream was made meanwhile
