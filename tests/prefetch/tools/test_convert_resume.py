"""Resuming: only what is still the same is gone on with, and what is not is named."""

from __future__ import annotations

import gzip
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import textwrap
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from databases import records_of
from image_folders import write_list
from processes import DEADLINE_S

from prefetch._source.lmdb.file import DatabaseFile
from prefetch._tools.convert import (
    ChangedInputError,
    ConversionError,
    InputOptions,
    Report,
    Treatment,
    UnreadableImagesError,
    convert,
    open_input,
)
from prefetch._tools.convert.conversion import description_of
from prefetch._tools.convert.draft import NOTE_BYTES, Draft
from prefetch._tools.convert.examples import Example
from prefetch._tools.convert.resume import note_of
from prefetch._tools.convert.stamps import stamp_of_all

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

RNG = np.random.default_rng(0)
NAMES = ["0.bmp", "1.bmp", "2.bmp", "3.bmp"]


def write_image(path: Path) -> None:
    cv2.imwrite(str(path), RNG.integers(0, 256, (6, 8, 3), np.uint8))


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Make images/0.bmp to 2.bmp and a list that names 3.bmp as well."""
    folder = tmp_path / "images"
    folder.mkdir()
    for name in NAMES[:-1]:
        write_image(folder / name)
    write_list(tmp_path / "list.txt", NAMES)
    return folder


def run(images: Path, name: str = "db", *, resume: bool = False, gray: bool = False) -> Report:
    options = InputOptions(treatment=Treatment(gray=gray))
    opened = open_input([images, images.parent / "list.txt"], options)
    return convert(opened.examples, images.parent / name, resume=resume)


@pytest.fixture
def interrupted(images: Path) -> Path:
    """Convert all images but the last, which is not there."""
    with pytest.raises(UnreadableImagesError):
        run(images)
    write_image(images / NAMES[-1])
    return images


@pytest.mark.parametrize("commits_failed", [False, True])
def test_what_has_not_changed_is_not_read_again(
    commits_failed: bool,  # noqa: FBT001 - a parameter of the test
    interrupted: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if commits_failed:  # which left notes that the later ones stand for
        notes = interrupted.parent / "db.partial" / "notes"
        before = note_of(0, Example(b"", (1, 1, 1), stamp=b"x")) * 2
        notes.write_bytes(before + notes.read_bytes())
    opened = open_input([interrupted, interrupted.parent / "list.txt"], InputOptions())
    read_before, indices = opened.examples.read, []

    def read_noted(index: int) -> Example:
        indices.append(index)
        return read_before(index)

    monkeypatch.setattr(opened.examples, "read", read_noted)
    report = convert(opened.examples, interrupted.parent / "db", resume=True)
    assert ([3], 3) == (indices, report.num_resumed)
    assert {(3, 6, 8): 4} == report.shapes


@pytest.mark.parametrize("name", NAMES[:-1])
def test_an_image_that_is_another_now_is_refused_by_its_name(name: str, interrupted: Path) -> None:
    before = (interrupted / name).read_bytes()
    write_image(interrupted / name)
    assert len(before) == (interrupted / name).stat().st_size
    folder = interrupted.parent / "db.partial"
    with pytest.raises(ChangedInputError) as caught:
        run(interrupted, resume=True)
    assert str(caught.value) == (
        f"{folder}: cannot be resumed: 1 of the 3 records in it is of something that has changed "
        f"since: {interrupted}/{name}: is another now than the one that was converted\n"
        f"put back what was converted, or remove the folder to begin anew, without --resume"
    )
    # What it says to do works: put back what was there, under whatever date.
    (interrupted / name).write_bytes(before)
    assert 4 == run(interrupted, resume=True).num_stored


def test_beginning_anew_takes_what_is_there_now(interrupted: Path) -> None:
    write_image(interrupted / NAMES[0])
    with pytest.raises(ChangedInputError):
        run(interrupted, resume=True)
    shutil.rmtree(interrupted.parent / "db.partial")
    run(interrupted)
    run(interrupted, "at once")
    assert records_of(interrupted.parent / "at once") == records_of(interrupted.parent / "db")


def test_images_that_exchanged_their_names_are_noticed_whatever_their_dates(
    interrupted: Path,
) -> None:
    one, other, spare = interrupted / NAMES[0], interrupted / NAMES[1], interrupted / "spare"
    for path in (one, other):
        os.utime(path, ns=(10**18, 10**18))
    # As converted with these dates: of the same size and date, as from an archive.
    shutil.rmtree(interrupted.parent / "db.partial")
    (interrupted / NAMES[-1]).unlink()
    with pytest.raises(UnreadableImagesError):
        run(interrupted)
    one.rename(spare)
    other.rename(one)
    spare.rename(other)
    assert one.stat().st_mtime_ns == other.stat().st_mtime_ns
    with pytest.raises(ChangedInputError, match="2 of the 3 records in it are of something"):
        run(interrupted, resume=True)


def test_images_that_were_only_touched_or_copied_are_the_same(interrupted: Path) -> None:
    for name in NAMES:
        os.utime(interrupted / name, ns=(1, 1))
    moved = interrupted.with_name("moved")
    shutil.copytree(interrupted, moved)
    opened = open_input([moved, moved.parent / "list.txt"], InputOptions())
    report = convert(opened.examples, moved.parent / "db", resume=True)
    assert (3, 4) == (report.num_resumed, report.num_stored)


def test_an_image_that_is_gone_is_named(interrupted: Path) -> None:
    (interrupted / NAMES[1]).unlink()
    with pytest.raises(ChangedInputError, match=r"1\.bmp: cannot be read any more: No such file"):
        run(interrupted, resume=True)


def test_many_that_changed_are_counted_and_the_first_of_them_named(images: Path) -> None:
    names = [f"{index}.bmp" for index in range(30)]
    for name in names:
        write_image(images / name)
    (images.parent / "list.txt").write_text("".join(f"{n} 0\n" for n in [*names, "none.bmp"]))
    with pytest.raises(UnreadableImagesError):
        run(images)
    for name in names:
        write_image(images / name)
    with pytest.raises(ChangedInputError) as caught:
        run(images, resume=True)
    assert 30 == len(caught.value.changed)
    assert "and 10 more" in str(caught.value)


def test_other_options_and_another_list_are_named_as_such(interrupted: Path) -> None:
    with pytest.raises(ConversionError, match=r"has changed \(options\).*without --resume"):
        run(interrupted, resume=True, gray=True)
    (interrupted.parent / "list.txt").write_text(f"{NAMES[0]} 1\n")
    with pytest.raises(ConversionError, match=r"has changed \(names and labels\)"):
        run(interrupted, resume=True)


def test_a_draft_of_another_version_is_not_guessed_at(interrupted: Path) -> None:
    for content in ('{"format": 2, "input": "x"}', "no json", "[]"):
        (interrupted.parent / "db.partial" / "conversion.json").write_text(content)
        with pytest.raises(ConversionError, match="of another version of this program, or damaged"):
            run(interrupted, resume=True)


@pytest.mark.parametrize("cut", [0, 1, NOTE_BYTES, NOTE_BYTES + 1])
def test_records_without_a_note_are_compared_by_what_they_hold(cut: int, interrupted: Path) -> None:
    # As where the machine went down before the notes were on the disk.
    notes = interrupted.parent / "db.partial" / "notes"
    os.truncate(notes, cut)
    before = (interrupted / NAMES[2]).read_bytes()
    write_image(interrupted / NAMES[2])
    with pytest.raises(ChangedInputError, match=r"1 of the 3 .*2\.bmp"):
        run(interrupted, resume=True)
    (interrupted / NAMES[2]).write_bytes(before)
    assert {(3, 6, 8): 4} == run(interrupted, resume=True).shapes


def test_notes_of_commits_that_failed_do_not_count(tmp_path: Path) -> None:
    notes = [bytes([number]) * NOTE_BYTES for number in range(3)]
    with Draft(tmp_path / "db", {}) as draft:
        draft.put(b"a", b"1", note=notes[0])
        draft.commit()
    os.truncate(tmp_path / "db.partial" / "notes", NOTE_BYTES + 7)
    with Draft(tmp_path / "db", {}, resume=True) as draft:
        assert notes[0] == draft.notes()
        draft.put(b"b", b"2", note=notes[1])
        draft.commit()
        draft.put(b"c", b"3")
        draft.commit()
        assert notes[0] + notes[1] == draft.notes()


def test_a_draft_whose_database_was_cut_is_refused(tmp_path: Path) -> None:
    with Draft(tmp_path / "db", {}) as draft:
        for index in range(100):
            draft.put(b"%03d" % index, b"x" * 1000)
        draft.commit()
    os.truncate(tmp_path / "db.partial" / "database" / "data.mdb", 20_000)
    with pytest.raises(ConversionError, match=r"truncated.*begin anew, without --resume"):
        Draft(tmp_path / "db", {}, resume=True)


def _half_a_draft(tmp_path: Path) -> Path:
    """Leave a draft of two commits, and return the folder of its database."""
    with Draft(tmp_path / "db", {}) as draft:
        for part in range(2):
            for index in range(100):
                draft.put(b"%03d" % (100 * part + index), b"x" * 1000)
            draft.commit()
    return tmp_path / "db.partial" / "database"


def test_what_a_failed_write_left_of_the_older_meta_page_keeps_no_draft_from_going_on(
    tmp_path: Path,
) -> None:
    """LMDB puts the old number and last page back there, and leaves the new tree."""
    data = _half_a_draft(tmp_path) / "data.mdb"
    content = bytearray(data.read_bytes())
    newer, older = sorted(
        (0, mmap.PAGESIZE), key=lambda page: -struct.unpack_from("<Q", content, page + 144)[0]
    )
    content[older + 48 : older + 136] = content[newer + 48 : newer + 136]
    data.write_bytes(content)
    with Draft(tmp_path / "db", {}, resume=True) as draft:
        assert draft.num_committed == 200


def test_a_draft_whose_database_is_damaged_is_refused(tmp_path: Path) -> None:
    """LMDB would end the process."""
    data = _half_a_draft(tmp_path) / "data.mdb"
    with closing(DatabaseFile(data)) as file:
        root = file.newest().root
    assert root is not None
    with data.open("r+b") as stream:
        stream.seek(root * mmap.PAGESIZE + 10)
        stream.write(b"\x11")  # a page that is being written
    with pytest.raises(ConversionError, match=r"is damaged: .*begin anew, without --resume"):
        Draft(tmp_path / "db", {}, resume=True)


@pytest.mark.parametrize("name", ["data.mdb", "classes.tsv", ".", "../notes", "../conversion.json"])
def test_a_draft_with_a_link_in_it_is_refused(tmp_path: Path, name: str) -> None:
    link = Path(os.path.normpath(_half_a_draft(tmp_path) / name))
    if link.exists():
        link.rename(tmp_path / "victim")
    else:
        (tmp_path / "victim").write_text("precious")
    link.symlink_to(tmp_path / "victim")
    with pytest.raises(ConversionError):
        Draft(tmp_path / "db", {}, resume=True)
    assert link.is_symlink()


def test_a_folder_of_somebody_else_s_is_not_taken_for_a_draft(tmp_path: Path) -> None:
    theirs = tmp_path / "db.partial" / "database" / "precious"
    theirs.parent.mkdir(parents=True)
    theirs.touch()
    for resume in (False, True):
        with pytest.raises(ConversionError, match="holds database, which is of no conversion"):
            Draft(tmp_path / "db", {}, resume=resume)
    assert theirs.exists()
    assert ["database"] == [path.name for path in (tmp_path / "db.partial").iterdir()]


# --- arrays ----------------------------------------------------------------------------------


def _npy(folder: Path, images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[Path]:
    np.save(folder / "x.npy", images)
    np.save(folder / "y.npy", np.arange(len(images)))
    return [folder / "x.npy", folder / "y.npy"]


def _npz(folder: Path, images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[Path]:
    np.savez(folder / "x.npz", images=images, labels=np.arange(len(images)))
    return [folder / "x.npz"]


def _mnist(folder: Path, images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[Path]:
    header = struct.pack(">4I", 2051, len(images), 32, 32)
    (folder / "i").write_bytes(gzip.compress(header + images[:, 0].tobytes(), mtime=0))
    labels = np.arange(len(images), dtype=np.uint8).tobytes()
    (folder / "l").write_bytes(struct.pack(">2I", 2049, len(images)) + labels)
    return [folder / "i", folder / "l"]


def _cifar(folder: Path, images: np.ndarray[tuple[int, ...], np.dtype[np.uint8]]) -> list[Path]:
    for number, image in enumerate(images):
        (folder / f"{number}.bin").write_bytes(bytes([number]) + image.tobytes())
    return [folder / f"{number}.bin" for number in range(len(images))]


_WRITERS = [_npy, _npz, _mnist, _cifar]


def half_convert(paths: Sequence[Path], database: Path) -> None:
    """Leave the draft of a conversion that has stored one record."""
    examples = open_input(paths, InputOptions()).examples
    with Draft(database, description_of(examples)) as draft:
        draft.put(examples.key(0), examples.read(0).value)
        draft.commit()


@pytest.mark.parametrize("write", _WRITERS)
def test_arrays_that_changed_are_noticed(write: Callable[..., list[Path]], tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (3, 3, 32, 32), np.uint8)
    paths = write(tmp_path, pixels)
    half_convert(paths, tmp_path / "db")
    changed = pixels.copy()
    changed[0, 0, 0, 0] ^= 1
    write(tmp_path, changed)
    examples = open_input(paths, InputOptions()).examples
    with pytest.raises(ChangedInputError, match="image 0: is another now"):
        convert(examples, tmp_path / "db", resume=True)
    write(tmp_path, pixels)
    examples = open_input(paths, InputOptions()).examples
    assert 3 == convert(examples, tmp_path / "db", resume=True).num_stored


def test_labels_that_changed_are_noticed(tmp_path: Path) -> None:
    pixels = RNG.integers(0, 256, (3, 3, 32, 32), np.uint8)
    paths = _npy(tmp_path, pixels)
    half_convert(paths, tmp_path / "db")
    np.save(paths[1], np.array([0, 1, 1]))
    examples = open_input(paths, InputOptions()).examples
    with pytest.raises(ConversionError, match=r"has changed \(labels\)"):
        convert(examples, tmp_path / "db", resume=True)


def test_the_stamp_of_files_changes_with_any_of_them(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_bytes(b"x")
    before = stamp_of_all(paths)
    assert before == stamp_of_all(paths)
    os.utime(paths[1], ns=(5, 5))
    assert before != stamp_of_all(paths)


# --- killed at any moment --------------------------------------------------------------------

_KILLED = """
    import sys
    from pathlib import Path
    from prefetch._tools.convert import InputOptions, convert, open_input
    from prefetch._tools.convert import draft as _draft

    moment, images, listing, database = sys.argv[1:]

    def stop():
        print("now", flush=True)
        sys.stdin.read()  # until it is killed

    def stopping(name, *, at_call=1, after=False):
        function, calls = getattr(_draft.Draft, name), 0
        def wrapped(self, *arguments):
            nonlocal calls
            calls += 1
            if calls == at_call and not after:
                stop()
            result = function(self, *arguments)
            if calls == at_call and after:
                stop()
            return result
        setattr(_draft.Draft, name, wrapped)

    match moment:
        case "before the first commit":
            stopping("commit")
        case "between notes and commit":
            stopping("_write_notes", at_call=3, after=True)
        case "between two commits":
            stopping("commit", at_call=4, after=True)
        case "before the last step":
            stopping("_compact")
        case "before the renaming":
            stopping("_compact", after=True)
        case "after the renaming":
            stopping("discard")
    _draft._COMMIT_RECORDS = 2
    opened = open_input([Path(images), Path(listing)], InputOptions())
    convert(opened.examples, Path(database))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    [
        "before the first commit",
        "between notes and commit",
        "between two commits",
        "before the last step",
        "before the renaming",
        "after the renaming",
    ],
)
def test_killed_at_any_moment_it_leaves_all_or_nothing_under_the_name(
    moment: str, images: Path, tmp_path: Path
) -> None:
    names = [f"{number}.bmp" for number in range(9)]
    for name in names:
        write_image(images / name)
    listing = write_list(tmp_path / "list.txt", names)
    arguments = [moment, str(images), str(listing), str(tmp_path / "db")]
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_KILLED), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        assert b"now\n" == process.stdout.readline()
        process.kill()
        process.wait(DEADLINE_S)
    assert -signal.SIGKILL == process.returncode
    run(images, "at once")
    if moment == "after the renaming":
        report = run(images, resume=True)
        assert (9, True) == (report.num_resumed, report.was_finished)
    else:
        assert not (tmp_path / "db").exists()
        num_resumed = run(images, resume=True).num_resumed
        stored = {"before the first commit": 0, "between notes and commit": 4}
        assert stored.get(moment, num_resumed) == num_resumed
        assert (num_resumed == 9) == ("last step" in moment or "before the renaming" in moment)
    assert records_of(tmp_path / "at once") == records_of(tmp_path / "db")
