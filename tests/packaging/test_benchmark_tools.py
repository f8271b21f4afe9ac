"""The tools' speeds beside bare loops, and how fast a survey answers: what the reports hold."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import benchmark_inspect
import benchmark_tools

if TYPE_CHECKING:
    from pathlib import Path

_SMALL = ["--images", "6", "--records", "6", "--rounds", "2"]


def test_the_report_has_the_documented_fields(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    status = benchmark_tools.main([*_SMALL, "--json", str(file)])
    report = json.loads(file.read_text())
    assert ["format", "machine", "cases"] == list(report)
    assert ["convert", "mean"] == [case["name"] for case in report["cases"]]
    assert [0.8, 0.5] == [case["limit"] for case in report["cases"]]
    assert [6, 6 * 3 * 256 * 256] == [case["work"] for case in report["cases"]]
    for case in report["cases"]:
        fields = "name work tool bare ratio cpu_ratio limit passed"
        assert fields.split() == list(case)
        assert [2, 2] == [len(case["tool"]), len(case["bare"])]
        fastest = {of: min(one["wall_s"] for one in case[of]) for of in ("tool", "bare")}
        assert case["ratio"] == pytest.approx(fastest["bare"] / fastest["tool"])
        assert case["passed"] == (case["ratio"] >= case["limit"])
    assert status == int(not all(case["passed"] for case in report["cases"]))


def test_without_a_file_there_is_a_line_a_tool(capsys: pytest.CaptureFixture[str]) -> None:
    benchmark_tools.main(_SMALL)
    lines = capsys.readouterr().out.splitlines()
    assert ["convert", "mean"] == [line.split()[0] for line in lines]
    assert ["expected at least 0.8", "expected at least 0.5"] == [
        line.rpartition(", ")[2] for line in lines
    ]


@pytest.mark.parametrize(("limit_s", "status"), [(1000.0, 0), (0.0, 1)])
def test_a_survey_that_takes_too_long_is_a_failure(
    limit_s: float,
    status: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert 2.0 == benchmark_inspect.LIMIT_S
    monkeypatch.setattr(benchmark_inspect, "LIMIT_S", limit_s)
    assert status == benchmark_inspect.main(["--records", "300", "--rounds", "1"])
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("300 records: ")
