"""The benchmark's report."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import benchmark

if TYPE_CHECKING:
    from pathlib import Path

_SMALL = ["--rounds", "2", "--batches", "4", "--consumer-ms", "1", "--records", "200"]


def test_the_throughput_report_has_the_documented_fields(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert 0 == benchmark.main([*_SMALL, "--shape", "3x8x8", "--json", str(file)])
    report = json.loads(file.read_text())
    assert ["format", "machine", "feed", "cases", "overlap"] == list(report)
    assert ["drain", "read", "wait", "python"] == [case["consumer"] for case in report["cases"]]
    assert [2, 2, 2, 2] == [len(case["rounds"]) for case in report["cases"]]
    assert [3, 7, 7] == report["feed"]["sample_shape"]
    one = report["cases"][0]["rounds"][0]
    fields = "batches images bytes elapsed_s cpu_s waited_s waits mean_ready"
    assert fields.split() == list(one)
    assert one["bytes"] == one["images"] * 3 * 7 * 7 * 4


@pytest.mark.parametrize("name", ["nowhere/report.json", "feed.yaml"])
def test_a_report_goes_to_a_folder_that_is_there_and_not_over_the_configuration(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "feed.yaml"
    config.write_text("source: nowhere\n")
    with pytest.raises(SystemExit, match="2"):
        benchmark.main([*_SMALL, str(config), "--json", str(tmp_path / name)])
    assert "--json: " in capsys.readouterr().err
    assert "source: nowhere\n" == config.read_text()


def test_the_overlap_report_compares_with_the_longer_cost(
    capsys: pytest.CaptureFixture[str],
) -> None:
    status = benchmark.main(["--overlap", *_SMALL, "--reader-ms", "1", "--json", "-"])
    rows = json.loads(capsys.readouterr().out)["overlap"]
    kinds = [(kind, depth) for kind in ("wait", "compute", "python") for depth in (1, 2, 4)]
    assert kinds == [(row["consumer"], row["prefetch"]) for row in rows]
    for row in rows:
        longer_s = max(row["reader_s"], row["consumer_s"])
        assert row["ratio"] == pytest.approx(row["batch_s"] / longer_s)
        limited = row["consumer"] != "python" and row["prefetch"] > 1
        assert (1.15 if limited else None) == row["limit"]
    assert status == int(any(row["passed"] is False for row in rows))


def test_a_missing_configuration_is_told_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = benchmark.main([str(tmp_path / "none.yaml")])
    told = capsys.readouterr().err
    assert status == 2
    assert "none.yaml" in told
    assert "there is no such file" in told
    assert "Traceback" not in told
