"""A snapshot is one state for all readers; what a writer does to it is noticed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import lmdb
import pytest
from databases import records_of, write_short

from prefetch._errors.classes import (
    CorruptDatabaseError,
    DatabaseChangedError,
    DatabaseInUseError,
    DatabaseTruncatedError,
    EmptyDatabaseError,
    FeedClosedError,
    SourceError,
    UnsupportedSourceError,
)
from prefetch._source.lmdb.environment import hold_file
from prefetch._source.lmdb.pages import TreePages
from prefetch._source.lmdb.scan import LeafScan
from prefetch._source.lmdb.snapshot import Snapshot
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_database(tmp_path / "db", fingerprinted_images(50))


@pytest.fixture
def unlocked(folder: Path) -> Iterator[lmdb.Environment]:
    """Give an environment that writes without a lock, as a writer elsewhere does to our readers."""
    with lmdb.open(str(folder), lock=False, map_size=2**26) as environment:
        yield environment


def value_of(snapshot: Snapshot, place: int) -> bytes:
    """Return the value of a record, read from the pages of the snapshot."""
    pages = TreePages(snapshot.file, snapshot.meta)
    walk = LeafScan(snapshot.file, snapshot.meta)
    leaves, slots = walk.take(place + 1)
    _, _, begin, size = pages.locate(int(leaves[-1]), int(slots[-1]))
    return snapshot.file.read(size, begin)


def commit(environment: lmdb.Environment) -> None:
    with environment.begin(write=True) as transaction:
        transaction.put(b"new", os.urandom(8))


def test_one_commit_past_the_snapshot_leaves_it_intact(unlocked: lmdb.Environment) -> None:
    snapshot = Snapshot(unlocked)
    snapshot.check()
    commit(unlocked)
    snapshot.check()
    snapshot.close()


def test_two_commits_past_the_snapshot_are_a_change(unlocked: lmdb.Environment) -> None:
    snapshot = Snapshot(unlocked)
    commit(unlocked)
    commit(unlocked)
    with pytest.raises(DatabaseChangedError, match="lock: true") as caught:
        snapshot.check()
    assert caught.value.snapshot_txn == snapshot.meta.txn_id
    assert caught.value.last_txn == snapshot.meta.txn_id + 2
    snapshot.close()


def test_a_locked_snapshot_outlasts_any_number_of_commits(folder: Path) -> None:
    with lmdb.open(str(folder), map_size=2**26) as environment:
        snapshot = Snapshot(environment)
        value = value_of(snapshot, 7)
        for _ in range(10):
            with environment.begin(write=True) as transaction:
                for number in range(50):
                    transaction.put(b"%08d" % number, os.urandom(200))
        snapshot.check()
        assert value_of(snapshot, 7) == value
        snapshot.close()


def test_a_writer_elsewhere_is_noticed(folder: Path) -> None:
    program = """
import lmdb, sys
with lmdb.open(sys.argv[1], map_size=2**26) as environment:
    for number in range(int(sys.argv[2])):
        with environment.begin(write=True) as transaction:
            transaction.put(b"new", b"%d" % number)
"""
    snapshot = Snapshot(folder)
    subprocess.run([sys.executable, "-c", program, str(folder), "1"], check=True)
    snapshot.check()
    subprocess.run([sys.executable, "-c", program, str(folder), "1"], check=True)
    with pytest.raises(DatabaseChangedError):
        snapshot.check()
    snapshot.close()


def write_values(folder: Path, value: bytes, *, commits: int = 1, num: int = 50) -> Path:
    """Write a database whose numbers follow from all but its values."""
    with lmdb.open(str(folder), map_size=2**26) as environment:
        for _ in range(commits):
            with environment.begin(write=True) as transaction:
                for number in range(num):
                    transaction.put(b"%08d" % number, value)
    return folder / "data.mdb"


def overwrite(target: Path, source: Path) -> None:
    """Copy one file over another in place, a while after that was written."""
    with target.open("r+b") as file:
        file.write(source.read_bytes())


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Give the data file of a database that was written a minute ago, in two commits."""
    data = write_values(tmp_path / "old", b"a" * 100, commits=2)
    minute_ago = data.stat().st_mtime_ns - 60 * 10**9
    os.utime(data, ns=(minute_ago, minute_ago))
    return data


