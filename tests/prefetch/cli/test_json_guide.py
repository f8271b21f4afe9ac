"""The guide's page on reports for programs names every field that the commands print."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from prefetch.cli import main

_GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "json.md"
_COMMANDS = {
    "convert": ["x.npy", "out"],
    "merge": ["data/lmdb", "data/lmdb", "out", "--renumber"],
    "reencode": ["data/lmdb", "out", "--to", "png"],
    "split": ["data/lmdb", "out", "rest", "--at", "3"],
    "labels": ["data/lmdb"],
    "get": ["data/lmdb", "3"],
    "export": ["data/lmdb", "out"],
    "mean": ["data/lmdb"],
    "inspect": ["data/lmdb"],
    "check": ["feed.yaml"],
    "show": ["feed.yaml", "out.png"],
    "bench": ["feed.yaml", "--seconds", "0.01", "--rounds", "1"],
}


def documented() -> dict[str, set[str]]:
    """Return the fields of each command's report, by the guide."""
    found = {}
    for section in _GUIDE.read_text(encoding="utf-8").split("\n## ")[1:]:
        command, _, text = section.partition("\n")
        rows = re.findall(r"^\| (`[^|]*) \|", text, re.MULTILINE)
        found[command] = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    return found


@pytest.mark.parametrize("command", _COMMANDS)
@pytest.mark.usefixtures("workplace")
def test_the_guide_has_every_field_of_a_report(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main([command, *_COMMANDS[command], "--json"])
    report = json.loads(capsys.readouterr().out)
    assert documented()[command] == set(report)


def test_the_guide_has_no_other_report() -> None:
    assert set(_COMMANDS) == set(documented())


@pytest.mark.usefixtures("workplace")
def test_new_labels_are_reported_as_the_guide_says(capsys: pytest.CaptureFixture[str]) -> None:
    Path("new.txt").write_text("00000000 1\n", encoding="utf-8")
    assert 0 == main(["labels", "data/lmdb", "out", "--set", "new.txt", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert documented()["reencode"] - {"reencoded"} | {"relabelled"} == set(report)


@pytest.mark.usefixtures("workplace")
def test_a_part_has_the_fields_of_a_merged_database(capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["split", "data/lmdb", "out", "rest", "--at", "3", "--json"])
    part = json.loads(capsys.readouterr().out)["databases"][0]
    assert documented()["merge"] - {"merged", "elapsed_s"} == set(part)
