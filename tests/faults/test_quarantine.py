"""Bad records put aside: their key and bytes, in a database of their own."""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING, Any

import lmdb
import pytest

import prefetch
from prefetch.cli import main
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from pathlib import Path


def _stored(path: Path) -> dict[bytes, bytes]:
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as txn:
        return dict(txn.cursor())


def _source(folder: Path, bad: dict[int, bytes]) -> Path:
    records = dict(enumerate(fingerprinted_images(12)))
    for index, value in bad.items():
        records[index] = (records[index][0], value)
    return write_database(folder, records.values())


def _options(source: Any, quarantine: Path) -> dict[str, Any]:
    return {
        "source": source,
        "batch_size": 4,
        "on_bad_record": "quarantine",
        "quarantine": quarantine,
    }


@pytest.mark.parametrize("threads", [1, 8])
def test_key_and_bytes_of_every_bad_record_are_kept_once(tmp_path: Path, threads: int) -> None:
    bad = {3: b"\xff", 4: b"", 9: b"x" * 3_000_000}
    source = _source(tmp_path / "db", bad)
    with prefetch.open(_options(source, tmp_path / "aside"), threads=threads) as feed:
        for _ in range(3):
            indices = [index for batch in feed for index in batch.indices.tolist()]
            assert indices == [0, 1, 2, 5, 5, 5, 6, 7, 8, 10, 10, 11]
        assert feed.stats().bad_records == 3
    assert _stored(tmp_path / "aside") == {b"%08d" % i: value for i, value in bad.items()}
    with lmdb.open(str(tmp_path / "aside"), readonly=True, lock=False) as environment:
        assert environment.info()["last_txnid"] == 3


def test_no_more_is_kept_than_may_be_bad(tmp_path: Path) -> None:
    """One batch that meets too many does not go on through the rest of the records."""
    source = _source(tmp_path / "db", dict.fromkeys(range(10), b"\xff"))
    options = _options(source, tmp_path / "aside") | {"max_bad_records": 2, "threads": 1}
    with (
        prefetch.open(options) as feed,
        pytest.raises(prefetch.TooManyBadRecordsError, match="3 bad records"),
    ):
        next(iter(feed))
    assert len(_stored(tmp_path / "aside")) == 2


def test_inspect_reads_a_quarantine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = _source(tmp_path / "db", {3: b"\xff", 4: b"", 9: b"\xff"})
    with prefetch.open(_options(source, tmp_path / "aside")) as feed:
        list(feed)
    assert main(["inspect", str(tmp_path / "aside"), "--json"]) == 1  # what it holds is bad
    found = json.loads(capsys.readouterr().out)
    assert (found["num_records"], found["is_sound"]) == (3, False)
    keys = [key for problem in found["problems"] for key in problem["keys"]]
    assert sorted(keys) == ["00000003", "00000004", "00000009"]


def test_nothing_is_created_where_nothing_is_bad(tmp_path: Path) -> None:
    source = _source(tmp_path / "db", {})
    with prefetch.open(_options(source, tmp_path / "aside")) as feed:
        assert len(list(feed)) == 3
    assert not (tmp_path / "aside").exists()


def test_what_is_there_already_is_added_to(tmp_path: Path) -> None:
    for name, bad in (("one", {1: b"\xff"}), ("two", {2: b"\xfe"})):
        with prefetch.open(_options(_source(tmp_path / name, bad), tmp_path / "aside")) as feed:
            list(feed)
    assert _stored(tmp_path / "aside") == {b"00000001": b"\xff", b"00000002": b"\xfe"}


def test_two_sources_with_the_same_keys_lose_nothing(tmp_path: Path) -> None:
    sources = [_source(tmp_path / "one", {1: b"\xff"}), _source(tmp_path / "two", {1: b"\xfe"})]
    with prefetch.open(_options(sources, tmp_path / "aside"), threads=1) as feed:
        list(feed)
    assert _stored(tmp_path / "aside") == {b"00000001": b"\xff", b"00000001@13": b"\xfe"}


def test_a_quarantine_that_cannot_be_written_is_an_error_that_names_it(tmp_path: Path) -> None:
    source = _source(tmp_path / "db", {1: b"\xff"})
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "data.mdb").write_bytes(b"another program's file" * 100)
    with (
        prefetch.open(_options(source, tmp_path / "aside")) as feed,
        pytest.raises(prefetch.QuarantineError, match=str(tmp_path / "aside")),
    ):
        next(iter(feed))


def test_a_full_disk_is_an_error_that_names_the_quarantine(tmp_path: Path) -> None:
    source = _source(tmp_path / "db", {1: b"x" * 3_000_000})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with prefetch.open(_options(source, tmp_path / "aside")) as feed:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
        try:
            with pytest.raises(prefetch.QuarantineError, match="aside"):
                next(iter(feed))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_relative_quarantine_lies_beside_the_configuration(tmp_path: Path) -> None:
    _source(tmp_path / "db", {1: b"\xff"})
    config = tmp_path / "feed.yaml"
    config.write_text("source: db\non_bad_record: quarantine\nquarantine: aside\n")
    with prefetch.open(config) as feed:
        list(feed)
    assert list(_stored(tmp_path / "aside")) == [b"00000001"]


@pytest.mark.parametrize(
    "options",
    [{"on_bad_record": "quarantine"}, {"on_bad_record": "skip", "quarantine": "aside"}],
)
def test_a_quarantine_and_its_policy_go_together(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(prefetch.ConfigError, match="quarantine"):
        prefetch.open({"source": tmp_path, **options})


def test_a_quarantine_that_is_the_source_itself_is_refused_by_whatever_path(
    tmp_path: Path,
) -> None:
    source = _source(tmp_path / "db", {3: b"\xff"})
    before = _stored(source)
    (tmp_path / "link").symlink_to(source)
    for quarantine in (source, tmp_path / "link"):
        with pytest.raises(prefetch.ConfigError, match="is the source itself; name another folder"):
            prefetch.open(_options(source, quarantine))
    with pytest.raises(prefetch.ConfigError, match=r"found the file .*data\.mdb"):
        prefetch.open(_options(source, source / "data.mdb"))
    assert _stored(source) == before
