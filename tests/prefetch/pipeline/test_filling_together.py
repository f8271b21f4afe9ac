"""Small batches are filled several in one go, and each is as if it had been filled by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from databases import images_fixture

import prefetch
from prefetch._kernels import selection
from prefetch._pipeline import light_batches, reader_jobs
from prefetch._source import mapped_records
from prefetch._source.source import RecordSource
from prefetch._transform import host
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

pytestmark = pytest.mark.skipif(
    not selection.kernels_available, reason="only the C kernel fills several batches in a call"
)


source = images_fixture(64)


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many batches each call for several has filled."""
    calls: list[int] = []

    def counted(requests: Sequence[Any], recipe: Any) -> Any:
        calls.append(len(requests))
        return mapped_records.fill_together(requests, recipe)

    monkeypatch.setattr(host, "fill_together", counted)
    return calls


def _open(source: Path, **options: Any) -> prefetch.Feed:
    config = {"source": source, "batch_size": 4, "shuffle": True, "seed": 3}
    return prefetch.open(config | options)


@pytest.mark.parametrize(
    ("depth", "most"), [(1, 0), (2, 0), (3, 0), (4, 2), (6, 3), (8, 4), (20, 4)]
)
def test_half_of_the_depth_is_filled_in_a_call_but_four_batches_at_most(
    source: Path,
    together: list[int],
    until: Callable[[Callable[[], bool]], None],
    depth: int,
    most: int,
) -> None:
    with _open(source, prefetch=depth, epochs=None, threads=1) as feed:
        iterator = iter(feed)
        next(iterator)
        until(lambda: feed.stats().slots_ready == depth)
        assert max(together, default=0) == most


@pytest.mark.parametrize("threads", [1, 2, 8])
def test_every_batch_is_that_of_its_number(source: Path, together: list[int], threads: int) -> None:
    with _open(source, prefetch=1, threads=1) as feed:
        alone = [(batch.indices.tolist(), batch.keys) for batch in feed]
    assert not together
    with _open(source, prefetch=8, threads=threads) as feed:
        for batch, (indices, keys) in zip(feed, alone, strict=True):
            assert (batch.indices.tolist(), batch.keys) == (indices, keys)
            assert (batch.data.numpy().T == batch.indices % 251).all()
            assert batch.label.numpy().tolist() == indices
    assert together


