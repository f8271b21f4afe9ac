"""Bad records put aside: their key and bytes, in a database of their own."""

from __future__ import annotations

import errno
import json
import mmap
import os
import re
import resource
import shutil
import threading
from contextlib import closing
from itertools import count
from typing import TYPE_CHECKING, Any

import lmdb
import pytest
from processes import run_code

import prefetch
from prefetch._bad_records.quarantine import Quarantine
from prefetch._bad_records.quarantine_folder import MARK, cure_of
from prefetch._source.lmdb.file import DatabaseFile
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
    source = _source(tmp_path / "db", dict.fromkeys(range(1, 11), b"\xff"))
    options = _options(source, tmp_path / "aside") | {"max_bad_records": 2, "threads": 1}
    with (
        prefetch.open(options, batch_size=12) as feed,
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


def _write_as_before_the_mark(folder: Path, records: dict[bytes, bytes]) -> None:
    """Write a quarantine as earlier versions did: a transaction a record, no file beside it."""
    with lmdb.open(str(folder), map_size=1 << 20) as environment:
        for key, value in records.items():
            for _ in count():
                try:
                    with environment.begin(write=True) as transaction:
                        transaction.put(key, value)
                    break
                except lmdb.MapFullError:
                    size = environment.info()["map_size"]
                    environment.set_mapsize(2 * size + 2 * len(value))


def _serve(options: dict[str, Any], **more: Any) -> int:
    with prefetch.open(options, **more) as feed:
        return sum(len(batch) for batch in feed)


def test_training_and_validation_share_a_quarantine(tmp_path: Path) -> None:
    source = _source(tmp_path / "db", {3: b"\xff", 9: b"\xfe"})
    options = _options(source, tmp_path / "aside")
    with (
        prefetch.open(options, subset={"stop": 6}) as training,
        prefetch.open(options, subset={"start": 6}) as validation,
    ):
        assert len(list(training)) + len(list(validation)) == 4
        training.close()
        assert len(list(validation)) == 2  # it writes on
    assert _stored(tmp_path / "aside") == {b"00000003": b"\xff", b"00000009": b"\xfe"}
    assert len(os.listdir(tmp_path / "aside")) == 3  # noqa: PTH208 - names only


def test_feeds_in_several_threads_and_processes_lose_nothing(tmp_path: Path) -> None:
    """The map grows under all of them."""
    bad = {index: bytes([index]) * 400_000 for index in range(1, 9)}
    options = _options(_source(tmp_path / "db", bad), tmp_path / "aside")
    program = """
        import sys, threading, prefetch

        def serve(start):
            options = {"source": sys.argv[1], "quarantine": sys.argv[2]}
            policy = {"on_bad_record": "quarantine", "subset": {"start": start}}
            with prefetch.open(options | policy) as feed:
                assert sum(len(batch) for batch in feed) == 12 - start

        threads = [threading.Thread(target=serve, args=(start,)) for start in range(4)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """
    ended: list[str] = []
    folders = options["source"], options["quarantine"]
    runs = [
        threading.Thread(target=lambda: ended.append(run_code(program, *folders).stderr))
        for _ in range(2)
    ]
    for run in runs:
        run.start()
    for run in runs:
        run.join()
    assert ended == ["", ""]
    assert _stored(tmp_path / "aside") == {b"%08d" % i: value for i, value in bad.items()}


def test_nothing_that_is_there_is_written_over(tmp_path: Path) -> None:
    """Not even where a key, and the key with its mark, are taken."""
    quarantine = Quarantine(tmp_path / "aside")
    for record, value in ((1, b"a"), (13, b"b")):
        quarantine.keep(record, b"key", value)
    quarantine.close()
    for value in (b"c", b"d", b"c", b"b"):
        another = Quarantine(tmp_path / "aside")
        another.keep(13, b"key", value)
        another.close()
    assert _stored(tmp_path / "aside") == {
        b"key": b"a", b"key@13": b"b", b"key@13.2": b"c", b"key@13.3": b"d",
    }  # fmt: skip


@pytest.mark.parametrize("head", [b"", b"\0" * 100, None])
def test_what_a_full_disk_left_of_a_quarantine_is_begun_anew(
    tmp_path: Path, head: bytes | None
) -> None:
    """Nothing, or the first page of two."""
    options = _options(_source(tmp_path / "db", {3: b"\xff"}), tmp_path / "aside")
    if head is None:
        head = (options["source"] / "data.mdb").read_bytes()[: mmap.PAGESIZE]
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "data.mdb").write_bytes(head)
    assert _serve(options) == 12
    assert _stored(tmp_path / "aside") == {b"00000003": b"\xff"}


