"""What an earlier version stored is taken up: saved states, and a quarantine."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from databases import records_of
from stored_states import (
    CASES,
    NUM_BAD,
    all_batches,
    digest,
    open_case,
    write_bad_source,
    write_source,
)

import prefetch

_STORED = Path(__file__).resolve().parents[2] / "stored"


def test_each_stored_state_has_its_case() -> None:
    assert sorted(CASES) == sorted(path.stem for path in _STORED.glob("*.json"))


@pytest.mark.parametrize("case", CASES)
def test_a_stored_state_goes_on_with_exactly_the_remaining_batches(
    case: str, tmp_path: Path
) -> None:
    stored = json.loads((_STORED / f"{case}.json").read_text(encoding="utf-8"))
    with open_case(case, write_source(tmp_path / "db"), threads=3, prefetch=2) as feed:
        feed.load_state_dict(stored["state"])
        assert stored["remaining"] == digest(all_batches(feed))


@pytest.mark.parametrize("case", CASES)
def test_a_stored_state_is_what_is_saved_there_but_for_later_options(
    case: str, tmp_path: Path
) -> None:
    stored = json.loads((_STORED / f"{case}.json").read_text(encoding="utf-8"))["state"]
    with open_case(case, write_source(tmp_path / "db")) as feed:
        feed.load_state_dict(stored)
        saved = json.loads(json.dumps(feed.state_dict()))
    assert stored["config"].items() <= saved.pop("config").items()
    assert {name: entry for name, entry in stored.items() if name != "config"} == saved


def test_a_stored_quarantine_keeps_what_it_has_and_takes_what_is_new(tmp_path: Path) -> None:
    folder = tmp_path / "quarantine"
    shutil.copytree(_STORED / "quarantine", folder)
    earlier = records_of(folder)
    source = write_bad_source(tmp_path / "db", num_bad=NUM_BAD + 1)
    options = {"source": source, "on_bad_record": "quarantine", "quarantine": folder}
    with prefetch.open(options) as feed:
        assert [NUM_BAD + 1] == [batch.indices.tolist()[0] for batch in feed][:1]
    bad = [(b"%08d" % i, b"\xff no Datum %d" % i) for i in range(NUM_BAD + 1)]
    assert dict(bad[:NUM_BAD]) == earlier
    assert dict(bad) == records_of(folder)
