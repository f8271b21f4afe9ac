"""Records are asked for ahead while readers wait for the disk, and not where all is in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest
from databases import images_fixture

import prefetch
from prefetch._pipeline.cold_reads import ColdReads
from prefetch._plan.order import Order
from prefetch._source.lmdb.mapped import MappedPages
from prefetch._source.records import RecordReader

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

source = images_fixture(64)

BATCH_SIZE = 4
AHEAD = 256 // BATCH_SIZE


class NotedReader:
    """Notes what it is advised of.

    Attributes:
        records: All of them, in turn.
    """

    def __init__(self) -> None:
        self.records: list[int] = []

    def advise(self, records: npt.NDArray[np.int64]) -> None:
        self.records.extend(records.tolist())


def cold_reads(noted: NotedReader, **options: Any) -> ColdReads:
    options = {"num_records": 100_000, "batch_size": BATCH_SIZE, "shuffle": True, **options}
    return ColdReads(cast("RecordReader", noted), order_of(options))


def order_of(options: dict[str, Any]) -> Order:
    return Order(**options)


def records_of(first: int, stop: int, **options: Any) -> list[int]:
    """Return the records of some batches."""
    options = {"num_records": 100_000, "batch_size": BATCH_SIZE, "shuffle": True, **options}
    planned = [order_of(options).plan(number) for number in range(first, stop)]
    return [record for batch in planned if batch for record in batch.records.tolist()]


def run(cold: ColdReads, sequences: range) -> list[int]:
    """Plan batches; return those with which records were asked for."""
    asked = []
    for sequence in sequences:
        if cold.is_on:
            asked.append(sequence)
            cold.read_ahead(sequence)
    return asked


def test_nothing_is_asked_for_until_a_reader_has_waited() -> None:
    noted = NotedReader()
    cold = cold_reads(noted)
    assert run(cold, range(100)) == []
    cold.note_wait()
    assert run(cold, range(100, 101)) == [100]


def test_a_source_that_was_waited_for_at_its_opening_is_asked_from_the_first_batch_on() -> None:
    order = Order(10, batch_size=BATCH_SIZE, shuffle=True)
    assert run(ColdReads(cast("RecordReader", NotedReader()), order, is_on=True), range(1)) == [0]


def test_in_key_order_nothing_is_asked_for() -> None:
    order = Order(10, batch_size=BATCH_SIZE)
    cold = ColdReads(cast("RecordReader", NotedReader()), order, is_on=True)
    assert run(cold, range(1)) == []
    cold.note_wait()
    assert run(cold, range(1, 2)) == []


def test_the_batch_itself_and_those_behind_it_are_asked_for_once_each() -> None:
    noted = NotedReader()
    cold = cold_reads(noted)
    cold.note_wait()
    cold.read_ahead(10)
    assert noted.records == records_of(10, 11 + AHEAD)
    cold.read_ahead(11)
    cold.read_ahead(12)
    assert noted.records == records_of(10, 13 + AHEAD)


def test_large_batches_are_asked_for_one_ahead() -> None:
    noted = NotedReader()
    cold = cold_reads(noted, batch_size=1000)
    cold.note_wait()
    cold.read_ahead(0)
    assert noted.records == records_of(0, 2, batch_size=1000)


def test_what_is_skipped_by_the_loop_is_not_asked_for() -> None:
    noted = NotedReader()
    cold = cold_reads(noted)
    cold.note_wait()
    cold.read_ahead(0)
    noted.records.clear()
    cold.read_ahead(1000)
    assert noted.records == records_of(1000, 1001 + AHEAD)


def test_nothing_is_asked_for_behind_the_last_batch() -> None:
    noted = NotedReader()
    cold = cold_reads(noted, num_records=10, epochs=1)
    cold.note_wait()
    cold.read_ahead(1)
    assert noted.records == records_of(1, 3, num_records=10)


def test_it_ends_after_a_time_and_where_readers_wait_again_at_once_the_next_is_twice_as_long() -> (
    None
):
    cold = cold_reads(NotedReader())
    cold.note_wait()
    begin = 5
    lengths = []
    for _ in range(8):
        asked = run(cold, range(begin, begin + 5000))
        assert asked == list(range(begin, begin + len(asked)))
        lengths.append(len(asked))
        assert not cold.is_on
        begin += len(asked) + 6  # that many batches were planned before the wait showed
        cold.note_wait()
    assert lengths == [32, 64, 128, 256, 512, 1024, 1024, 1024]


def test_where_readers_wait_again_much_later_the_time_is_short_again() -> None:
    cold = cold_reads(NotedReader())
    for begin in (0, 1000, 2000):
        cold.note_wait()
        assert len(run(cold, range(begin, begin + 1000))) == 32


def _served(source: Path, **options: Any) -> list[tuple[bytes, list[bytes]]]:
    config = {"source": source, "batch_size": BATCH_SIZE, "shuffle": True, "seed": 1, "epochs": 2}
    with prefetch.open(config | options) as feed:
        return [(batch.data.numpy().tobytes(), batch.keys) for _ in range(2) for batch in feed]


@pytest.mark.parametrize("threads", [1, 3])
def test_a_feed_that_waits_for_the_disk_asks_for_what_it_serves_and_serves_the_same(
    source: Path, monkeypatch: pytest.MonkeyPatch, threads: int
) -> None:
    expected = _served(source)
    asked: set[int] = set()
    advise = MappedPages.advise

    def noted(self: MappedPages, places: npt.NDArray[np.int64]) -> None:
        asked.update(places.tolist())
        advise(self, places)

    waits = iter(range(10**9))
    monkeypatch.setattr(MappedPages, "advise", noted)
    monkeypatch.setattr("prefetch._source.source.num_disk_waits", lambda: next(waits))
    assert _served(source, threads=threads) == expected
    assert asked == set(range(64))


def test_a_reader_that_waits_for_the_disk_has_the_next_batches_read_ahead(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    waits = iter(range(10**9))
    monkeypatch.setattr(RecordReader, "advise", lambda _, records: asked.extend(records.tolist()))
    monkeypatch.setattr("prefetch._pipeline.reader._SHORT_S", -1.0)
    monkeypatch.setattr("prefetch._source.source.num_disk_waits", lambda: 0)
    monkeypatch.setattr("prefetch._pipeline.reader.num_disk_waits", lambda: next(waits))
    assert len(_served(source)) == 32
    assert asked
    assert set(asked) <= set(range(64))


def test_a_feed_that_never_waits_asks_for_nothing(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(RecordReader, "advise", lambda _, records: asked.extend(records.tolist()))
    for module in ("_source.source", "_pipeline.reader"):
        monkeypatch.setattr(f"prefetch.{module}.num_disk_waits", lambda: 7)
    assert len(_served(source)) == 32
    assert asked == []


def test_it_shows_how_long_it_goes_on() -> None:
    cold = cold_reads(NotedReader())
    assert repr(cold) == "<ColdReads, off>"
    cold.note_wait()
    cold.read_ahead(3)
    assert repr(cold) == "<ColdReads, on up to batch 34>"
