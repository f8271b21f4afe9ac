"""A database that is bad, or becomes bad while it is read, is an error of the feed, never a crash.

What kind of file is refused, and how, is in tests/prefetch/test_database_file; here is what a loop
sees, and that no batch ever holds another record's bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lmdb
import numpy as np
import pytest
from databases import images_fixture, write_short

import prefetch
from prefetch._pipeline.part_filler import Filler
from prefetch._transform.host import RecordTransformer
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NUM_RECORDS = 60
SHAPE = (3, 16, 16)


source = images_fixture(NUM_RECORDS, SHAPE)  # in some sixteen pages


def _options(source: Path, **more: Any) -> dict[str, Any]:
    return {"source": source, "batch_size": 4, "prefetch": 1, "threads": 1, **more}


def _check(batch: prefetch.Batch) -> None:
    """Compare a batch with what its records were when the feed was opened."""
    assert (batch.data.numpy().T == batch.indices).all()
    assert batch.label.numpy().tolist() == batch.indices.tolist()
    assert batch.keys == [b"%08d" % index for index in batch.indices]


def _loop(feed: prefetch.Feed) -> Iterator[int]:
    """Yield the number of each batch, once it is known to be right."""
    for batch in feed:
        _check(batch)
        yield batch.number
        del batch


def _await_readers(feed: prefetch.Feed) -> None:
    """Return once the batch ahead is ready, so that nobody reads."""
    while feed.stats().slots_filling or not feed.stats().slots_ready:
        pass


# Truncation -------------------------------------------------------------------------------------


@pytest.mark.parametrize("eighths", range(9))
def test_a_database_cut_anywhere_is_refused_before_a_page_of_it_is_touched(
    source: Path, eighths: int
) -> None:
    data = source / "data.mdb"
    whole = data.stat().st_size
    os.truncate(data, whole * eighths // 8)
    if eighths == 8:
        with prefetch.open(_options(source)) as feed:
            assert list(range(15)) == list(_loop(feed))
        return
    with pytest.raises(prefetch.SourceError, match=str(source)) as caught:
        prefetch.open(_options(source))
    if eighths:
        assert isinstance(caught.value, prefetch.DatabaseTruncatedError)
        assert (whole, whole * eighths // 8) == (
            caught.value.expected_bytes,
            caught.value.actual_bytes,
        )


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("cut_bytes", [1, 4096, 3 * 4096])
def test_a_database_cut_between_two_parts_is_an_error_of_the_next(
    source: Path, threads: int, cut_bytes: int, *, shuffle: bool
) -> None:
    """Of the batch that is read next; its bytes may be gone, so it is not served."""
    data = source / "data.mdb"
    whole = data.stat().st_size
    with prefetch.open(_options(source, threads=threads, shuffle=shuffle)) as feed:
        loop = _loop(feed)
        assert next(loop) == 0
        _await_readers(feed)  # nobody reads while the file is cut
        os.truncate(data, whole - cut_bytes)
        with pytest.raises(prefetch.DatabaseTruncatedError) as caught:
            list(loop)
        assert (whole, whole - cut_bytes) == (
            caught.value.expected_bytes,
            caught.value.actual_bytes,
        )
        assert feed.closed
        os.truncate(data, whole)


# Writers ----------------------------------------------------------------------------------------


def _rewrite(environment: lmdb.Environment, value: int) -> None:
    """Give every record the pixels and the label of another one, in one commit."""
    with environment.begin(write=True) as transaction:
        for number in range(NUM_RECORDS):
            other = encode_image(np.full(SHAPE, value, np.uint8), label=value)
            transaction.put(b"%08d" % number, other)


@pytest.mark.parametrize("threads", [1, 8])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_writer_beside_a_feed_without_a_lock_is_an_error_and_its_bytes_reach_nobody(
    source: Path, threads: int, *, shuffle: bool
) -> None:
    options = _options(source, shuffle=shuffle, threads=threads, on_bad_record="skip")
    with lmdb.open(str(source), lock=False, map_size=2**24) as environment:
        for num_commits in range(1, 6):
            _restore(environment)
            with prefetch.open(options, source=environment) as feed:
                loop = _loop(feed)
                next(loop)
                _await_readers(feed)
                for value in range(num_commits):
                    _rewrite(environment, 60 + value)
                if num_commits == 1:  # no page is used again yet
                    list(loop)
                    continue
                with pytest.raises(prefetch.DatabaseChangedError) as caught:
                    list(loop)
                assert caught.value.last_txn == caught.value.snapshot_txn + num_commits
                assert feed.closed


def _restore(environment: lmdb.Environment) -> None:
    with environment.begin(write=True) as transaction:
        for key, image in fingerprinted_images(NUM_RECORDS, SHAPE):
            transaction.put(key, image)


def test_a_writer_that_commits_while_a_part_is_read_spoils_that_part(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commits fall between the reading of the records and the look at the last commit."""
    with lmdb.open(str(source), lock=False, map_size=2**24) as environment:
        feed = prefetch.open(_options(source), source=environment)
        real: Callable[..., Any] = Filler._write
        reads = 0

        def write(*arguments: Any) -> Any:
            nonlocal reads
            reads += 1
            if reads == 3:
                for value in range(4):
                    _rewrite(environment, 60 + value)
            return real(*arguments)

        monkeypatch.setattr(Filler, "_write", write)
        loop = _loop(feed)
        assert [0, 1] == [next(loop), next(loop)]
        with pytest.raises(prefetch.DatabaseChangedError):
            next(loop)
        feed.close()


