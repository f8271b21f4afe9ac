"""scripts/gpu_check.py, as far as it goes on the fake device: its verdicts and its exit status."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

import gpu_check
from prefetch.testing import fingerprinted_images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.fake_only

BYTES = ("torn batches", "held stream", "memory", "device transform")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, Any]]:
    """Run checks with small images; return the exit status and what they wrote as JSON."""
    monkeypatch.setattr(gpu_check, "SHAPE", (3, 16, 16))
    monkeypatch.setattr(gpu_check, "IMAGE_BYTES", 3 * 16 * 16)

    def run(*checks: str) -> tuple[int, Any]:
        found = tmp_path / "found.json"
        chosen = [word for check in checks for word in ("--only", check)]
        arguments = ["gpu_check.py", "--json", str(found), "--batches", "20", *chosen]
        monkeypatch.setattr(sys, "argv", arguments)
        status = gpu_check.main()
        return status, json.loads(found.read_text())

    return run


def test_right_bytes_are_said_to_be_right_and_no_speed_is_told(
    run: Callable[..., tuple[int, Any]],
) -> None:
    status, found = run()
    verdicts = {check["check"]: check["verdict"] for check in found["checks"]}
    assert set(verdicts) == set(gpu_check.CHECKS)
    assert status == 0
    assert found["device"] == "fake device"
    assert {name: verdicts[name] for name in BYTES} == dict.fromkeys(BYTES, "right")
    assert {verdicts[name] for name in verdicts.keys() - set(BYTES)} == {"not run"}


@pytest.mark.parametrize("check", ["torn batches", "held stream"])
def test_one_wrong_byte_makes_the_exit_status_1(
    run: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    written = fingerprinted_images

    def one_byte_off(*arguments: Any) -> Iterator[tuple[bytes, bytes]]:
        for number, (key, value) in enumerate(written(*arguments)):
            yield key, value[:-9] + b"\xfe" + value[-8:] if number == 70 else value

    monkeypatch.setattr(gpu_check, "fingerprinted_images", one_byte_off)
    status, found = run(check)
    assert status == 1
    assert [check["verdict"] for check in found["checks"]] == ["wrong"]


def test_memory_that_outgrows_the_ring_makes_the_exit_status_1(
    run: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept: list[Any] = []
    opened = gpu_check.Bench.open

    def leaking(bench: Any, **options: Any) -> Any:
        kept.append(bench.device.alloc_device(1 << 20))
        feed = opened(bench, **options)
        kept.extend(bench.device.alloc_device(1 << 20) for _ in range(2))
        return feed

    monkeypatch.setattr(gpu_check.Bench, "open", leaking)
    status, found = run("memory")
    kept.clear()
    assert status == 1
    assert [check["verdict"] for check in found["checks"]] == ["wrong"]


def test_a_check_that_breaks_is_wrong_and_the_others_run(
    run: Callable[..., tuple[int, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(gpu_check.CHECKS, "held stream", lambda _: 1 / 0)
    status, found = run("held stream", "memory")
    assert status == 1
    assert [check["verdict"] for check in found["checks"]] == ["wrong", "right"]
    assert "ZeroDivisionError" in found["checks"][0]["text"]
