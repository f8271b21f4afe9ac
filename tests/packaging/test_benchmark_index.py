"""The report on the packed index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import benchmark_index

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_report_has_the_documented_fields(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    arguments = ["--records", "3000", "--folder", str(tmp_path), "--json", str(file)]
    assert benchmark_index.main(arguments) == 0
    report = json.loads(file.read_text())
    fields = "format records file_bytes cold_s warm_s index_s index_bytes reports rss_bytes"
    assert sorted([*fields.split(), "heap_bytes"]) == sorted(report)
    assert (report["format"], report["records"]) == (1, 3000)
    assert 0 < report["index_bytes"] <= 8 * 3000
    assert 0 <= report["index_s"] <= report["warm_s"]
    assert [file] == list(tmp_path.iterdir())


def test_without_a_file_the_report_is_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark_index.main(["--records", "100"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert "records      100" in printed
    assert any(line.startswith("index_bytes") for line in printed)


def test_an_index_that_takes_too_much_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmark_index._MOST_BYTES_A_RECORD", 0)
    assert benchmark_index.main(["--records", "100", "--json", "-"]) == 1
    assert json.loads(capsys.readouterr().out)["records"] == 100