@pytest.mark.parametrize("num_taken", [0, 1], ids=["before-the-first-batch", "after-it"])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("shuffle", [False, True], ids=["walked", "indexed"])
@pytest.mark.parametrize("owner", ["feed", "program", "one-of-two"])
def test_a_copy_over_the_file_is_an_error_and_its_bytes_reach_nobody(
    source: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    num_taken: int,
    threads: int,
    owner: str,
    *,
    shuffle: bool,
) -> None:
    """It has the same size, the same keys and the same last commit."""
    monkeypatch.setattr("prefetch._source.lmdb.snapshot._COMMIT_S", 0.05)
    keys = [key for key, _ in fingerprinted_images(NUM_RECORDS, SHAPE)]
    values = [value for _, value in fingerprinted_images(2 * NUM_RECORDS, SHAPE)][NUM_RECORDS:]
    other = write_database(tmp_path / "other", list(zip(keys, values, strict=True)))
    data = source / "data.mdb"
    assert data.stat().st_size == (other / "data.mdb").stat().st_size
    os.utime(data, ns=(0, 0))  # as of a database that was written a while ago
    options = _options(source, shuffle=shuffle, threads=threads, epochs=2)
    environment = lmdb.open(str(source), readonly=True, lock=False) if owner == "program" else None
    if environment is not None:
        options["source"] = environment
    elif owner == "one-of-two":
        beside = write_database(tmp_path / "beside", fingerprinted_images(1, SHAPE))
        options["source"] = [source, beside]
    with prefetch.open(options) as feed:
        loop = iter(feed)
        for _ in range(num_taken):
            _check_values(next(loop))
        with data.open("r+b") as file:
            file.write((other / "data.mdb").read_bytes())
        with pytest.raises(prefetch.DatabaseChangedError, match="copied over it"):  # noqa: PT012
            while True:
                _check_values(next(loop))
        assert feed.closed
    if environment is not None:
        environment.close()


def _check_values(batch: prefetch.Batch) -> None:
    """As `_check`, where a second database begins with its record 0 behind the first one's."""
    assert (batch.data.numpy().T == batch.indices % NUM_RECORDS).all()


@pytest.mark.parametrize("on_bad_record", ["raise", "skip", "quarantine"])
def test_a_record_that_a_writer_may_have_made_bad_is_no_bad_record(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_bad_record: str
) -> None:
    """Its bytes prove nothing: it is neither blamed nor put aside."""
    aside = tmp_path / "aside" if on_bad_record == "quarantine" else None
    options = _options(source, on_bad_record=on_bad_record, quarantine=aside)
    with lmdb.open(str(source), lock=False, map_size=2**24) as environment:
        with environment.begin(write=True) as transaction:
            transaction.put(b"%08d" % 0, b"\xff" * 800)
        feed = prefetch.open(options, source=environment)
        # With raise the first record gives the shape, and is found bad by that.
        name = "sample_shape" if on_bad_record == "raise" else "fill"
        real: Callable[..., Any] = getattr(RecordTransformer, name)

        def look(*arguments: Any) -> Any:
            found = real(*arguments)
            for value in range(4):
                _rewrite(environment, 60 + value)
            return found

        monkeypatch.setattr(RecordTransformer, name, look)
        with pytest.raises(prefetch.DatabaseChangedError):
            next(iter(feed))
        feed.close()
    assert aside is None or not aside.exists()