def test_the_source_is_checked_behind_each_call_whose_batches_have_no_fault(
    tmp_path: Path, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    records = list(fingerprinted_images(32))
    records[30] = (records[30][0], b"\xff")
    path = write_database(tmp_path / "db", records)
    checked: list[int] = []  # calls for several before each
    check = RecordSource.check

    def noted(source: RecordSource) -> None:
        checked.append(len(together))
        check(source)

    monkeypatch.setattr(RecordSource, "check", noted)
    options = {"on_bad_record": "skip", "max_bad_records": 1, "shuffle": False, "epochs": 1}
    with _open(path, prefetch=4, threads=1, **options) as feed:
        assert [batch.number for batch in feed] == list(range(8))
    # Opened by the first alone, then in twos; the last batch is checked once more for its fault,
    # and for the record that replaces the bad one.
    for call in range(1, len(together) + 1):
        assert call in checked
    assert len(checked) < 8 + 3
    assert checked.count(len(together)) >= 3


def test_a_change_of_the_database_seen_behind_a_call_is_each_batchs_own_error(
    source: Path, together: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_source: RecordSource) -> None:
        if together:
            raise prefetch.DatabaseChangedError(str(source), snapshot_txn=1, last_txn=3)

    monkeypatch.setattr(RecordSource, "check", fail)
    with (
        _open(source, prefetch=8, threads=1) as feed,
        pytest.raises(prefetch.DatabaseChangedError, match="the newest is 3"),
    ):
        next(iter(feed))
    assert together == [4]


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("batch_size", [1, 2, 3, 10])
def test_shuffled_batches_over_several_databases_hold_the_records_that_they_name(
    tmp_path: Path, batch_size: int, threads: int
) -> None:
    """Some are of one database from the first record to the last, and not in between."""
    records = list(fingerprinted_images(100))
    sources = [
        write_database(tmp_path / f"{start}", records[start:stop])
        for start, stop in ((0, 40), (40, 45), (45, 100))
    ]
    options = {"source": sources, "seed": 3, "shuffle": True, "prefetch": 8}
    with prefetch.open(options, batch_size=batch_size, threads=threads) as feed:
        for _ in range(3):
            served = []
            for batch in feed:
                indices = batch.indices.tolist()
                assert batch.label.numpy().tolist() == indices
                assert batch.keys == [b"%08d" % index for index in indices]
                assert (batch.data.numpy().T == batch.indices).all()
                served += indices
            assert sorted(served) == list(range(100))


@pytest.mark.parametrize("policy", ["raise", "skip"])
@pytest.mark.parametrize("value", [b"\xff", encode_image(np.zeros((1, 8, 8), np.uint8), label=9)])
def test_what_is_wrong_with_one_batch_is_wrong_with_that_one_alone(
    tmp_path: Path, together: list[int], policy: str, value: bytes
) -> None:
    records = list(fingerprinted_images(32))
    records[6] = (records[6][0], value)
    source = write_database(tmp_path / "db", records)
    options: dict[str, Any] = {"prefetch": 8, "threads": 1, "shuffle": False, "epochs": 3}
    if policy == "skip":
        options |= {"on_bad_record": "skip", "max_bad_records": 1}
    with _open(source, **options) as feed:
        for epoch in range(2 if policy == "skip" else 1):
            iterator = iter(feed)
            assert next(iterator).indices.tolist() == [0, 1, 2, 3]
            if policy == "raise":
                with pytest.raises(prefetch.RecordError, match="00000006") as caught:
                    next(iterator)
                assert (caught.value.batch, caught.value.record) == (1, 6)
                break
            batch = next(iterator)
            assert batch.indices.tolist() == [4, 5, 7, 7]
            assert (batch.data.numpy().T == batch.indices).all()
            assert [later.number for later in iterator] == [2, 3, 4, 5, 6, 7]
            assert feed.stats().bad_records == 1, epoch
    assert policy == "raise" or together


def test_where_several_cannot_be_filled_in_a_call_each_is_filled_by_itself(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []

    def refuse(requests: Sequence[Any], _recipe: Any) -> None:
        refused.append(len(requests))
        raise MemoryError

    monkeypatch.setattr(host, "fill_together", refuse)
    with _open(source, prefetch=8, threads=1) as feed:
        for batch in feed:
            assert (batch.data.numpy().T == batch.indices % 251).all()
    assert refused


def test_batches_that_take_long_are_not_held_back_for_others(
    tmp_path: Path, together: list[int]
) -> None:
    """Those of 4 MiB and more, which one reader hands out one by one and several share."""
    source = write_database(tmp_path / "db", fingerprinted_images(24, (3, 320, 320)))
    with _open(source, prefetch=8, threads=1) as feed:
        assert len(list(feed)) == 6
    assert not together


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize("threads", [1, 2])
def test_an_epoch_left_in_the_middle_leaves_nothing_of_it(
    source: Path, device: str, threads: int
) -> None:
    with _open(source, prefetch=8, threads=threads, device=device, epochs=None) as feed:
        for epoch in range(40):
            for batch in feed:
                assert batch.epoch == epoch
                assert (batch.data.numpy().T == batch.indices % 251).all()
                if batch.number == epoch % 5:
                    break
            del batch
        stats = feed.stats()
    assert stats.slots == 9


_SIZES = ((3, 8, 8), (3, 8, 8), (3, 9, 7), (1, 8, 8), (3, 8, 8), (3, 400, 500), (3, 8, 8))


def _of_sizes(folder: Path, *, batch_size: int) -> Path:
    """Make a database of batches with a size of their own each; pixels are the record's number."""
    records = []
    for number, shape in enumerate(_SIZES * 2):
        for place in range(batch_size):
            record = number * batch_size + place
            pixels = np.full(shape, record, np.uint8)
            records.append((b"%08d" % record, encode_image(pixels, label=record)))
    return write_database(folder, records)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("depth", [1, 2, 8])
@pytest.mark.parametrize("light", [False, True])
def test_a_batch_has_the_shape_of_its_first_record_whatever_those_before_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, depth: int, *, light: bool
) -> None:
    if not light:
        monkeypatch.setattr(light_batches, "_MIN_RAW_BYTES_TO_SPLIT", 0)
        monkeypatch.setattr(reader_jobs, "_MIN_BYTES_TO_SPLIT", 10_000)  # the largest goes to both
    source = _of_sizes(tmp_path / "db", batch_size=4)
    options = {"shuffle": False, "prefetch": depth, "threads": threads, "epochs": 3}
    with _open(source, **options) as feed:
        for _ in range(3):
            shapes = []
            for batch in feed:
                assert (batch.data.numpy().T == batch.indices).all()
                assert batch.label.numpy().tolist() == batch.indices.tolist()
                assert batch.keys == [b"%08d" % record for record in batch.indices]
                shapes.append(batch.data.shape[1:])
            assert tuple(shapes) == _SIZES * 2


def test_the_same_with_a_crop_that_some_are_too_small_for(tmp_path: Path) -> None:
    source = _of_sizes(tmp_path / "db", batch_size=4)
    options: dict[str, Any] = {"shuffle": False, "prefetch": 8, "threads": 1}
    with _open(source, **options, transform={"crop_size": 8}) as feed:
        iterator = iter(feed)
        assert [next(iterator).data.shape[1:] for _ in range(2)] == [(3, 8, 8)] * 2
        with pytest.raises(prefetch.RecordError, match="9 x 7 pixels") as caught:
            next(iterator)
        assert (caught.value.record, caught.value.key) == (8, b"00000008")


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_bad_first_record_is_replaced_whatever_its_batch_was_guessed_to_be(
    tmp_path: Path, *, shuffle: bool
) -> None:
    records = list(fingerprinted_images(32))
    for bad in (8, 9, 20):
        records[bad] = (records[bad][0], b"\xff")
    source = write_database(tmp_path / "db", records)
    options: dict[str, Any] = {"shuffle": shuffle, "on_bad_record": "skip", "max_bad_records": 3}
    with _open(source, prefetch=8, threads=1, epochs=4, **options) as feed:
        for _ in range(4):
            served = []
            for batch in feed:
                assert (batch.data.numpy().T == batch.indices).all()
                served += batch.indices.tolist()
            assert len(served) == 32
            assert not {8, 9, 20} & set(served)
            if not shuffle:
                assert served[8:10] == [10, 10]
        assert feed.stats().bad_records == 3
