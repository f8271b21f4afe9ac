"""A file of decoded images serves what was stored, or nothing; whatever happens to it."""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from decoded_images import belonging, fill, found_in, image_of, key_of
from processes import environment, run_code

from prefetch._decoded_cache import file_format, open_file
from prefetch._decoded_cache.belonging import Belonging
from prefetch._decoded_cache.file_cache import FileCache
from prefetch._decoded_cache.open_file import ForeignCacheError

if TYPE_CHECKING:
    from collections.abc import Iterator

WORKPLACE = Path(__file__).resolve().parents[2] / "workplace"


class Opener:
    """Opens caches at one path, and closes them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened: list[FileCache] = []

    def __call__(
        self, most_bytes: int = 1 << 20, of: Belonging | None = None, num_records: int = 40
    ) -> FileCache:
        made = belonging() if of is None else of
        cache = FileCache(self.path, made, num_records=num_records, most_bytes=most_bytes)
        self._opened.append(cache)
        return cache

    def close(self) -> None:
        for cache in self._opened:
            cache.close()
            cache.close()  # idempotent


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opener]:
    opener = Opener(tmp_path / "folder" / "cache")
    yield opener
    opener.close()


def test_what_was_stored_is_found_by_this_and_later_processes(opened: Opener) -> None:
    first = opened()
    assert [] == found_in(first, range(30))
    fill(first, range(30))
    assert list(range(30)) == found_in(first, range(40))
    first.close()
    second = opened()
    assert list(range(30)) == found_in(second, range(40))
    counts = second.counts()
    assert (30, 10) == (counts.hits, counts.misses)
    assert opened.path.stat().st_size == counts.nbytes


def test_a_file_that_grows_during_a_look_was_not_cut(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = opened()
    fill(cache, range(3))
    sizes = os.fstat

    def grow_meanwhile(descriptor: int) -> os.stat_result:
        before = sizes(descriptor)
        monkeypatch.undo()
        fill(cache, range(3, 6))  # by another thread, which then maps it anew
        assert [3, 4, 5] == found_in(cache, range(3, 6))
        return before

    monkeypatch.setattr(os, "fstat", grow_meanwhile)
    assert list(range(6)) == found_in(cache, range(6))


def test_an_image_stays_valid_after_closing(opened: Opener) -> None:
    cache = opened()
    fill(cache, range(1))
    image = cache.find(key_of(0))
    cache.close()
    assert image is not None
    np.testing.assert_array_equal(image_of(0), image)
    assert cache.find(key_of(0)) is None


def test_an_image_is_stored_once(opened: Opener) -> None:
    first, second = opened(), opened()
    fill(first, range(5))
    nbytes = opened.path.stat().st_size
    fill(first, range(5))
    fill(second, range(5))
    assert nbytes == opened.path.stat().st_size


def test_what_one_process_stores_another_finds_while_both_have_it_open(opened: Opener) -> None:
    first, second = opened(), opened()
    fill(first, range(10))
    assert list(range(10)) == found_in(second, range(20))
    fill(second, range(10, 20))
    assert list(range(20)) == found_in(first, range(20))


def test_threads_may_store_and_find_at_once(opened: Opener) -> None:
    cache = opened(num_records=400)

    def work(start: int) -> None:
        fill(cache, range(start, start + 100))
        found_in(cache, range(200))

    threads = [threading.Thread(target=work, args=(start,)) for start in (0, 100, 0, 50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert list(range(200)) == found_in(cache, range(300))
    counts = cache.counts()
    assert 4 * 200 + 300 == counts.hits + counts.misses


def test_a_full_cache_keeps_what_it_has_and_says_so_once(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    most_bytes = 4096 + 64 * 64 + 2000
    cache = opened(most_bytes)
    fill(cache, range(40))
    found = found_in(cache, range(40))
    assert 0 < len(found) < 40
    assert opened.path.stat().st_size <= most_bytes
    fill(cache, range(40))
    assert found == found_in(cache, range(40))
    (record,) = caplog.records
    assert f"is full: it may take {most_bytes} bytes" in record.getMessage()
    assert "cache.decoded.bytes" in record.getMessage()


def test_a_full_table_is_a_full_cache(opened: Opener, caplog: pytest.LogCaptureFixture) -> None:
    cache = opened(num_records=1)  # 64 slots
    fill(cache, range(100))
    assert list(range(64)) == found_in(cache, range(100))
    assert "its table is full" in caplog.text


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
def test_a_failing_disk_leaves_what_is_there(
    opened: Opener,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
) -> None:
    cache = opened()
    fill(cache, range(5))

    def fail(descriptor: int, content: Any) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", fail)
        fill(cache, range(5, 9))
    fill(cache, range(9, 12))
    assert list(range(5)) == found_in(cache, range(12))
    (record,) = caplog.records
    assert os.strerror(number) in record.getMessage()


def test_half_an_image_on_a_full_disk_is_never_served(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, write = opened(), os.write

    def write_half(descriptor: int, content: memoryview) -> int:
        return write(descriptor, content[: len(content) // 2])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", write_half)
        fill(cache, range(1))
    assert [] == found_in(cache, range(3))
    cache.close()
    again = opened()
    fill(again, range(3))
    assert list(range(3)) == found_in(again, range(3))


def test_without_room_for_the_table_nothing_is_left_in_the_way(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patched:
        patched.setattr(os, "posix_fallocate", fail)
        with pytest.raises(OSError, match="full"):
            opened()
    assert 0 == opened.path.stat().st_size
    fill(opened(), range(1))


@pytest.mark.parametrize("seed", range(20))
def test_no_damage_shows_in_an_image(opened: Opener, seed: int) -> None:
    cache = opened()
    fill(cache, range(30))
    cache.close()
    content = bytearray(opened.path.read_bytes())
    rng = np.random.default_rng(seed)
    begin = 4096 if seed % 2 else 4096 + 64 * 80  # in the slots and behind, or in the pixels
    for place in rng.integers(begin, len(content), 12).tolist():
        content[place] ^= int(rng.integers(1, 256))
    opened.path.write_bytes(content)
    damaged = opened()
    found = found_in(damaged, range(30))
    assert found != list(range(30)) or seed % 2
    fill(damaged, range(30))
    assert list(range(30)) == found_in(damaged, range(30))
    damaged.close()
    assert list(range(30)) == found_in(opened(), range(30))


def test_damage_is_said_once(opened: Opener, caplog: pytest.LogCaptureFixture) -> None:
    cache = opened()
    fill(cache, range(10))
    cache.close()
    content = bytearray(opened.path.read_bytes())
    content[4096 + 64 * 80 :] = bytes(len(content) - 4096 - 64 * 80)
    opened.path.write_bytes(content)
    assert [] == found_in(opened(), range(10))
    (record,) = caplog.records
    assert "an image in it is damaged, and is decoded again" in record.getMessage()


def test_a_file_that_is_cut_under_the_cache_is_used_no_more(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    cache = opened()
    fill(cache, range(10))
    assert list(range(10)) == found_in(cache, range(10))
    os.truncate(opened.path, 4096 + 64 * 80 + 10)
    assert [] == found_in(cache, range(10))
    fill(cache, range(10))
    assert 4096 + 64 * 80 + 10 == opened.path.stat().st_size
    assert "was cut by another program" in caplog.text


@pytest.mark.parametrize("size", [1, 15, 16, 100, 4095, 4096, 5000])
def test_a_file_that_is_cut_off_is_made_anew(
    opened: Opener, caplog: pytest.LogCaptureFixture, size: int
) -> None:
    cache = opened()
    fill(cache, range(10))
    cache.close()
    os.truncate(opened.path, size)
    fill(opened(), range(5))
    assert list(range(5)) == found_in(opened(), range(10))
    assert "is made anew" in caplog.text


@pytest.mark.parametrize("place", [16, 24, 40, 100, 4090])
def test_a_damaged_head_has_the_file_made_anew(
    opened: Opener, caplog: pytest.LogCaptureFixture, place: int
) -> None:
    cache = opened()
    fill(cache, range(10))
    cache.close()
    content = bytearray(opened.path.read_bytes())
    content[place] ^= 0x10
    opened.path.write_bytes(content)
    assert [] == found_in(opened(), range(10))
    assert "is made anew" in caplog.text


def test_another_format_is_made_anew(
    opened: Opener, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(file_format, "VERSION", 2)
        opened().close()
    opened()
    assert "it has format 2, and this is format 1" in caplog.text


@pytest.mark.parametrize("content", [b"x", b"a list of names\n" * 1000, b"PNG" + bytes(9000)])
def test_what_is_no_cache_is_refused_and_left(opened: Opener, content: bytes) -> None:
    opened.path.parent.mkdir()
    opened.path.write_bytes(content)
    with pytest.raises(ForeignCacheError, match="is no cache of decoded images"):
        opened()
    assert content == opened.path.read_bytes()


def test_folders_and_pipes_are_refused(opened: Opener) -> None:
    opened.path.parent.mkdir()
    os.mkfifo(opened.path)
    with pytest.raises(ForeignCacheError, match="is no cache"):
        opened()
    opened.path.unlink()
    opened.path.mkdir()
    with pytest.raises(IsADirectoryError):
        opened()


def test_another_database_or_decoding_is_refused_by_name(opened: Opener) -> None:
    fill(opened(), range(3))
    with pytest.raises(ForeignCacheError, match="holds images of another database, /db;"):
        opened(of=belonging(path="/other", state="2"))
    with pytest.raises(ForeignCacheError, match="decoded with shorter: null instead of 256;"):
        opened(of=belonging(shorter=256))
    assert list(range(3)) == found_in(opened(), range(3))


def test_a_database_that_was_moved_keeps_its_cache(opened: Opener) -> None:
    fill(opened(), range(3))
    assert list(range(3)) == found_in(opened(of=belonging(path="/moved")), range(3))


def test_a_database_that_has_changed_gets_a_new_file_and_readers_keep_the_old(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    old = opened()
    fill(old, range(3))
    new = opened(of=belonging(state="2"))
    assert "the database has changed since" in caplog.text
    assert [] == found_in(new, range(3))
    fill(new, range(3, 6))
    assert list(range(3)) == found_in(old, range(6))
    assert list(range(3, 6)) == found_in(new, range(6))


def test_other_decoders_have_the_file_made_anew(
    opened: Opener, caplog: pytest.LogCaptureFixture
) -> None:
    present = belonging()
    older = Belonging(
        name=present.name,
        paths=present.paths,
        databases=present.databases,
        decoding=present.decoding,
        decoders={**present.decoders, "simplejpeg": "0.1"},
    )
    fill(opened(of=older), range(3))
    assert [] == found_in(opened(), range(3))
    assert "other versions of simplejpeg" in caplog.text


def test_the_longest_paths_fit_the_head(opened: Opener) -> None:
    for path in ("/" + 4000 * "a", "/" + 2000 * "\U0001f600", "/" + 3000 * "\udcff"):
        opened(of=belonging(path=path)).close()
        opened.path.unlink()


def test_a_link_leads_to_the_file_and_stays(opened: Opener, tmp_path: Path) -> None:
    opened.path.parent.mkdir()
    opened.path.symlink_to(tmp_path / "real")
    fill(opened(), range(3))
    opened(of=belonging(state="2"))
    assert opened.path.is_symlink()
    assert not (tmp_path / "real").is_symlink()


def test_a_process_that_keeps_it_locked_is_not_waited_for_without_end(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened().close()
    monkeypatch.setattr(open_file, "_WAIT_S", 0.0)
    with opened.path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="another process has been opening it"):
            opened()
    opened()


def test_one_that_is_never_closed_closes_itself_and_warns(opened: Opener) -> None:
    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    caches = [FileCache(opened.path, belonging(), num_records=40, most_bytes=1 << 20)]
    with pytest.warns(ResourceWarning, match="was never closed"):
        caches.clear()
    assert files == len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_nothing_stays_open_where_it_cannot_be_mapped(
    opened: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", fail)
        with pytest.raises(OSError, match="Cannot allocate"):
            opened()
    assert files == len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def test_one_that_cannot_be_mapped_anew_is_used_no_more(
    opened: Opener, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))

    cache = opened()
    fill(cache, range(3))
    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", fail)
        assert [] == found_in(cache, range(3))
    assert [] == found_in(cache, range(3))
    assert "is used no more: Cannot allocate memory" in caplog.text


_KILLED = """
    import os
    import signal
    import sys
    from pathlib import Path
    sys.path[:0] = [sys.argv[2]]
    from decoded_images import belonging, fill, found_in
    from prefetch._decoded_cache.file_cache import FileCache

    def die(*_):
        os.kill(os.getpid(), signal.SIGKILL)

    def half(write):
        def run(descriptor, content, *place):
            write(descriptor, content[: len(content) // 2], *place)
            die()
        return run

    {early}
    cache = FileCache(Path(sys.argv[1]), belonging(), num_records=40, most_bytes=1 << 20)
    fill(cache, range(10))
    {late}
    fill(cache, range(10, 20))
"""


@pytest.mark.parametrize(
    ("early", "late", "kept"),
    [
        ("os.posix_fallocate = die", "", 0),
        ("os.pwrite = half(os.pwrite)", "", 0),
        ("", "os.write = half(os.write)", 10),
        ("", "os.pwrite = half(os.pwrite)", 10),
        ("", "os.pwrite = die", 10),
    ],
    ids=["before the table", "in the magic", "in the pixels", "in the slot", "before the slot"],
)
def test_a_process_killed_at_any_moment_leaves_whole_images(
    opened: Opener, early: str, late: str, kept: int
) -> None:
    ended = run_code(_KILLED.format(early=early, late=late), opened.path, WORKPLACE)
    assert -signal.SIGKILL == ended.returncode, ended.stderr
    cache = opened()
    assert list(range(kept)) == found_in(cache, range(20))
    fill(cache, range(20))
    assert list(range(20)) == found_in(cache, range(20))


_WRITER = """
    import sys
    from pathlib import Path
    sys.path[:0] = [sys.argv[2]]
    from decoded_images import belonging, fill, found_in
    from prefetch._decoded_cache.file_cache import FileCache

    cache = FileCache(Path(sys.argv[1]), belonging(), num_records=600, most_bytes=1 << 24)
    for number in range(300):
        fill(cache, range(number, number + 1))
        found_in(cache, range(max(0, number - 3), number + 10))
    assert 297 <= len(found_in(cache, range(300)))  # two that write one slot may lose an image
    cache.close()
"""


def test_several_processes_share_a_file(opened: Opener) -> None:
    command = [sys.executable, "-c", textwrap.dedent(_WRITER), str(opened.path), str(WORKPLACE)]
    writers = [
        subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    for writer in writers:
        _, errors = writer.communicate(timeout=100)
        assert 0 == writer.returncode, errors
    cache = opened(num_records=600, most_bytes=1 << 24)
    assert 297 <= len(found_in(cache, range(310)))
    fill(cache, range(300))
    assert list(range(300)) == found_in(cache, range(310))