@pytest.mark.parametrize(
    "commits", [1, 2, 3], ids=["an-earlier-number", "the-same-number", "the-next-number"]
)
@pytest.mark.parametrize("num_bytes", [100, 9000], ids=["short", "long"])
def test_a_database_copied_over_the_file_is_a_change(
    tmp_path: Path, commits: int, num_bytes: int
) -> None:
    data = write_values(tmp_path / "old", b"a" * num_bytes, commits=2)
    other = write_values(tmp_path / "other", b"b" * num_bytes, commits=commits)
    os.utime(data, ns=(0, 0))
    os.truncate(other, max(data.stat().st_size, other.stat().st_size))
    snapshot = Snapshot(data)
    snapshot.check()
    overwrite(data, other)
    with pytest.raises(DatabaseChangedError, match=r"copied over it.*replace it by renaming"):
        snapshot.check()
    with pytest.raises(DatabaseChangedError):
        snapshot.check()
    snapshot.close()


def test_a_copy_over_the_file_after_a_commit_is_a_change(old: Path, tmp_path: Path) -> None:
    other = write_values(tmp_path / "other", b"b" * 100, commits=3)
    snapshot = Snapshot(old)
    write_elsewhere(old, 1)
    snapshot.check()
    minute_ahead = old.stat().st_mtime_ns + 60 * 10**9
    overwrite(old, other)
    os.utime(old, ns=(minute_ahead, minute_ahead))
    with pytest.raises(DatabaseChangedError, match="copied over it"):
        snapshot.check()
    snapshot.close()


def write_elsewhere(data: Path, num_commits: int) -> None:
    subprocess.run(
        [sys.executable, "-c", _COMMIT, str(data.parent), str(num_commits)], check=True, timeout=60
    )


_COMMIT = """
import lmdb, sys
with lmdb.open(sys.argv[1], map_size=2**26) as environment:
    for number in range(int(sys.argv[2])):
        with environment.begin(write=True) as transaction:
            transaction.put(b"new", b"%d" % number)
"""


def test_a_locked_snapshot_concludes_nothing_from_a_modification(old: Path) -> None:
    """Its writers may take as long as they like over a transaction."""
    snapshot = Snapshot(old, lock=True)
    os.utime(old)
    snapshot.check()
    snapshot.close()


def test_a_copy_over_the_file_is_a_change_with_a_lock_too(old: Path, tmp_path: Path) -> None:
    other = write_values(tmp_path / "other", b"b" * 100, commits=2)
    assert old.stat().st_size == other.stat().st_size
    snapshot = Snapshot(old, lock=True)
    snapshot.check()
    overwrite(old, other)
    with pytest.raises(DatabaseChangedError, match=r"copied over it.*replace it by renaming"):
        snapshot.check()
    snapshot.close()


def test_a_copy_over_the_last_record_alone_is_a_change_with_a_lock_too(folder: Path) -> None:
    snapshot = Snapshot(folder, lock=True)
    pages = TreePages(snapshot.file, snapshot.meta)
    leaf = pages.last_leaf()
    assert leaf is not None
    _, _, begin, _ = pages.locate(leaf, pages.record_count(leaf) - 1)
    with (folder / "data.mdb").open("r+b") as file:
        file.seek(begin)
        file.write(b"!")
    with pytest.raises(DatabaseChangedError, match="copied over it"):
        snapshot.check()
    snapshot.close()


