"""A database file is found by any of its names, and told from whatever else may be there."""

from __future__ import annotations

import os
import struct
from contextlib import closing
from pathlib import Path

import lmdb
import pytest
from databases import write_short

from prefetch._errors.classes import (
    CorruptDatabaseError,
    DatabaseNotFoundError,
    DatabaseTruncatedError,
    SourceError,
    UnsupportedSourceError,
)
from prefetch._source.lmdb.file import DatabaseFile
from prefetch._source.lmdb.pages import TreePages
from prefetch.testing import fingerprinted_images, write_database

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_database(tmp_path / "db", fingerprinted_images(200))


def refusal(path: Path) -> SourceError:
    """Return the error that a path is refused with."""
    with pytest.raises(SourceError) as caught:
        DatabaseFile(path)
    assert caught.value.path == str(path)
    assert str(caught.value).startswith(f"{path}: ")
    return caught.value


def patch(folder: Path, offset: int, content: bytes) -> None:
    """Write over some bytes of both of a database's metas, given their offset in the first."""
    with (folder / "data.mdb").open("r+b") as file:
        for meta in (0, PAGE_BYTES):
            file.seek(meta + offset)
            file.write(content)


def test_the_folder_and_the_file_are_one_database(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    (tmp_path / "link.mdb").symlink_to(folder / "data.mdb")
    os.link(folder / "data.mdb", tmp_path / "hard.mdb")
    paths = [folder, folder / "data.mdb", tmp_path / "link", tmp_path / "link.mdb"]
    paths.append(tmp_path / "hard.mdb")
    identities = set()
    for path in paths:
        file = DatabaseFile(path)
        identities.add(file.identity)
        assert file.path == str(path)
        file.close()
    assert len(identities) == 1


def test_a_relative_path_is_made_absolute(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    file = DatabaseFile("db")
    assert file.path == str(folder)
    file.close()


def test_the_last_state_is_the_one_lmdb_reads(folder: Path) -> None:
    with lmdb.open(str(folder), map_size=2**24) as environment:
        for number in range(3):
            with environment.begin(write=True) as transaction:
                transaction.put(b"more %d" % number, b"")
        stat, info = environment.stat(), environment.info()
    file = DatabaseFile(folder)
    meta = file.newest()
    file.close()
    assert (meta.entries, meta.depth) == (stat["entries"], stat["depth"])
    assert (meta.branch_pages, meta.leaf_pages) == (stat["branch_pages"], stat["leaf_pages"])
    assert (meta.txn_id, meta.last_page) == (info["last_txnid"], info["last_pgno"])
    assert meta.page_bytes == stat["psize"]


def test_closing_twice_is_closing_once(folder: Path) -> None:
    file = DatabaseFile(folder)
    file.close()
    file.close()


def test_nothing_at_the_path_names_the_folder_that_is_there(tmp_path: Path) -> None:
    error = refusal(tmp_path / "no" / "such" / "db")
    assert isinstance(error, DatabaseNotFoundError)
    assert isinstance(error, FileNotFoundError)
    assert str(error).endswith(f"the nearest folder that exists is {tmp_path}")
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_a_nul_character_is_not_found() -> None:
    with pytest.raises(DatabaseNotFoundError, match=r"a\\x00b: no path holds a NUL character"):
        DatabaseFile("a\0b")


def test_a_path_through_a_file_is_not_found(folder: Path) -> None:
    error = refusal(folder / "data.mdb" / "db")
    assert isinstance(error, DatabaseNotFoundError)
    assert str(error).endswith(f"{folder / 'data.mdb'} is a file")


def test_a_folder_without_data_names_what_it_holds(tmp_path: Path) -> None:
    for number in range(7):
        (tmp_path / f"image{number}.jpg").touch()
    error = refusal(tmp_path)
    assert isinstance(error, DatabaseNotFoundError)
    assert "has no data.mdb; it holds image0.jpg, " in str(error)
    assert "image4.jpg and 2 more; to make a database of its images: ringfeed conv" in str(error)


def test_class_folders_are_answered_by_what_makes_a_database_of_them(tmp_path: Path) -> None:
    (tmp_path / "cat").mkdir()
    assert str(refusal(tmp_path)).endswith(
        f"it holds cat; to make a database of class folders: ringfeed convert {tmp_path} DB"
    )


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    assert str(refusal(tmp_path)).endswith("it holds nothing")
    assert list(tmp_path.iterdir()) == []


def test_a_link_that_leads_nowhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").symlink_to(tmp_path / "moved.mdb")
    assert "data.mdb in it is no file, or leads to none" in str(refusal(tmp_path))


def test_a_leveldb_is_refused_by_name(tmp_path: Path) -> None:
    for name in ("CURRENT", "LOCK", "LOG", "MANIFEST-000004", "000005.ldb"):
        (tmp_path / name).touch()
    error = refusal(tmp_path)
    assert isinstance(error, UnsupportedSourceError)
    assert "is a LevelDB, which is not read here; convert it to LMDB" in str(error)


def test_a_git_lfs_pointer_says_how_to_fetch(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_text(
        "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    )
    assert "git lfs pull" in str(refusal(tmp_path))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").touch()
    error = refusal(tmp_path)
    assert isinstance(error, UnsupportedSourceError)
    assert "is an empty file (0 bytes)" in str(error)


def test_a_foreign_file_shows_how_it_begins(tmp_path: Path) -> None:
    (tmp_path / "some.bin").write_bytes(b"\x01NOPE\r\n\x1a\n" + bytes(8000))
    error = refusal(tmp_path / "some.bin")
    assert isinstance(error, UnsupportedSourceError)
    assert str(error).endswith("the file begins with the bytes 01 4e 4f 50 45 0d 0a 1a")


@pytest.mark.parametrize(
    ("begin", "kind"),
    [
        (b"\xff\xd8\xff\xe1", "a JPEG image; a database of images is made by: ringfeed convert"),
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"GIF89a", "an image"),
        (b"RIFF\0\0\0\0WEBP", "an image"),
        (b"\x93NUMPY\x01\0", "an array (.npy)"),
        (b"PK\x03\x04", "a zip or .npz archive"),
        (b"\x1f\x8b\x08", "a gzip archive"),
        (b"\x89HDF\r\n", "an HDF5 file"),
        (b"<!DOCTYPE html>", "text, such as a web page"),
    ],
)
def test_a_file_of_a_known_kind_is_called_by_it(tmp_path: Path, begin: bytes, kind: str) -> None:
    (tmp_path / "some.bin").write_bytes(begin + bytes(8000))
    assert f"is no LMDB database, but {kind}" in str(refusal(tmp_path / "some.bin"))


def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "is neither a folder nor a file" in str(refusal(tmp_path / "pipe"))


@pytest.mark.parametrize(
    ("head", "reason"),
    [
        pytest.param(bytes(12) + b"\xde\xc0\xef\xbe", "a 32-bit LMDB", id="32-bit"),
        pytest.param(bytes(16) + b"\xbe\xef\xc0\xde", "a big-endian machine", id="big-endian"),
        pytest.param(bytes(12) + b"\xbe\xef\xc0\xde", "a big-endian machine", id="both"),
    ],
)
def test_a_database_of_another_machine_is_told(tmp_path: Path, head: bytes, reason: str) -> None:
    (tmp_path / "data.mdb").write_bytes(head + bytes(8192))
    error = refusal(tmp_path)
    assert isinstance(error, UnsupportedSourceError)
    assert f"was written by {reason}, whose pages differ; write it out there with mdb_dump" in str(
        error
    )


def test_another_version_of_the_format_is_refused_by_number(folder: Path) -> None:
    patch(folder, 20, struct.pack("<I", 3))
    error = refusal(folder)
    assert isinstance(error, UnsupportedSourceError)
    assert "was written in version 3 of LMDB's format, and version 1" in str(error)


def test_a_file_shorter_than_its_pages_is_truncated(folder: Path) -> None:
    file = DatabaseFile(folder)
    expected = file.newest().size_bytes
    file.close()
    os.truncate(folder / "data.mdb", expected - 1)
    error = refusal(folder)
    assert isinstance(error, DatabaseTruncatedError)
    assert isinstance(error, OSError)
    assert (error.expected_bytes, error.actual_bytes) == (expected, expected - 1)
    assert f"its pages take {expected} bytes, the file has {expected - 1} bytes" in str(error)


@pytest.mark.parametrize("size", [100, PAGE_BYTES, PAGE_BYTES + 100])
def test_a_file_that_ends_in_its_head_is_truncated(folder: Path, size: int) -> None:
    os.truncate(folder / "data.mdb", size)
    error = refusal(folder)
    assert isinstance(error, DatabaseTruncatedError)
    assert (error.expected_bytes, error.actual_bytes) == (2 * PAGE_BYTES, size)


def test_a_file_without_pages_that_were_never_written_is_whole(tmp_path: Path) -> None:
    folder = write_short(tmp_path / "db", num_kept=5)
    with closing(DatabaseFile(folder)) as file:
        meta = file.newest()
        assert meta.entries == 5
        assert meta.size_bytes <= (folder / "data.mdb").stat().st_size
        leaves = list(TreePages(file, meta).leaves())
    os.truncate(folder / "data.mdb", max(leaves) * PAGE_BYTES + PAGE_BYTES)
    DatabaseFile(folder).close()
    os.truncate(folder / "data.mdb", max(leaves) * PAGE_BYTES + PAGE_BYTES - 1)
    assert isinstance(refusal(folder), DatabaseTruncatedError)


def test_a_long_value_that_ends_behind_the_file_is_missed(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "db", [(b"long", bytes(20_000)), (b"short", b"")])
    with closing(DatabaseFile(folder)) as file:
        ((first, count),) = TreePages(file, file.newest()).long_values(
            next(TreePages(file, file.newest()).leaves())
        )
    patch(folder, 136, struct.pack("<Q", first + count))  # one page more than there is
    os.truncate(folder / "data.mdb", (first + count) * PAGE_BYTES)
    DatabaseFile(folder).close()
    os.truncate(folder / "data.mdb", (first + count) * PAGE_BYTES - 1)
    assert isinstance(refusal(folder), DatabaseTruncatedError)


def test_a_short_file_whose_tree_goes_round_is_refused_in_time(tmp_path: Path) -> None:
    folder = write_database(tmp_path / "db", [(b"%0500d" % i, b"") for i in range(400)])
    with closing(DatabaseFile(folder)) as file:
        meta = file.newest()
    assert meta.root is not None
    patch(folder, 136, struct.pack("<Q", 2**40))
    patch(folder, 94, struct.pack("<H", 32))
    with (folder / "data.mdb").open("r+b") as stream:
        page = os.pread(stream.fileno(), PAGE_BYTES, meta.root * PAGE_BYTES)
        for slot in range((struct.unpack_from("<H", page, 12)[0] - 16) // 2):
            (node,) = struct.unpack_from("<H", page, 16 + 2 * slot)
            stream.seek(meta.root * PAGE_BYTES + node)
            stream.write(struct.pack("<IH", meta.root, 0))
    assert isinstance(refusal(folder), CorruptDatabaseError)


@pytest.mark.parametrize("damage", ["left by a failed write", "nonsense"])
def test_the_older_meta_is_not_judged(folder: Path, damage: str) -> None:
    """LMDB never reads its tree; a write of it that failed leaves it so."""
    with lmdb.open(str(folder), map_size=2**24) as environment:
        for number in range(2):
            with environment.begin(write=True) as transaction:
                transaction.put(b"more %d" % number, bytes(3000))
    with (folder / "data.mdb").open("r+b") as stream:
        metas = [os.pread(stream.fileno(), 152, page) for page in (0, PAGE_BYTES)]
        newer = max((0, 1), key=lambda place: int.from_bytes(metas[place][144:152], "little"))
        tree = metas[newer][48:136] if damage == "left by a failed write" else bytes(range(88))
        stream.seek((1 - newer) * PAGE_BYTES + 48)
        stream.write(tree)
    with closing(DatabaseFile(folder)) as file:
        assert file.newest().entries == 202


def test_a_file_larger_than_its_pages_is_sound(folder: Path) -> None:
    os.truncate(folder / "data.mdb", 2**24)
    DatabaseFile(folder).close()


@pytest.mark.parametrize("page_bytes", [0, 128, 4095, 6000, 2**17])
def test_an_impossible_page_size_is_refused(folder: Path, page_bytes: int) -> None:
    patch(folder, 40, struct.pack("<I", page_bytes))
    error = refusal(folder)
    assert isinstance(error, CorruptDatabaseError)
    assert f"pages cannot have {page_bytes} bytes" in str(error)


def test_an_impossible_tree_is_refused(folder: Path) -> None:
    patch(folder, 94, struct.pack("<H", 33))
    assert isinstance(refusal(folder), CorruptDatabaseError)


@pytest.mark.parametrize(
    ("offset", "count"),
    [(96, 2**40), (104, 2**40), (112, 2**63), (120, 2**62)],
    ids=["branches", "leaves", "overflow", "records"],
)
def test_more_pages_or_records_than_fit_into_the_file_are_refused(
    folder: Path, offset: int, count: int
) -> None:
    patch(folder, offset, struct.pack("<Q", count))
    error = refusal(folder)
    assert isinstance(error, CorruptDatabaseError)
    assert f"{count} " in str(error)


def test_states_whose_pages_differ_in_size_are_refused(folder: Path) -> None:
    with (folder / "data.mdb").open("r+b") as file:
        file.seek(PAGE_BYTES + 40)
        file.write(struct.pack("<I", 2 * PAGE_BYTES))
    error = refusal(folder)
    assert isinstance(error, CorruptDatabaseError)
    assert f"{PAGE_BYTES} and {2 * PAGE_BYTES} bytes" in str(error)


def test_a_second_meta_that_is_none_is_refused(folder: Path) -> None:
    with (folder / "data.mdb").open("r+b") as file:
        file.seek(PAGE_BYTES)
        file.write(bytes(200))
    error = refusal(folder)
    assert isinstance(error, UnsupportedSourceError)
    assert f"there is no meta page at byte {PAGE_BYTES}" in str(error)


def test_a_refused_file_is_closed_again(folder: Path) -> None:
    os.truncate(folder / "data.mdb", PAGE_BYTES)
    before = set(Path("/proc/self/fd").iterdir())
    refusal(folder)
    assert set(Path("/proc/self/fd").iterdir()) == before


def test_a_file_that_may_not_be_read_is_refused(folder: Path) -> None:
    def denied(*arguments: object) -> None:
        raise PermissionError(13, "Permission denied")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("prefetch._source.lmdb.file.FileIO", denied)
        error = refusal(folder)
    assert str(error).startswith(
        f"{folder}: cannot be read: Permission denied; have reading it permitted to this user"
    )
