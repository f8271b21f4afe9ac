"""One environment a file in the process: shared, counted, and never opened beside another's."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any

import lmdb
import pytest
from databases import names_in

import prefetch
from prefetch._errors.classes import DatabaseInUseError, SourceError
from prefetch._source.lmdb.environment import SharedEnvironment, hold_file, release, source_error
from prefetch._source.lmdb.file import DatabaseFile
from prefetch.testing import fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_database(tmp_path / "db", fingerprinted_images(5))


@pytest.fixture
def holds() -> Iterator[list[SharedEnvironment]]:
    """Give a list; what is on it at the end is released."""
    held: list[SharedEnvironment] = []
    yield held
    for shared in held:
        release(shared)


def hold(
    path: str | os.PathLike[str], foreign: lmdb.Environment | None = None, *, lock: bool = False
) -> SharedEnvironment:
    file = DatabaseFile(path)
    try:
        return hold_file(file, foreign, lock=lock)
    finally:
        file.close()


def test_all_names_of_a_file_share_one_environment(
    folder: Path, tmp_path: Path, holds: list[SharedEnvironment]
) -> None:
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "hard.mdb").hardlink_to(folder / "data.mdb")
    names = (folder, folder / "data.mdb", tmp_path / "link", tmp_path / "hard.mdb")
    holds += [hold(name) for name in names]
    assert len(set(map(id, holds))) == 1
    assert holds[0].num_holds == 4


def test_the_environment_closes_with_its_last_holder(folder: Path) -> None:
    shared = hold(folder)
    assert hold(folder) is shared
    release(shared)
    assert shared.is_open
    release(shared)
    assert not shared.is_open


def test_a_closed_environment_is_opened_anew(folder: Path) -> None:
    first = hold(folder)
    release(first)
    second = hold(folder)
    assert second is not first
    assert second.is_open
    release(second)


def test_a_recreated_database_is_another_one(
    folder: Path, tmp_path: Path, holds: list[SharedEnvironment]
) -> None:
    holds.append(hold(folder))
    folder.rename(tmp_path / "old")
    write_database(folder, fingerprinted_images(3))
    holds.append(hold(folder))
    assert [shared.environment.stat()["entries"] for shared in holds] == [5, 3]


def test_reading_creates_nothing(folder: Path, holds: list[SharedEnvironment]) -> None:
    holds.append(hold(folder))
    assert [path.name for path in folder.iterdir()] == ["data.mdb"]


def test_a_lock_registers_in_the_folders_own_lock_file(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    for name in (folder, folder / "data.mdb", tmp_path / "link", tmp_path / "link" / "data.mdb"):
        shared = hold(name, lock=True)
        assert names_in(folder) == ["data.mdb", "lock.mdb"]
        assert shared.lock_path == str(folder / "lock.mdb")
        (folder / "lock.mdb").unlink()
        release(shared)
    assert names_in(tmp_path) == ["db", "link"]


def test_a_lock_through_a_link_is_that_of_a_writer_by_the_same_name(
    folder: Path, tmp_path: Path
) -> None:
    """LMDB derives it from the path as it is named, not from where links lead."""
    (tmp_path / "view").mkdir()
    (tmp_path / "view" / "data.mdb").symlink_to("../link.mdb")
    (tmp_path / "link.mdb").symlink_to(folder / "data.mdb")
    for name, lock in ((tmp_path / "view", "view/lock.mdb"), (tmp_path / "link.mdb",) * 2):
        path = tmp_path / (lock if isinstance(lock, str) else "link.mdb-lock")
        shared = hold(name, lock=True)
        assert shared.lock_path == str(path)
        assert path.exists()
        release(shared)
        path.unlink()
    assert names_in(folder) == ["data.mdb"]


@pytest.mark.parametrize(
    ("named", "left_over"),
    [
        pytest.param("db", ["db/lock.mdb", "db/data.mdb-lock"], id="folder"),
        pytest.param("db/data.mdb", ["db/lock.mdb", "db/data.mdb-lock"], id="file"),
        pytest.param("view", ["db/lock.mdb"], id="link-in-a-folder"),
        pytest.param("view", ["db/data.mdb-lock"], id="link-in-a-folder-to-a-file"),
        pytest.param("view", ["view/lock.mdb", "link.mdb-lock"], id="link-to-a-link"),
        pytest.param("link.mdb", ["db/lock.mdb"], id="link"),
    ],
)
def test_a_lock_is_refused_where_writers_may_use_another_lock_file(
    folder: Path, tmp_path: Path, named: str, left_over: list[str]
) -> None:
    (tmp_path / "view").mkdir()
    (tmp_path / "view" / "data.mdb").symlink_to("../link.mdb")
    (tmp_path / "link.mdb").symlink_to(folder / "data.mdb")
    for name in left_over:
        (tmp_path / name).touch()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SourceError, match="cannot tell the lock file of its writers") as caught:
        hold(tmp_path / named, lock=True)
    assert str(tmp_path / left_over[-1]) in str(caught.value)
    assert sorted(tmp_path.rglob("*")) == before
    hold_and_release(tmp_path / named)


def hold_and_release(path: Path, *, lock: bool = False) -> None:
    release(hold(path, lock=lock))


def test_the_lock_file_that_is_there_is_used(folder: Path) -> None:
    """Its writer opened data.mdb as a single file."""
    with lmdb.open(str(folder / "data.mdb"), subdir=False):
        pass
    for name in (folder, folder / "data.mdb"):
        hold_and_release(name, lock=True)
    assert names_in(folder) == ["data.mdb", "data.mdb-lock"]


def test_one_process_registers_in_one_lock_file(
    folder: Path, tmp_path: Path, holds: list[SharedEnvironment]
) -> None:
    (tmp_path / "link.mdb").symlink_to(folder / "data.mdb")
    holds.append(hold(tmp_path / "link.mdb", lock=True))
    with pytest.raises(DatabaseInUseError, match="by this name writers use"):
        hold(folder, lock=True)
    holds.append(hold(folder))


@pytest.mark.parametrize("target", ["victim.txt", "nothing"])
def test_a_lock_file_that_is_a_link_is_not_followed(
    folder: Path, tmp_path: Path, target: str
) -> None:
    (tmp_path / "victim.txt").write_text("precious\n" * 3)
    (folder / "lock.mdb").symlink_to(tmp_path / target)
    with pytest.raises(SourceError, match="which is a link or no regular file"):
        hold(folder, lock=True)
    assert (tmp_path / "victim.txt").read_text() == "precious\n" * 3
    assert names_in(tmp_path) == ["db", "victim.txt"]
    hold_and_release(folder)


def test_a_lock_file_that_is_a_pipe_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "lock.mdb")
    with pytest.raises(SourceError, match="which is a link or no regular file"):
        hold(folder, lock=True)


def test_a_lock_is_taken_where_there_is_no_address_space_beyond_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lmdb.open

    def limited(path: bytes, **options: Any) -> lmdb.Environment:
        if options["map_size"] > 2**30:
            raise lmdb.MemoryError("Cannot allocate memory")
        return real(path, **options)

    monkeypatch.setattr("prefetch._source.lmdb.environment.lmdb.open", limited)
    hold_and_release(folder, lock=True)


def test_a_lock_of_a_single_file_lies_beside_it(folder: Path, tmp_path: Path) -> None:
    single = (folder / "data.mdb").rename(tmp_path / "single.mdb")
    shared = hold(single, lock=True)
    assert (tmp_path / "single.mdb-lock").exists()
    release(shared)


@pytest.mark.parametrize("lock", [False, True])
def test_a_stale_lock_file_of_another_machine_is_harmless(folder: Path, *, lock: bool) -> None:
    stale = bytes(range(256)) * 32
    (folder / "lock.mdb").write_bytes(stale)
    shared = hold(folder, lock=lock)
    assert shared.environment.stat()["entries"] == 5
    if not lock:
        assert (folder / "lock.mdb").read_bytes() == stale
    release(shared)


def test_a_lock_is_not_to_be_had_of_what_is_open_without(
    folder: Path, holds: list[SharedEnvironment]
) -> None:
    holds.append(hold(folder))
    with pytest.raises(DatabaseInUseError, match="open without a lock in this process"):
        hold(folder, lock=True)


def test_a_lock_is_not_to_be_had_of_an_environment_without(folder: Path) -> None:
    with lmdb.open(str(folder), readonly=True, lock=False) as environment:
        with pytest.raises(DatabaseInUseError, match="open without a lock in this process"):
            hold(folder, environment, lock=True)
        release(hold(folder, environment))


def test_no_lock_is_satisfied_by_one(folder: Path, holds: list[SharedEnvironment]) -> None:
    holds += [hold(folder, lock=True), hold(folder)]
    assert holds[0] is holds[1]


def test_what_the_program_has_open_itself_is_refused_with_the_cure(folder: Path) -> None:
    with (
        lmdb.open(str(folder), readonly=True, lock=False),
        pytest.raises(DatabaseInUseError, match=r"pass that lmdb\.Environment as the source"),
    ):
        hold(folder)


def test_the_programs_own_environment_is_used_and_left_open(folder: Path) -> None:
    with lmdb.open(str(folder), readonly=True, lock=False) as environment:
        shared = hold(folder, environment)
        assert shared.environment is environment
        assert hold(folder) is shared
        release(shared)
        release(shared)
        assert environment.stat()["entries"] == 5


def test_an_environment_that_is_not_the_open_one_is_refused(
    folder: Path, tmp_path: Path, holds: list[SharedEnvironment]
) -> None:
    holds.append(hold(folder))
    write_database(tmp_path / "other", fingerprinted_images(1))
    with (
        lmdb.open(str(tmp_path / "other"), readonly=True, lock=False) as other,
        pytest.raises(DatabaseInUseError, match="another environment than the one passed"),
    ):
        hold(folder, other)


def test_an_environment_closed_by_its_owner_is_replaced(
    folder: Path, holds: list[SharedEnvironment]
) -> None:
    environment = lmdb.open(str(folder), readonly=True, lock=False)
    stale = hold(folder, environment)
    environment.close()
    holds.append(hold(folder))
    assert holds[0].is_open
    release(stale)
    assert holds[0].is_open


def test_a_release_waits_for_no_lock(folder: Path) -> None:
    """A finalizer may run on a thread that holds any lock, this module's too."""
    shared = hold(folder)
    with pytest.MonkeyPatch.context() as patched:
        lock = threading.Lock()
        patched.setattr("prefetch._source.lmdb.environment._lock", lock)
        with lock:
            release(shared)
            assert shared.is_open
        another = hold(folder)  # takes the lock, and does what was left
        assert another is not shared
        release(another)
    assert not any(environment.is_open for environment in (shared, another))


