"""When a batch is planned: before the one in front of it is handed over, where that is cheap."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from databases import images_fixture

import prefetch
from prefetch._pipeline import light_batches
from prefetch._pipeline.coordinator import Coordinator
from prefetch.testing import write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from prefetch._pipeline.reader_jobs import Part
    from prefetch._ring.filling import Filling

    Until = Callable[[Callable[[], bool]], None]


source = images_fixture(64)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What readers did, in order."""
    events: list[str] = []
    plan_one, parts_done = Coordinator.plan, Coordinator.parts_done

    def plan(self: Coordinator, filling: Filling) -> None:
        events.append(f"plan {filling.sequence}")
        plan_one(self, filling)

    def done(self: Coordinator, parts: Sequence[Part]) -> list[Filling]:
        events.extend(f"hand over {part.filling.sequence}" for part in parts)
        return parts_done(self, parts)

    monkeypatch.setattr(light_batches, "_MIN_RAW_BYTES_TO_SPLIT", 0)  # so no batch is light
    for module in ("_source.source", "_pipeline.reader"):  # nor anything read from the disk
        monkeypatch.setattr(f"prefetch.{module}.num_disk_waits", lambda: 0)
    monkeypatch.setattr(Coordinator, "plan", plan)
    monkeypatch.setattr(Coordinator, "parts_done", done)
    return events


def _ready(source: Path, until: Until, **options: Any) -> None:
    config = {"source": source, "batch_size": 4, "threads": 1, "epochs": None}
    with prefetch.open(config | options) as feed:
        next(iter(feed))
        until(lambda: feed.stats().slots_ready == feed.stats().prefetch)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("device", ["cpu", "simulated"])
def test_the_next_batch_is_planned_before_one_is_handed_over(
    source: Path, seen: list[str], until: Until, device: str, *, shuffle: bool
) -> None:
    _ready(source, until, prefetch=3, shuffle=shuffle, device=device)
    # The others come when the consumer has taken one.
    assert seen[:5] == ["plan 0", "plan 1", "hand over 0", "plan 2", "hand over 1"]


def test_a_batch_is_not_held_back_for_a_plan_that_reads(
    source: Path, seen: list[str], until: Until, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that the first epoch is walked.
    monkeypatch.setattr("prefetch._source.source._MOST_INDEXING_S", 0)
    _ready(source, until, prefetch=2)
    assert seen == ["plan 0", "hand over 0", "plan 1", "hand over 1", "plan 2", "hand over 2"]


def test_nothing_is_planned_behind_a_batch_that_failed(
    tmp_path: Path, seen: list[str], until: Until
) -> None:
    records = [(b"%08d" % index, b"\xff") for index in range(16)]
    source = write_database(tmp_path / "bad", records)
    with prefetch.open(
        {"source": source, "batch_size": 4, "threads": 1, "shuffle": True, "prefetch": 3}
    ) as feed:
        with pytest.raises(prefetch.RecordError, match="batch 0"):
            next(iter(feed))
        until(lambda: feed.stats().slots_filling == 0)
    assert seen == ["plan 0"]
