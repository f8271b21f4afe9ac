"""A backend that is none of LMDB's serves a whole feed: all that a feed asks is the protocol."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from databases import records_of
from list_backend import ListBackend

import prefetch
from prefetch._source import open_backend
from prefetch._source.lmdb.database import LmdbDatabase
from prefetch._tools.preview import record_sheet
from prefetch._tools.survey import survey_database
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

RECORDS = list(fingerprinted_images(50))
BAD = 17
SPOILT = [(key, b"\xff" if place == BAD else value) for place, (key, value) in enumerate(RECORDS)]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> ListBackend:
    return ListBackend(monkeypatch)


def seen(batches: Iterable[prefetch.Batch]) -> list[tuple[bytes, list[bytes], list[int], Any]]:
    """Return what a consumer gets of each batch."""
    return [
        (
            batch.data.numpy().tobytes(),
            batch.keys,
            batch.indices.tolist(),
            batch.label.numpy().tolist(),
        )
        for batch in batches
    ]


@pytest.mark.parametrize("device", ["cpu", "simulated"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"shuffle": True, "seed": 3},
        {"shuffle": True, "seed": 3, "shard": {"rank": 1, "world_size": 3}},
        {"subset": {"start": 7, "stop": 31}, "threads": 3},
        {"transform": {"crop_size": 5, "mirror": True}, "phase": "train", "seed": 1},
    ],
    ids=["in order", "shuffled", "of a rank", "of a subset", "cropped"],
)
def test_batches_are_those_of_the_same_records_in_lmdb(
    backend: ListBackend, tmp_path: Path, options: dict[str, Any], device: str
) -> None:
    served = []
    for source in (
        backend.put(tmp_path / "list", RECORDS),
        write_database(tmp_path / "db", RECORDS),
    ):
        config = {"source": source, "batch_size": 8, "device": device, "epochs": 2}
        with prefetch.open(config, **options) as feed:
            served.append([seen(feed), seen(feed)])
    assert served[0] == served[1]
    assert served[0][0]


def test_databases_of_several_backends_are_read_in_turn(
    backend: ListBackend, tmp_path: Path
) -> None:
    sources = [
        backend.put(tmp_path / "first", RECORDS[:11]),
        write_database(tmp_path / "second", RECORDS[11:30]),
        backend.put(tmp_path / "third", RECORDS[30:]),
    ]
    for shuffle in (False, True):
        with prefetch.open({"source": sources, "batch_size": 8}, shuffle=shuffle) as feed:
            keys = [key for batch in feed for key in batch.keys]
        expected = [key for key, _ in RECORDS]
        assert (sorted(keys) if shuffle else keys) == expected


def test_a_feed_resumes_where_its_state_says(backend: ListBackend, tmp_path: Path) -> None:
    config = {
        "source": backend.put(tmp_path / "list", RECORDS),
        "batch_size": 8,
        "shuffle": True,
        "seed": 5,
    }
    with prefetch.open(config) as feed:
        iterator = iter(feed)
        seen(itertools.islice(iterator, 3))
        state = feed.state_dict()
        rest = seen(iterator)
    with prefetch.open(config) as feed:
        feed.load_state_dict(state)
        assert seen(feed) == rest


def test_a_bad_record_is_an_error_that_names_source_record_and_key(
    backend: ListBackend, tmp_path: Path
) -> None:
    source = backend.put(tmp_path / "list", SPOILT)
    with (
        prefetch.open({"source": source, "batch_size": 8}) as feed,
        pytest.raises(prefetch.RecordError, match="the record is damaged") as caught,
    ):
        seen(feed)
    error = caught.value
    assert (error.database, error.record, error.key) == (str(source), BAD, RECORDS[BAD][0])
    assert error.stage == "parse"


def test_a_bad_record_goes_into_quarantine_and_the_next_takes_its_place(
    backend: ListBackend, tmp_path: Path
) -> None:
    config = {
        "source": backend.put(tmp_path / "list", SPOILT),
        "batch_size": 10,
        "on_bad_record": "quarantine",
        "quarantine": tmp_path / "bad",
    }
    with prefetch.open(config) as feed:
        indices = [index for batch in feed for index in batch.indices.tolist()]
        assert feed.stats().bad_records == 1
    assert indices == [index + (index == BAD) for index in range(50)]
    assert records_of(tmp_path / "bad") == {RECORDS[BAD][0]: b"\xff"}


def test_the_source_itself_is_no_quarantine(backend: ListBackend, tmp_path: Path) -> None:
    source = backend.put(tmp_path / "list", RECORDS)
    with pytest.raises(prefetch.ConfigError, match="is the source itself"):
        prefetch.open(
            {"source": source, "batch_size": 8, "on_bad_record": "quarantine", "quarantine": source}
        )


@pytest.mark.parametrize("shuffle", [False, True])
def test_what_a_check_finds_is_the_error_of_the_feed(
    backend: ListBackend, tmp_path: Path, *, shuffle: bool
) -> None:
    source = backend.put(tmp_path / "list", RECORDS)
    with prefetch.open({"source": source, "batch_size": 8}, shuffle=shuffle) as feed:
        backend.opened[-1].failure = prefetch.SourceError(str(source), "has other bytes by now")
        with pytest.raises(prefetch.SourceError, match="has other bytes by now"):
            seen(feed)


def test_a_closed_feed_has_closed_its_databases(backend: ListBackend, tmp_path: Path) -> None:
    sources = [backend.put(tmp_path / name, RECORDS) for name in ("one", "two")]
    with prefetch.open({"source": sources, "batch_size": 8}) as feed:
        next(iter(feed))
        assert not any(database.is_closed for database in backend.opened)
    assert [database.is_closed for database in backend.opened] == [True, True]


def test_a_database_that_cannot_be_opened_closes_those_before_it(
    backend: ListBackend, tmp_path: Path
) -> None:
    sources = [backend.put(tmp_path / "list", RECORDS), tmp_path / "missing"]
    with pytest.raises(prefetch.DatabaseNotFoundError, match="there is nothing here"):
        prefetch.open({"source": sources, "batch_size": 8})
    assert backend.opened[0].is_closed


def test_a_survey_and_a_picture_ask_for_no_more(backend: ListBackend, tmp_path: Path) -> None:
    source = backend.put(tmp_path / "list", RECORDS)
    for full in (False, True):
        found = survey_database(source, full=full)
        assert (found.num_records, found.kinds, found.num_examined) == (50, {"raw": 50}, 50)
        assert found.keys[0] == RECORDS[0][0]
        assert found.keys[-1] == RECORDS[-1][0]
        assert found.storage.file_bytes == sum(len(key) + len(value) for key, value in RECORDS)
    stored = write_database(tmp_path / "db", RECORDS)
    assert record_sheet(source, num_records=50).shape == record_sheet(stored, num_records=50).shape


def test_lmdb_is_asked_last_and_takes_what_is_left() -> None:
    assert open_backend.OPENERS[-1] == LmdbDatabase.open