def test_two_threads_that_open_one_file_get_one_environment(folder: Path) -> None:
    barrier = threading.Barrier(4)
    found: list[SharedEnvironment] = []

    def open_and_release() -> None:
        for _ in range(20):
            barrier.wait(timeout=60)
            shared = hold(folder)
            found.append(shared)
            barrier.wait(timeout=60)
            assert shared.is_open
            release(shared)

    threads = [threading.Thread(target=open_and_release) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert not any(shared.is_open for shared in found)


def test_a_map_of_a_terabyte_needs_no_more_address_space_than_the_file(tmp_path: Path) -> None:
    program = """
import resource, sys
from pathlib import Path
import numpy as np
from prefetch._source.source import RecordSource
folder = Path(sys.argv[1])
pages = int(Path("/proc/self/statm").read_text().split()[0])
room = (folder / "data.mdb").stat().st_size + 24 * 2**20
limit = pages * resource.getpagesize() + room
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
with RecordSource.open(folder) as source:
    for records in (source.walker().take(0, 64), source.reader().fetch(np.arange(64))):
        assert sum(len(value) for value in records.values) == 64 * 2**20
        records.release()
"""
    with (
        lmdb.open(str(tmp_path / "db"), map_size=2**40, sync=False) as environment,
        environment.begin(write=True) as transaction,
    ):
        for number in range(64):
            transaction.put(b"%08d" % number, bytes(2**20))
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "db")], check=True)


def test_lmdbs_errors_become_the_packages_own() -> None:
    assert isinstance(source_error("/db", lmdb.MapResizedError("x")), DatabaseInUseError)
    assert isinstance(source_error("/db", lmdb.CorruptedError("x")), ValueError)
    other = source_error("/db", lmdb.Error("mdb_get"))
    assert type(other) is SourceError
    assert str(other) == "/db: LMDB cannot read it: mdb_get"


def test_a_lock_file_for_which_the_disk_has_no_room_is_refused_and_not_left_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LMDB would map it, and the process would die by SIGBUS."""

    source = write_database(tmp_path / "full", fingerprinted_images(4))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("prefetch._source.lmdb.lock_file.os.posix_fallocate", full)
    with pytest.raises(prefetch.SourceError, match=r"lock\.mdb, for which there is no room: No sp"):
        prefetch.open({"source": source, "lock": True})
    assert not (source / "lock.mdb").exists()
    monkeypatch.undo()
    with prefetch.open({"source": source, "lock": True}) as feed:
        assert len(next(iter(feed))) > 0
    assert (source / "lock.mdb").stat().st_blocks > 0
