"""Files that a user has named are written whole, or left as they were."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from databases import names_in
from processes import run_code

from prefetch._files.output import OutputError, cure, write_whole


def test_a_file_is_made_or_replaced_and_nothing_left_beside_it(tmp_path: Path) -> None:
    for content in (b"first", b"second, and longer", b""):
        write_whole(tmp_path / "it", content)
        assert content == (tmp_path / "it").read_bytes()
        assert ["it"] == names_in(tmp_path)


def test_a_new_file_has_the_usual_permissions_and_a_replaced_one_its_own(tmp_path: Path) -> None:
    (tmp_path / "usual").touch()
    write_whole(tmp_path / "it", b"")
    assert (tmp_path / "usual").stat().st_mode == (tmp_path / "it").stat().st_mode
    (tmp_path / "it").chmod(0o640)
    write_whole(tmp_path / "it", b"x")
    assert 0o640 == stat.S_IMODE((tmp_path / "it").stat().st_mode)


def test_what_a_link_leads_to_is_written(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/it")
    for content in (b"new", b"again"):
        write_whole(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink()
        assert content == (tmp_path / "folder" / "it").read_bytes()


def test_a_device_or_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    link = tmp_path / "null"
    link.symlink_to("/dev/null")
    write_whole(link, b"gone")
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as end:
        write_whole(Path(f"/dev/fd/{writing}"), b"through")
        os.close(writing)
        assert b"through" == end.read()


def test_a_pipe_that_nobody_reads_is_an_error_and_no_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OutputError, match="cannot be written: No such device or address"):
        write_whole(tmp_path / "pipe", b"x")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_leaves_the_old_file_and_says_path_room_and_cure(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(number, os.strerror(number))

    (tmp_path / "it").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OutputError) as caught:
        write_whole(tmp_path / "it", b"new")
    assert str(caught.value).startswith(
        f"{tmp_path}/it: cannot be written: {os.strerror(number)}; "
    )
    assert "bytes are free there; make room, or name another place" in str(caught.value)
    assert (str(tmp_path / "it"), os.strerror(number)) == (caught.value.path, caught.value.reason)
    assert b"old" == (tmp_path / "it").read_bytes()
    assert ["it"] == names_in(tmp_path)


def test_an_interrupt_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    (tmp_path / "it").write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "it", b"new")
    assert b"old" == (tmp_path / "it").read_bytes()
    assert ["it"] == names_in(tmp_path)


_LIMITED = """
    import resource, signal, sys
    from pathlib import Path
    from prefetch._files.output import OutputError, write_whole

    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    try:
        write_whole(Path(sys.argv[1]), bytes(2000))
    except OutputError as error:
        sys.exit(f"{error}")
"""


def test_a_write_that_fails_in_its_middle_leaves_no_part(tmp_path: Path) -> None:
    ended = run_code(_LIMITED, tmp_path / "it")
    assert 1 == ended.returncode
    assert "it: cannot be written: File too large; " in ended.stderr
    assert [] == names_in(tmp_path)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("folder", "Is a directory; name another place"),
        ("file/it", "Not a directory; name another place"),
        ("nowhere/it", "No such file or directory; name another place"),
        ("n" * 300, "File name too long; choose a shorter name"),
    ],
)
def test_a_place_where_no_file_can_be_is_told(path: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=words):
        write_whole(tmp_path / path, b"x")
    assert ["file", "folder"] == names_in(tmp_path)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS])
def test_where_one_may_not_write_the_cure_is_another_place(number: int, tmp_path: Path) -> None:
    assert "where you may write" in cure(OSError(number, "no"), tmp_path)


def test_a_file_protected_from_writing_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "it").write_bytes(b"old")
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may do everything
    with pytest.raises(OutputError, match="Permission denied; name a place where you may write"):
        write_whole(tmp_path / "it", b"new")
    assert b"old" == (tmp_path / "it").read_bytes()
