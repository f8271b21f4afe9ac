"""A database that is being written: grows, survives, and is whole or not there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import pytest
from databases import names_in, records_of
from processes import run_code

from prefetch._tools.convert import draft as draft_file
from prefetch._tools.convert import draft_folder
from prefetch._tools.convert.draft import Draft
from prefetch._tools.convert.errors import ConversionError

if TYPE_CHECKING:
    from collections.abc import Iterator

INPUT = {"input": "a"}


def records(num: int, size: int = 100) -> Iterator[tuple[bytes, bytes]]:
    for index in range(num):
        yield b"%08d" % index, b"%d" % index * size


def test_a_finished_database_is_under_its_name_alone(tmp_path: Path) -> None:
    content = dict(records(50))
    with Draft(tmp_path / "db", INPUT) as draft:
        for key, value in content.items():
            draft.put(key, value)
        assert not (tmp_path / "db").exists()
        size = draft.finish({"classes.tsv": "0\tcät\n"})
    assert content == records_of(tmp_path / "db")
    assert ["db"] == names_in(tmp_path)
    assert ["classes.tsv", "data.mdb"] == names_in(tmp_path / "db")
    assert "0\tcät\n" == (tmp_path / "db" / "classes.tsv").read_text("utf-8")
    assert size == (tmp_path / "db" / "data.mdb").stat().st_size


@pytest.mark.parametrize("commit_bytes", [1, 5000, 1 << 20])
def test_a_full_map_grows_with_no_record_lost_or_doubled(commit_bytes: int, tmp_path: Path) -> None:
    content = dict(records(60, 1000))
    with Draft(tmp_path / "db", INPUT, map_bytes=1 << 15, commit_bytes=commit_bytes) as draft:
        for key, value in content.items():
            draft.put(key, value)
        draft.finish()
    assert content == records_of(tmp_path / "db")


def test_a_map_that_fills_up_at_the_commit_itself_is_replayed(tmp_path: Path) -> None:
    content = dict(records(300))
    with Draft(tmp_path / "db", INPUT) as draft:
        real = draft._environment
        draft._environment = FailingEnvironment(real, fail_commits=2)  # type: ignore[assignment]
        for key, value in content.items():
            draft.put(key, value)
        draft.commit()
        assert list(content) == list(draft.keys())
        assert content == dict(real.begin().cursor())


@pytest.mark.parametrize(
    ("num", "length", "commit_bytes"),
    [(2000, 1000, 1 << 16), (400, 50_000, 1 << 22)],
    ids=["copied at the end", "renamed at the end"],
)
def test_the_map_stays_close_to_the_content(
    num: int, length: int, commit_bytes: int, tmp_path: Path
) -> None:
    with Draft(tmp_path / "db", INPUT, commit_bytes=commit_bytes) as draft:
        for key, value in records(num, length):
            draft.put(key, value)
        size = draft.finish()
    with lmdb.open(str(tmp_path / "db"), readonly=True, lock=False, map_size=0) as environment:
        assert environment.info()["map_size"] <= 1.13 * size + 2 * commit_bytes


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("name", ["db", os.fsdecode(b"k\xf6ln")])
def test_a_finished_file_is_about_as_small_as_a_compacted_copy(
    name: str,
    backwards: bool,  # noqa: FBT001 - a parameter of the test
    tmp_path: Path,
) -> None:
    content = list(records(3000, 30))
    with Draft(tmp_path / name, INPUT, commit_bytes=20_000) as draft:
        for key, value in reversed(content) if backwards else content:
            draft.put(key, value)
        size = draft.finish()
    (tmp_path / name).rename(tmp_path / "db")
    (tmp_path / "copy").mkdir()
    with lmdb.open(str(tmp_path / "db"), readonly=True, lock=False) as environment:
        environment.copy(str(tmp_path / "copy"), compact=True)
    assert size <= (tmp_path / "copy" / "data.mdb").stat().st_size * 1.005
    assert dict(content) == records_of(tmp_path / "db")


def test_a_database_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, rename = draft_folder.sync, Path.rename

    def noted_sync(path: Path) -> None:
        sync(path)
        events.append(path.name)

    def noted_rename(path: Path, target: Path) -> Path:
        events.append("renamed")
        return rename(path, target)

    monkeypatch.setattr(draft_file, "sync", noted_sync)
    monkeypatch.setattr(Path, "rename", noted_rename)
    with Draft(tmp_path / "db", INPUT) as draft:
        draft.put(b"a", b"b")
        draft.finish({"classes.tsv": "0\tcat\n"})
    assert ["classes.tsv", "data.mdb", "database", "renamed", tmp_path.name] == events


@pytest.mark.parametrize(("free", "is_full"), [(0, True), (1 << 30, False)])
def test_a_full_disk_is_named_as_one_whatever_lmdb_says(
    free: int,
    is_full: bool,  # noqa: FBT001 - a parameter of the test
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(draft_file, "free_bytes", lambda _: free)
    with Draft(tmp_path / "db", INPUT) as draft:
        text = str(draft._failure(lmdb.Error("mdb_txn_commit: Input/output error")))
    said = "the disk is full (mdb_txn_commit: Input/output error);"
    assert is_full == (f"failed: {said}" in text)
    assert "mdb_txn_commit: Input/output error" in text
    assert "bytes are free there" in text


def test_a_closed_draft_is_gone_on_with(tmp_path: Path) -> None:
    content = dict(records(30))
    first, second = list(content)[:10], list(content)[10:]
    with Draft(tmp_path / "db", INPUT) as draft:
        for key in first:
            draft.put(key, content[key])
        draft.commit()
        draft.put(second[0], b"not committed, and not kept")
    assert ["db.partial"] == names_in(tmp_path)
    with Draft(tmp_path / "db", INPUT, resume=True) as draft:
        assert first == list(draft.keys())
        assert content[first[0]] == draft.value(first[0])
        for key in reversed(second):  # out of order, as images that were repaired are
            draft.put(key, content[key])
        draft.finish()
    assert content == records_of(tmp_path / "db")


def test_resuming_with_nothing_there_begins_anew(tmp_path: Path) -> None:
    with Draft(tmp_path / "db", INPUT, resume=True) as draft:
        assert [] == list(draft.keys())
        draft.put(b"a", b"b")
        draft.finish()
    assert {b"a": b"b"} == records_of(tmp_path / "db")


def test_a_draft_is_not_written_over_unasked(tmp_path: Path) -> None:
    Draft(tmp_path / "db", INPUT).close()
    with pytest.raises(
        ConversionError, match=r"db\.partial: .*--resume, or begin anew with --force"
    ):
        Draft(tmp_path / "db", INPUT)


def test_a_draft_of_something_else_is_not_gone_on_with(tmp_path: Path) -> None:
    Draft(tmp_path / "db", INPUT).close()
    with pytest.raises(ConversionError, match=r"what is converted has changed \(input\)"):
        Draft(tmp_path / "db", {"input": "b"}, resume=True)


def test_two_cannot_write_the_same_draft(tmp_path: Path) -> None:
    with (
        Draft(tmp_path / "db", INPUT),
        pytest.raises(ConversionError, match="another conversion is writing it"),
    ):
        Draft(tmp_path / "db", INPUT, resume=True)


@pytest.mark.parametrize("kind", ["folder", "file", "dangling link"])
def test_what_is_at_the_final_place_is_left_alone(kind: str, tmp_path: Path) -> None:
    final = tmp_path / "db"
    if kind == "folder":
        final.mkdir()
    elif kind == "file":
        final.touch()
    else:
        final.symlink_to("nowhere")
    with pytest.raises(ConversionError, match="is there already"):
        Draft(final, INPUT)
    assert ["db"] == names_in(tmp_path)


def test_folders_above_are_made_and_stay_only_where_something_is_in_them(tmp_path: Path) -> None:
    with Draft(tmp_path / "a" / "b" / "db", INPUT) as draft:
        draft.put(b"a", b"b")
        draft.discard()
    assert [] == names_in(tmp_path)
    with pytest.raises(ConversionError, match="too long"):
        Draft(tmp_path / "a" / "b" / ("n" * 250), INPUT)
    assert [] == names_in(tmp_path)
    with Draft(tmp_path / "a" / "b" / "db", INPUT) as draft:
        (tmp_path / "a" / "mine").touch()
        draft.discard()
    assert ["mine"] == names_in(tmp_path / "a")
    with Draft(tmp_path / "a" / "b" / "db", INPUT) as draft:
        draft.put(b"a", b"b")
        draft.finish()
    assert {b"a": b"b"} == records_of(tmp_path / "a" / "b" / "db")


def test_a_discarded_draft_leaves_nothing(tmp_path: Path) -> None:
    with Draft(tmp_path / "db", INPUT) as draft:
        draft.put(b"a", b"b")
        draft.discard()
    assert [] == names_in(tmp_path)


_FULL_DISK = """
    import resource, signal, sys
    from pathlib import Path
    from prefetch._tools.convert.draft import Draft
    from prefetch._tools.convert.errors import ConversionError

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing past the limit fails, as a full disk
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, resource.RLIM_INFINITY))
    try:
        with Draft(Path(sys.argv[1]), {"input": "a"}, commit_bytes=100_000) as draft:
            for index in range(200):
                draft.put(b"%08d" % index, b"x" * 10_000)
    except ConversionError as error:
        sys.exit(f"{error}")