def test_what_a_writer_made_of_a_substitute_reaches_nobody(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read after the rest of its part, and after the look at the last commit for that."""
    with lmdb.open(str(source), lock=False, map_size=2**24) as environment:
        with environment.begin(write=True) as transaction:
            transaction.put(b"%08d" % 5, b"\xff" * 800)
        feed = prefetch.open(_options(source, on_bad_record="skip"), source=environment)
        real: Callable[..., Any] = Filler._write

        def write(filler: Filler, slot: Any, rows: slice, *arguments: Any, **more: Any) -> Any:
            if rows.stop - rows.start == 1:  # a substitute's
                for value in range(4):
                    _rewrite(environment, 60 + value)
            return real(filler, slot, rows, *arguments, **more)

        monkeypatch.setattr(Filler, "_write", write)
        loop = _loop(feed)
        assert next(loop) == 0
        with pytest.raises(prefetch.DatabaseChangedError):
            next(loop)
        feed.close()


_REWRITE = """
    import lmdb, os, sys
    with lmdb.open(sys.argv[1], subdir=os.path.isdir(sys.argv[1]), map_size=2**24) as environment:
        for number in range(6):
            with environment.begin(write=True) as transaction:
                for key in list(transaction.cursor().iternext(values=False)):
                    transaction.put(key, bytes([number]) * 800)
"""


def _view_of(source: Path, name: str) -> Path:
    """Lay a link to a database's file out as caches do, and return its name."""
    view = source.parent / name
    (view if name == "view" else view.parent).mkdir(exist_ok=True)
    (view / "data.mdb" if name == "view" else view).symlink_to(source / "data.mdb")
    return view


@pytest.mark.parametrize("name", ["view", "link.mdb"])
def test_with_a_lock_a_writer_by_the_same_link_keeps_what_is_read(source: Path, name: str) -> None:
    view = _view_of(source, name)
    with prefetch.open(_options(view, lock=True)) as feed:
        loop = _loop(feed)
        next(loop)
        _run(_REWRITE, view)
        assert list(range(1, 15)) == list(loop)


@pytest.mark.parametrize("name", ["view", "link.mdb"])
def test_with_a_lock_a_writer_by_another_name_is_an_error_and_its_bytes_reach_nobody(
    source: Path, name: str
) -> None:
    """It uses another lock file, which was not there when the feed was opened."""
    view = _view_of(source, name)
    with prefetch.open(_options(view, lock=True)) as feed:
        loop = _loop(feed)
        next(loop)
        _await_readers(feed)
        _run(_REWRITE, source)
        with pytest.raises(prefetch.DatabaseChangedError, match="does not heed the lock file"):
            list(loop)
    with pytest.raises(prefetch.SourceError, match="cannot tell the lock file of its writers"):
        prefetch.open(_options(view, lock=True))


@pytest.mark.parametrize("threads", [1, 8])
def test_with_a_lock_the_feed_goes_on_with_what_it_opened(source: Path, threads: int) -> None:
    with prefetch.open(_options(source, lock=True, threads=threads, shuffle=True)) as feed:
        loop = _loop(feed)
        next(loop)
        _run(_REWRITE, source)
        assert list(range(1, 15)) == list(loop)
    with prefetch.open(_options(source)) as feed, pytest.raises(prefetch.RecordError):
        next(iter(feed))


def test_a_database_that_grows_while_it_is_read_is_read_as_it_was(source: Path) -> None:
    """One commit, and past what is mapped; it is seen when it is opened again."""
    program = """
        import lmdb, sys
        with lmdb.open(sys.argv[1], map_size=2**26) as environment:
            with environment.begin(write=True) as transaction:
                transaction.put(b"99999999", bytes(10))
                transaction.put(b"large", bytes(2**22))
                transaction.delete(b"large")
    """
    with prefetch.open(_options(source)) as feed:
        loop = _loop(feed)
        next(loop)
        _run(program, source)
        assert list(range(1, 15)) == list(loop)
        assert feed.num_records == NUM_RECORDS
    with prefetch.open(_options(source)) as feed:
        assert feed.num_records == NUM_RECORDS + 1


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("lock", [False, True])
def test_a_database_that_ends_before_its_last_page_is_served_whole(
    tmp_path: Path, *, shuffle: bool, lock: bool
) -> None:
    """Pages allocated and freed within one transaction are never written; LMDB reads it, too."""
    folder = write_short(tmp_path / "db", num_kept=5)
    with prefetch.open(_options(folder, shuffle=shuffle, lock=lock, epochs=2)) as feed:
        for batch in (batch for _ in range(2) for batch in feed):
            assert (batch.data.numpy().T == batch.label.numpy()).all()
            assert batch.label.numpy().tolist() == [16 + index for index in batch.indices]
    with pytest.raises(prefetch.EmptyDatabaseError):
        prefetch.open(_options(write_short(tmp_path / "emptied", num_kept=0)))


# The file itself --------------------------------------------------------------------------------


def _remove(source: Path) -> None:
    shutil.rmtree(source)


def _replace(source: Path) -> None:
    """As one should: the new one under another name, then renamed."""
    new = write_database(source.parent / "new", fingerprinted_images(5, (1, 4, 4)))
    (new / "data.mdb").rename(source / "data.mdb")


@pytest.mark.parametrize("change", [_remove, _replace])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_database_removed_or_replaced_in_use_is_read_to_its_end(
    source: Path, change: Callable[[Path], None], *, shuffle: bool
) -> None:
    with prefetch.open(_options(source, shuffle=shuffle)) as feed:
        loop = _loop(feed)
        next(loop)
        change(source)
        assert list(range(1, 15)) == list(loop)
        assert list(range(15)) == list(_loop(feed))
    if change is _remove:
        with pytest.raises(prefetch.DatabaseNotFoundError):
            prefetch.open(_options(source))
    else:
        with prefetch.open(_options(source)) as feed:
            assert feed.num_records == 5


def _header(magic_at: int, *, big_endian: bool) -> bytes:
    page = bytearray(8192)
    magic = bytes.fromhex("beefc0de")
    page[magic_at : magic_at + 4] = magic if big_endian else magic[::-1]
    return bytes(page)


NO_DATABASES: dict[str, tuple[bytes, str]] = {
    "another program's": (b"SQLite format 3\0" + bytes(8192), "no LMDB"),
    "32-bit": (_header(12, big_endian=False), "32-bit"),
    "big-endian": (_header(16, big_endian=True), "big-endian"),
    "Git LFS pointer": (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\n", "lfs pull"),
    "of no bytes": (b"", "empty file"),
}


@pytest.mark.parametrize("kind", NO_DATABASES)
def test_a_file_that_is_no_database_is_refused_by_the_feed_with_what_it_is(
    source: Path, kind: str
) -> None:
    content, reason = NO_DATABASES[kind]
    (source / "data.mdb").write_bytes(content)
    before = sorted(source.iterdir())
    with pytest.raises(prefetch.UnsupportedSourceError, match=reason) as caught:
        prefetch.open(_options(source))
    assert caught.value.path == str(source)
    assert before == sorted(source.iterdir())


def test_a_database_of_named_ones_is_refused_by_the_feed(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), max_dbs=2, map_size=2**20) as environment:
        named = environment.open_db(b"train")
        with environment.begin(write=True, db=named) as transaction:
            for key, value in fingerprinted_images(3):
                transaction.put(key, value)
    with pytest.raises(prefetch.UnsupportedSourceError, match="named databases"):
        prefetch.open(_options(tmp_path))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give up its rights in a child")
def test_a_folder_that_may_only_be_read_is_read(source: Path) -> None:
    program = """
        import os, sys
        import prefetch
        prefetch.open({"source": sys.argv[1]}).close()  # imports what only root may read here
        os.setuid(65534)
        with prefetch.open({"source": sys.argv[1], "threads": 2}) as feed:
            assert sum(len(batch) for batch in feed) == 60
    """
    with tempfile.TemporaryDirectory() as folder:  # pytest's own folders are closed to others
        Path(folder).chmod(0o755)
        readable = Path(folder) / "db"
        shutil.copytree(source, readable)
        (readable / "data.mdb").chmod(0o444)
        readable.chmod(0o555)
        _run(program, readable)
        assert ["data.mdb"] == [entry.name for entry in readable.iterdir()]


# Little memory ----------------------------------------------------------------------------------


def test_under_a_limit_on_memory_a_batch_too_large_is_an_error_and_a_smaller_feed_works(
    source: Path,
) -> None:
    """As under ``ulimit -v``: the database's own map was a gigabyte, the batch would be 3 GB."""
    with lmdb.open(str(source), map_size=2**30):
        pass
    program = """
        import resource, sys
        from pathlib import Path
        import prefetch
        options = {"source": sys.argv[1], "threads": 2, "prefetch": 2}
        with prefetch.open(options) as feed:  # whatever is loaded late, is loaded now
            next(iter(feed))
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + 2**28
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            prefetch.open(options, batch_size=2**20, last_batch="wrap")
        except prefetch.RingTooLargeError:
            pass
        else:
            raise AssertionError("there was room")
        with prefetch.open(options) as feed:
            assert sum(len(batch) for batch in feed) == 60
    """
    _run(program, source)


def _run(program: str, source: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program), str(source)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