def test_a_quarantine_is_made_whole_or_not_at_all(tmp_path: Path) -> None:
    options = _options(_source(tmp_path / "db", {1: b"\xff"}), tmp_path / "aside")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with prefetch.open(options) as feed:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        try:
            with pytest.raises(
                prefetch.QuarantineError, match="No space left on device; free some"
            ):
                next(iter(feed))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert os.listdir(tmp_path / "aside") == [MARK]  # noqa: PTH208 - names only
    assert _serve(options) == 12
    assert _stored(tmp_path / "aside") == {b"00000001": b"\xff"}


@pytest.mark.parametrize(
    ("code", "cure"),
    [
        (errno.ENOSPC, "free some space, name another folder"),
        (errno.EDQUOT, "free some space, name another folder"),
        (errno.EIO, "see whether the disk is full or fails, name another folder"),
        (errno.EACCES, "make the folder writable for this user, name another folder"),
        (errno.EMFILE, "raise the limit on open files (ulimit -n), name another folder"),
        (errno.EFBIG, "raise the limit on the size of files (ulimit -f), name another folder"),
        (errno.ENOTDIR, "name another folder"),
        (errno.ENOENT, "name another folder"),
        (errno.EROFS, "name another folder"),
    ],
)
def test_the_advice_fits_what_the_system_said(code: int, cure: str) -> None:
    for error in (OSError(code, os.strerror(code)), lmdb.Error(f"/q: {os.strerror(code)}")):
        reason, found = cure_of(error)
        message = str(prefetch.QuarantineError("/q", reason, cure=found))
        assert message.endswith(
            f"{os.strerror(code)}; {cure} as quarantine, or use on_bad_record: skip"
        )


def test_a_path_through_a_file_is_told_as_that_and_not_as_a_full_disk(tmp_path: Path) -> None:
    source = _source(tmp_path / "db", {1: b"\xff"})
    (tmp_path / "file").write_text("")
    with (
        prefetch.open(_options(source, tmp_path / "file" / "aside")) as feed,
        pytest.raises(prefetch.QuarantineError, match="Not a directory; name another folder"),
    ):
        next(iter(feed))


def test_a_file_that_is_no_database_is_told_without_two_marks_in_a_row(tmp_path: Path) -> None:
    options = _options(_source(tmp_path / "db", {1: b"\xff"}), tmp_path / "aside")
    (tmp_path / "aside").mkdir()
    (tmp_path / "aside" / "data.mdb").write_bytes(b"another program's file" * 1000)
    with prefetch.open(options) as feed, pytest.raises(prefetch.QuarantineError) as caught:
        next(iter(feed))
    assert "move that file away" in str(caught.value)
    assert not re.search(r"[.;]\W*;", str(caught.value))


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
@pytest.mark.parametrize("name", ["data.mdb", "lock.mdb", MARK])
def test_what_is_no_file_is_neither_followed_nor_waited_for(
    tmp_path: Path, name: str, kind: str
) -> None:
    options = _options(_source(tmp_path / "db", {3: b"\xff"}), tmp_path / "aside")
    there = tmp_path / "aside" / name
    (tmp_path / "victim").write_bytes(b"precious" * 1000)
    with prefetch.open(options) as feed:  # what is there already is looked at here, too
        (tmp_path / "aside").mkdir()
        if kind == "pipe":
            os.mkfifo(there)
        elif kind == "folder":
            there.mkdir()
        else:
            there.symlink_to(tmp_path / ("victim" if kind == "link" else "nothing"))
        with pytest.raises(prefetch.QuarantineError, match=f"{name} in it is no regular file"):
            next(iter(feed))
    assert (tmp_path / "victim").read_bytes() == b"precious" * 1000
    assert not (tmp_path / "nothing").exists()
    assert os.listdir(tmp_path / "aside") == [name]  # noqa: PTH208 - names only


def _add_to(options: dict[str, Any]) -> str:
    """Serve a feed in a process of its own, for it may be killed; return what it says."""
    program = """
        import sys, prefetch
        options = {"source": sys.argv[1], "quarantine": sys.argv[2]}
        with prefetch.open(options, on_bad_record="quarantine") as feed:
            try:
                next(iter(feed))
            except prefetch.QuarantineError as error:
                print(error)
    """
    ended = run_code(program, options["source"], options["quarantine"])
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