"""


def test_a_disk_that_fills_up_costs_the_last_commit_only(tmp_path: Path) -> None:
    database = tmp_path / "db"
    run = run_code(_FULL_DISK, database)
    assert 1 == run.returncode, run.stderr
    assert "see to the disk and continue with --resume" in run.stderr
    assert not database.exists()
    with Draft(database, INPUT, resume=True) as draft:
        stored = list(draft.keys())
        assert 10 <= len(stored) < 100
        assert [b"%08d" % index for index in range(len(stored))] == stored
        for index in range(len(stored), 200):
            draft.put(b"%08d" % index, b"x" * 10_000)
        draft.finish()
    assert 200 == len(records_of(database))


def test_a_disk_too_full_for_the_compacted_copy_leaves_the_draft(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Draft(tmp_path / "db", INPUT, commit_bytes=1) as draft:
        for key, value in reversed(list(records(100))):
            draft.put(key, value)
        monkeypatch.setattr(draft, "_environment", FullForCopies(draft._environment))
        with pytest.raises(ConversionError, match="No space left"):
            draft.finish()
    assert ["db.partial"] == names_in(tmp_path)
    with Draft(tmp_path / "db", INPUT, resume=True) as draft:
        draft.finish()
    assert dict(records(100)) == records_of(tmp_path / "db")


class FailingEnvironment:
    """An environment whose first commits find the map full."""

    def __init__(self, environment: lmdb.Environment, *, fail_commits: int) -> None:
        self._environment = environment
        self._left = fail_commits

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def begin(self, *, write: bool = False) -> Any:
        transaction = self._environment.begin(write=write)
        if not write or self._left == 0:
            return transaction
        self._left -= 1
        return FullAtCommit(transaction)


class FullAtCommit:
    """A transaction that is taken back where it should be committed."""

    def __init__(self, transaction: Any) -> None:
        self._transaction = transaction

    def __enter__(self) -> Any:
        return self._transaction

    def __exit__(self, *exception: object) -> None:
        self._transaction.abort()
        raise lmdb.MapFullError("at the commit")


class FullForCopies:
    """An environment of which no copy can be made."""

    def __init__(self, environment: lmdb.Environment) -> None:
        self._environment = environment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._environment, name)

    def copy(self, *_: object, **__: object) -> None:
        raise lmdb.DiskError("No space left on device")
