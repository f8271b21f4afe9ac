"""The report on reads from the disk, and what it says of the page cache."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import benchmark_cold
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path

RATES = {"warm", "plain", "advised"}


@pytest.mark.parametrize("own_database", [False, True])
def test_the_report_has_the_documented_fields(tmp_path: Path, *, own_database: bool) -> None:
    file = tmp_path / "report.json"
    arguments = ["--rounds", "2", "--batch-size", "8", "--share", "0.5", "--json", str(file)]
    if own_database:
        arguments.append(str(write_database(tmp_path / "db", fingerprinted_images(40))))
    else:
        arguments += ["--records", "40", "--shape", "1x8x8", "--folder", str(tmp_path)]
    status = benchmark_cold.main(arguments)
    report = json.loads(file.read_text())
    fields = {"format", "batch_size", "threads", "share", "records", "file_bytes"}
    assert {*fields, "in_order", "shuffled"} == set(report)
    assert (report["format"], report["records"], report["share"]) == (1, 40, 0.5)
    orders = report["in_order"], report["shuffled"]
    for found in orders:
        assert {*RATES, "resident_before", "slowdown", "gain"} == set(found)
        assert all(len(found[way]) == 2 and min(found[way]) > 0 for way in RATES)
    is_evicted = max(found["resident_before"] for found in orders) <= 0.02
    assert status == int(not is_evicted)


def test_a_file_that_was_read_is_resident_and_one_that_is_evicted_is_not_but_on_a_tmpfs(
    tmp_path: Path,
) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(1 << 20))
    benchmark_cold.read_whole(file)
    assert benchmark_cold.resident(file) == 1
    benchmark_cold.evict(file)
    assert benchmark_cold.resident(file) in (0, 1)


def test_a_database_that_cannot_be_evicted_is_a_failure(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(benchmark_cold, "resident", lambda _: 1.0)
    arguments = ["--records", "20", "--shape", "1x8x8", "--rounds", "1", "--batch-size", "4"]
    assert benchmark_cold.main(arguments) == 1
    assert "100.0% resident" in capsys.readouterr().out
