"""The comparison of two revisions: not how fast they are, but what is reported."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING

import pytest

import benchmark_revisions

if TYPE_CHECKING:
    from pathlib import Path


def test_two_checkouts_take_turns_and_each_pair_gives_a_ratio(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("old", "new"):
        (tmp_path / name / ".venv/bin").mkdir(parents=True)
        (tmp_path / name / ".venv/bin/python").touch()
    seen = []

    def measure(checkout: Path, options: dict[str, object], seconds: float) -> dict[str, float]:
        seen.append(checkout.name)
        return {"cpu_s": 3.0 if checkout.name == "new" else 2.0, "wall_s": 1.0}

    monkeypatch.setattr(benchmark_revisions, "measure", measure)
    file = tmp_path / "report.json"
    arguments = [str(tmp_path / "old"), str(tmp_path / "new"), "--work", "float", "--pairs", "3"]
    assert 0 == benchmark_revisions.main([*arguments, "--json", str(file)])
    assert ["old", "new", "new", "old", "old", "new"] == seen
    report = json.loads(file.read_text())
    assert ["format", "machine", "works"] == sorted(report)
    found = report["works"]["float"]
    assert 3 == len(found["pairs"])
    assert pytest.approx([1.5, 1.5, 1.5]) == list(found["cpu"].values())
    assert capsys.readouterr().out.startswith("float      cpu 1.500 (1.500 to 1.500)")


@pytest.mark.parametrize("name", sorted(benchmark_revisions.WORKS))
def test_what_is_measured_can_be_served(name: str, tmp_path: Path) -> None:
    work = benchmark_revisions.WORKS[name]._replace(num_records=300)
    benchmark_revisions.write(tmp_path, work)
    taken = benchmark_revisions.serve({"source": str(tmp_path), **work.options}, 0.01)
    assert ["cpu_s", "wall_s"] == sorted(taken)
    assert min(taken.values()) > 0


def test_the_interval_is_students_of_the_logarithms() -> None:
    found = benchmark_revisions.interval([1.0, 2.0, 4.0])
    half = 4.30 * math.log(2) / math.sqrt(3)
    assert pytest.approx(2.0) == found["ratio"]
    assert pytest.approx([2 * math.exp(-half), 2 * math.exp(half)]) == [
        found["least"],
        found["most"],
    ]


def test_a_checkout_without_an_environment_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == benchmark_revisions.main([str(tmp_path), str(tmp_path)])
    assert "run make venv there" in capsys.readouterr().err