def test_a_writer_that_does_not_heed_the_lock_is_noticed(folder: Path, tmp_path: Path) -> None:
    """It knows the file by another name, and so registers elsewhere."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.mdb").hardlink_to(folder / "data.mdb")
    snapshot = Snapshot(folder, lock=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefetch._source.lmdb.snapshot._COMMIT_S", 0.05)
        write_elsewhere(folder / "data.mdb", 3)
        snapshot.check()
        write_elsewhere(tmp_path / "other" / "data.mdb", 1)
        with pytest.raises(DatabaseChangedError, match=r"does not heed the lock file") as caught:
            snapshot.check()
    assert str(folder / "lock.mdb") in str(caught.value)
    assert caught.value.lock_path == str(folder / "lock.mdb")
    assert caught.value.last_txn == snapshot.meta.txn_id + 4
    snapshot.close()


def test_a_commit_that_shows_in_the_lock_file_later_is_waited_for(folder: Path) -> None:
    snapshot = Snapshot(folder, lock=True)
    write_elsewhere(folder / "data.mdb", 3)
    numbers = iter([snapshot.meta.txn_id + 2, 0, snapshot.meta.txn_id + 3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(snapshot, "_last_heeding", lambda: next(numbers))
        snapshot.check()
    assert list(numbers) == []
    snapshot.close()


def test_a_locked_snapshot_outlasts_a_writer_that_commits_without_a_pause(folder: Path) -> None:
    snapshot = Snapshot(folder, lock=True)
    value = value_of(snapshot, 49)
    with subprocess.Popen([sys.executable, "-c", _COMMIT, str(folder), "400"]) as writer:
        while writer.poll() is None:
            snapshot.check()
    assert writer.returncode == 0
    snapshot.check()
    assert value_of(snapshot, 49) == value
    snapshot.close()


def test_a_locked_snapshot_outlasts_a_writer_that_lets_the_file_grow(folder: Path) -> None:
    snapshot = Snapshot(folder, lock=True)
    value = value_of(snapshot, 49)
    for size in range(3):
        subprocess.run(
            [sys.executable, "-c", _GROW, str(folder), str(2 ** (20 + size))], check=True
        )
        snapshot.check()
    assert value_of(snapshot, 49) == value
    snapshot.close()


_GROW = """
import lmdb, sys
with lmdb.open(sys.argv[1], map_size=2**28) as environment:
    with environment.begin(write=True) as transaction:
        transaction.put(b"large", bytes(int(sys.argv[2])))
"""


def test_a_full_lock_file_is_told_with_what_helps(folder: Path) -> None:
    with lmdb.open(str(folder), max_readers=1) as environment:
        first = environment.begin()
        with pytest.raises(DatabaseInUseError, match=r"place for a reader.*lock: false") as caught:
            Snapshot(environment)
        assert "max_readers" not in str(caught.value)
        first.abort()


_LEAVE = """
import lmdb, os, sys
environment = lmdb.open(sys.argv[1], readonly=True, max_readers=1)
transaction = environment.begin()
os._exit(0)
"""


def test_the_place_of_a_reader_that_was_killed_is_taken(folder: Path) -> None:
    with lmdb.open(str(folder), max_readers=1) as environment:
        subprocess.run([sys.executable, "-c", _LEAVE, str(folder)], check=True)
        snapshot = Snapshot(environment)
        snapshot.check()
        snapshot.close()


def test_commits_on_the_wrong_meta_pages_are_read_without_a_lock_alone(folder: Path) -> None:
    """LMDB goes by the number without a lock, and by its parity with one."""
    with lmdb.open(str(folder), map_size=2**26) as environment:
        commit(environment)
    with (folder / "data.mdb").open("r+b") as file:
        content = bytearray(file.read(2 * 4096))
        content[16:152], content[4096 + 16 : 4096 + 152] = (
            content[4096 + 16 : 4096 + 152],
            content[16:152],
        )
        file.seek(0)
        file.write(content)
    snapshot = Snapshot(folder)
    assert snapshot.meta.entries == 51
    snapshot.close()
    with pytest.raises(CorruptDatabaseError, match=r"meta page 1, .*set lock: false"):
        Snapshot(folder, lock=True)


def test_a_commit_under_way_is_waited_for(old: Path) -> None:
    """It modifies the file some time before its number shows."""
    snapshot = Snapshot(old)
    looks: list[float] = []

    def finish(seconds: float) -> None:
        looks.append(seconds)
        if len(looks) == 3:
            write_elsewhere(old, 1)

    os.utime(old)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefetch._source.lmdb.snapshot.sleep", finish)
        snapshot.check()
    assert len(looks) == 3
    snapshot.check()
    snapshot.close()


def test_a_snapshot_that_is_closed_waits_no_longer_for_a_commit(old: Path) -> None:
    snapshot = Snapshot(old)
    os.utime(old)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefetch._source.lmdb.snapshot.sleep", lambda _: snapshot.close())
        with pytest.raises(FeedClosedError):
            snapshot.check()
    snapshot.close()


def test_growth_past_the_map_leaves_the_snapshot_readable(folder: Path) -> None:
    """LMDB maps no more than the file was, so a later snapshot cannot begin beside this one."""
    program = """
