"""How scripts/gpu_check.py comes to another machine, and what it makes of the output of tests."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import pack_gpu_check
import rehearse_gpu
from gpu_checks import own_tests, packed
from gpu_checks.bench import Bench

_NAME = "cp{}{}".format(*sys.version_info[:2])


def test_all_that_the_library_needs_is_packed_but_what_is_named() -> None:
    names = {pack_gpu_check.name_of(need) for need in pack_gpu_check.requirements()}
    assert {"lmdb", "protobuf", "pydantic", "ruamel.yaml", "simplejpeg"} <= names
    assert {
        "pytest",
        "pytest-asyncio",
        "pytest-timeout",
        "pytest-xdist",
        "hypothesis",
        "ml_dtypes",
    } <= names
    assert set() == names & pack_gpu_check.LEFT_BEHIND


@pytest.fixture
def bare(tmp_path: Path) -> Path:
    """A checkout on a machine with nothing but Python: of the library two names only."""
    for name in ("memory", "prefetch"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "prefetch" / "_kernels").mkdir()
    room = tmp_path / "scripts" / "gpu_checks"
    room.mkdir(parents=True)
    for name in ("__init__.py", "packed.py"):
        shutil.copy(Path(packed.__file__).with_name(name), room)
    return tmp_path


def use_packed(bare: Path) -> subprocess.CompletedProcess[str]:
    code = (
        "import os, sys; from gpu_checks.packed import use_packed; use_packed(); "
        "import lmdb, prefetch; "
        "print(lmdb.__file__, prefetch.__file__, os.environ['PYTHONPATH'], sep='\\n')"
    )
    # Without site-packages, as if nothing were installed.
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, 'scripts'); {code}"],
        cwd=bare,
        env={key: value for key, value in os.environ.items() if key != "PYTHONPATH"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_what_is_packed_is_found_there_by_children_too(bare: Path) -> None:
    site = bare / "build" / "gpu-check" / _NAME
    site.mkdir(parents=True)
    (site / "lmdb.py").touch()
    (site / "_c.abi3.so").write_text("of these sources")
    (bare / "prefetch" / "_kernels" / "_c.abi3.so").write_text("of other sources")
    done = use_packed(bare)
    assert done.stderr == ""
    lmdb, prefetch, path = done.stdout.splitlines()
    assert (lmdb, prefetch) == (str(site / "lmdb.py"), str(bare / "prefetch" / "__init__.py"))
    assert path == f"{site}{os.pathsep}{bare}"
    assert (bare / "prefetch" / "_kernels" / "_c.abi3.so").read_text() == "of these sources"


def test_what_is_not_packed_for_this_python_is_said(bare: Path) -> None:
    (bare / "build" / "gpu-check" / "cp39").mkdir(parents=True)
    done = use_packed(bare)
    assert "NotPackedError: lmdb and other needs of the library are not installed" in done.stderr
    assert f"--python {sys.version_info[0]}.{sys.version_info[1]}" in done.stderr


def test_where_all_is_installed_nothing_packed_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_is_installed", lambda _: True)
    path, environment = list(sys.path), dict(os.environ)
    packed.use_packed()
    assert (path, environment) == (sys.path, dict(os.environ))


class TestTheTestsOutput:
    FAILED = "FAILED tests/gpu/test_feed.py::test_x - assert 1 == 2"
    TIMED_OUT = (
        "FAILED tests/gpu/test_feed.py::test_y - Failed: Timeout (>60.0s) from pytest-timeout."
    )

    @pytest.mark.parametrize(
        ("status", "lines", "expected"),
        [
            (0, ["== 7 passed in 1.00s =="], "right"),
            (1, [FAILED, "== 1 failed =="], "wrong"),
            (1, [TIMED_OUT, "== 1 failed =="], "not run"),
            (1, [FAILED, TIMED_OUT, "== 2 failed =="], "wrong"),
            (None, ["[gw0] [ 5%] PASSED tests/gpu/test_feed.py::test_x"], "not run"),
            (None, [TIMED_OUT, "!!! KeyboardInterrupt !!!"], "not run"),
            (None, [FAILED, "!!! KeyboardInterrupt !!!"], "wrong"),
            (4, ["ERROR: usage: pytest [options]"], "wrong"),
        ],
    )
    def test_what_did_not_come_to_its_end_is_not_wrong(
        self, status: int | None, lines: list[str], expected: str
    ) -> None:
        outcome = own_tests.verdict(status, lines)
        assert outcome.verdict == expected
        assert lines[-1] in outcome.text


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import time; time.sleep(60)", "not run"),
        ("print('== 7 passed in 1.00s ==')", "right"),
        (
            (
                "import time\ntry: time.sleep(60)\n"
                "except KeyboardInterrupt: print('FAILED a::b - 1 == 2')"
            ),
            "wrong",
        ),
    ],
)
def test_the_tests_get_their_time_and_no_more(
    monkeypatch: pytest.MonkeyPatch, code: str, expected: str
) -> None:
    monkeypatch.setattr(own_tests, "_SUMMARY_S", 5)
    monkeypatch.setattr(own_tests, "_command", lambda _: [sys.executable, "-c", code])
    bench = Bench(
        device=SimpleNamespace(name="cuda:0"),
        source=Path(),
        side=8,
        on_fake=False,
        batches=1,
        epochs=1,
        quick=True,
        until=time.monotonic() + 7,
    )
    assert own_tests.check_tests(bench).verdict == expected


class TestTheRehearsal:
    @pytest.fixture
    def found(self) -> dict[str, Any]:
        checks = []
        for name, expected in rehearse_gpu.EXPECTED.items():
            outcome, _, text = expected.partition(": ")
            checks.append({"check": name, "verdict": outcome, "text": text, "numbers": {}})
        return {"device": "fake device", "checks": checks}

    def test_what_must_come_out_is_accepted(self, found: dict[str, Any]) -> None:
        assert rehearse_gpu.unexpected(found) == []

    @pytest.mark.parametrize(
        ("number", "change", "fault"),
        [
            (0, {"verdict": "not run", "text": "no time"}, "bandwidth should be rehearsed, and is"),
            (1, {"text": "no idea"}, "step time should be not run: PyTorch is not installed"),
            (0, {"text": "12.30 GB/s"}, "bandwidth tells a speed of a fake device"),
            (0, {"numbers": {"feed_s": 0.1}}, "bandwidth tells a speed of a fake device"),
            (14, {"verdict": "wrong", "text": "1 failed"}, "tests should be right, and is wrong"),
        ],
    )
    def test_anything_else_is_a_fault(
        self, found: dict[str, Any], number: int, change: dict[str, Any], fault: str
    ) -> None:
        found["checks"][number] |= change
        (told,) = rehearse_gpu.unexpected(json.loads(json.dumps(found)))
        assert told.startswith(fault)

    def test_where_nothing_was_written_all_is_missing(self) -> None:
        assert len(rehearse_gpu.unexpected({})) == len(rehearse_gpu.EXPECTED) + 2