@pytest.mark.parametrize(
    ("offset", "content", "reason"),
    [
        pytest.param(10, b"\x12", "has the flags 0x12", id="unwritten"),
        pytest.param(10, b"\x04", "is no leaf", id="kind"),
        pytest.param(0, b"\xff", "has the number", id="number"),
        pytest.param(14, b"\x80\x0f", "", id="overlap"),
        pytest.param(16, b"\xfe\x0f", "outside of the page", id="outside"),
    ],
)
def test_a_damaged_quarantine_is_an_error_and_does_not_kill_the_process(
    tmp_path: Path, offset: int, content: bytes, reason: str
) -> None:
    options = _options(_source(tmp_path / "db", {3: b"\xff", 4: b"\xfe"}), tmp_path / "aside")
    assert _serve(options) == 12
    data = tmp_path / "aside" / "data.mdb"
    with closing(DatabaseFile(data)) as file:
        root = file.newest().root
    assert root is not None
    with data.open("r+b") as stream:
        stream.seek(root * mmap.PAGESIZE + offset)
        stream.write(content)
    before = data.read_bytes()
    told = _add_to(options | {"source": _source(tmp_path / "more", {5: b"\xff"})})
    assert "its database is damaged" in told
    assert reason in told
    assert "move that file away" in told
    assert data.read_bytes() == before


def test_a_cut_quarantine_is_an_error_and_does_not_kill_the_process(tmp_path: Path) -> None:
    options = _options(_source(tmp_path / "db", {3: b"\xff", 4: b"\xfe"}), tmp_path / "aside")
    assert _serve(options) == 12
    data = tmp_path / "aside" / "data.mdb"
    os.truncate(data, data.stat().st_size - 4096)
    told = _add_to(options | {"source": _source(tmp_path / "more", {5: b"\xff"})})
    assert "the file is truncated" in told


def test_a_database_that_is_no_quarantine_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    source = _source(tmp_path / "db", {3: b"\xff"})
    foreign = _source(tmp_path / "other", {})
    naive = tmp_path / "naive"
    with lmdb.open(str(naive)) as environment:  # a transaction a record, LMDB's default map
        for key, value in fingerprinted_images(5):
            with environment.begin(write=True) as transaction:
                transaction.put(key, value)
    for folder, num in ((foreign, 12), (naive, 5)):
        before = (folder / "data.mdb").read_bytes()
        with pytest.raises(
            prefetch.ConfigError, match=f"database of {num} records that was not made as a quarant"
        ):
            prefetch.open(_options(source, folder))
        assert (folder / "data.mdb").read_bytes() == before


def test_a_database_that_comes_after_the_opening_is_not_written_to_either(tmp_path: Path) -> None:
    options = _options(_source(tmp_path / "db", {3: b"\xff"}), tmp_path / "aside")
    with prefetch.open(options) as feed:
        shutil.copytree(_source(tmp_path / "other", {}), tmp_path / "aside")
        with pytest.raises(prefetch.QuarantineError, match="not made as a quarantine"):
            next(iter(feed))
    assert len(_stored(tmp_path / "aside")) == 12


@pytest.mark.parametrize("value", [b"", b"\xff" * 3_000_000])
def test_a_quarantine_of_an_earlier_version_goes_on(tmp_path: Path, value: bytes) -> None:
    kept = {b"x%d" % number: value for number in range(5)}
    _write_as_before_the_mark(tmp_path / "aside", kept)
    assert _serve(_options(_source(tmp_path / "db", {3: b"\xff"}), tmp_path / "aside")) == 12
    assert _stored(tmp_path / "aside") == kept | {b"00000003": b"\xff"}


def test_a_mark_makes_any_database_a_quarantine(tmp_path: Path) -> None:
    aside = _source(tmp_path / "aside", {})
    (aside / MARK).touch()
    assert _serve(_options(_source(tmp_path / "db", {3: b"\xff"}), aside)) == 12
    assert len(_stored(aside)) == 13


def test_a_quarantine_that_is_being_written_is_no_source_until_its_feed_is_closed(
    tmp_path: Path,
) -> None:
    options = _options(_source(tmp_path / "db", {3: b"\xff"}), tmp_path / "aside")
    with prefetch.open(options) as feed:
        list(feed)
        with pytest.raises(prefetch.DatabaseInUseError, match="quarantine of an open feed"):
            prefetch.open({"source": tmp_path / "aside"})
    with prefetch.open({"source": tmp_path / "aside"}) as found:
        assert found.config.batch_size == 64
        with (
            prefetch.open(_options(tmp_path / "db", tmp_path / "aside")) as feed,
            pytest.raises(prefetch.QuarantineError, match="the source of an open feed here"),
        ):
            next(iter(feed))