import lmdb, sys
with lmdb.open(sys.argv[1], map_size=2**26) as environment:
    with environment.begin(write=True) as transaction:
        transaction.put(b"large", bytes(2**22))
"""
    snapshot = Snapshot(folder)
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True)
    assert snapshot.meta.entries == 50
    assert value_of(snapshot, 49)
    with pytest.raises(DatabaseInUseError, match="grow past what this process has mapped"):
        Snapshot(folder)
    snapshot.close()
    grown = Snapshot(folder)
    assert grown.meta.entries == 51
    grown.close()


def test_truncation_is_noticed_before_it_is_touched(folder: Path) -> None:
    snapshot = Snapshot(folder)
    size = snapshot.meta.size_bytes
    os.truncate(folder / "data.mdb", size - 4096)
    with pytest.raises(DatabaseTruncatedError) as caught:
        snapshot.check()
    assert (caught.value.expected_bytes, caught.value.actual_bytes) == (size, size - 4096)
    os.truncate(folder / "data.mdb", size)
    snapshot.close()


def test_an_empty_database_is_refused(tmp_path: Path) -> None:
    write_database(tmp_path / "db", [])
    with pytest.raises(EmptyDatabaseError, match="holds no records"):
        Snapshot(tmp_path / "db")


def test_an_emptied_database_that_ends_before_its_last_page_is_empty(tmp_path: Path) -> None:
    with pytest.raises(EmptyDatabaseError, match="holds no records"):
        Snapshot(write_short(tmp_path / "db", num_kept=0))


@pytest.mark.parametrize("lock", [False, True])
def test_a_database_that_ends_before_its_last_page_is_read_whole(
    tmp_path: Path, *, lock: bool
) -> None:
    folder = write_short(tmp_path / "db", num_kept=3)
    expected = list(records_of(folder).values())
    snapshot = Snapshot(folder, lock=lock)
    values = [value_of(snapshot, place) for place in range(3)]
    assert values == expected
    snapshot.check()
    os.truncate(folder / "data.mdb", snapshot.meta.size_bytes - 1)
    with pytest.raises(DatabaseTruncatedError):
        snapshot.check()
    snapshot.close()


def test_a_database_of_named_databases_is_refused(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path / "db"), max_dbs=2) as environment:
        named = environment.open_db(b"images")
        with environment.begin(write=True) as transaction:
            transaction.put(b"key", b"value", db=named)
    with pytest.raises(UnsupportedSourceError, match="holds named databases"):
        Snapshot(tmp_path / "db")


def test_a_database_of_several_values_a_key_is_refused(folder: Path) -> None:
    with (folder / "data.mdb").open("r+b") as file:
        for meta in (0, os.sysconf("SC_PAGE_SIZE")):
            file.seek(meta + 92)  # the flags of the tree of records
            file.write(b"\x04\x00")
    with pytest.raises(UnsupportedSourceError, match="several values a key"):
        Snapshot(folder)


def test_a_refusal_leaves_nothing_open(tmp_path: Path) -> None:
    write_database(tmp_path / "db", [])
    with pytest.raises(EmptyDatabaseError):
        Snapshot(tmp_path / "db")
    lmdb.open(str(tmp_path / "db")).close()


def test_a_closed_environment_of_the_program_is_refused(folder: Path) -> None:
    environment = lmdb.open(str(folder), readonly=True, lock=False)
    environment.close()
    with pytest.raises(SourceError, match="cannot be used"):
        Snapshot(environment)


def test_an_environment_that_its_owner_closes_is_an_error_not_a_crash(folder: Path) -> None:
    environment = lmdb.open(str(folder), readonly=True, lock=False)
    snapshot = Snapshot(environment)
    environment.close()
    with pytest.raises(SourceError, match="LMDB cannot read it"):
        snapshot.check()
    snapshot.close()


def test_a_closed_snapshot_cannot_be_used(folder: Path) -> None:
    snapshot = Snapshot(folder)
    snapshot.close()
    snapshot.close()
    with pytest.raises(FeedClosedError), snapshot.using():
        pytest.fail("was let in")


def test_closing_waits_for_every_block_that_uses_the_snapshot(folder: Path) -> None:
    snapshot = Snapshot(folder)
    with snapshot.using(), snapshot.using():
        closer = threading.Thread(target=snapshot.close)
        closer.start()
        closer.join(timeout=0.05)
        assert closer.is_alive()
        assert value_of(snapshot, 7)
        with pytest.raises(FeedClosedError), snapshot.using():
            pytest.fail("was let in")
    closer.join()


def test_an_error_in_a_block_that_uses_the_snapshot_lets_it_close(folder: Path) -> None:
    snapshot = Snapshot(folder)
    with pytest.raises(KeyboardInterrupt), snapshot.using():
        raise KeyboardInterrupt
    snapshot.close()


def test_a_block_that_never_ends_on_a_thread_does_not_keep_that_thread_from_closing(
    folder: Path,
) -> None:
    """Ctrl-C between the taking of the lock and the block leaves it as here."""
    snapshot = Snapshot(folder)
    block = snapshot.using()
    block.__enter__()
    snapshot.close()
    block.__exit__(None, None, None)


@pytest.fixture
def unwritable() -> Iterator[Path]:
    """Give a database in a folder where nobody may write; pytest's own folders are private."""
    parent = Path(tempfile.mkdtemp(prefix="ringfeed-"))
    folder = write_database(parent / "db", fingerprinted_images(5))
    parent.chmod(0o755)
    folder.chmod(0o555)
    (folder / "data.mdb").chmod(0o444)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(parent)


_READ_AS_NOBODY = """
import os, sys
import prefetch, prefetch.testing
with prefetch.testing.example_database() as path:  # whatever is imported at its first use
    prefetch.open({"source": path}).close()
if os.geteuid() == 0:  # whom no permission stops
    os.seteuid(65534)
try:
    feed = prefetch.open({"source": sys.argv[1]}, lock=sys.argv[2] == "True")
except prefetch.SourceError as error:
    sys.exit(str(error))
with feed:
    print(sum(len(batch) for batch in feed))
"""


@pytest.mark.slow
@pytest.mark.parametrize("lock", [False, True])
def test_a_folder_that_cannot_be_written_to_is_read_and_refuses_a_lock(
    unwritable: Path, *, lock: bool
) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", _READ_AS_NOBODY, str(unwritable), str(lock)]
    run = subprocess.run(command, check=False, cwd=root, capture_output=True, text=True, timeout=60)
    if lock:
        assert run.returncode == 1
        assert run.stderr == (
            f"{unwritable}: lock: true writes a lock file beside the data, and {unwritable} "
            "cannot be written to; make it writable, or set lock: false and leave the database to "
            "readers meanwhile\n"
        )
    else:
        assert (run.returncode, run.stdout, run.stderr) == (0, "5\n", "")
    assert [path.name for path in unwritable.iterdir()] == ["data.mdb"]


def test_a_lock_that_lmdb_goes_without_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a read-only file system it says nothing of having made no lock file."""

    monkeypatch.setattr(
        "prefetch._source.lmdb.snapshot.hold_file",
        lambda file, foreign, **_: hold_file(file, foreign),
    )
    with pytest.raises(SourceError, match="cannot be written to"):
        Snapshot(folder, lock=True)
    assert not (folder / "lock.mdb").exists()
