"""Files that commands write: never over what is read, never a part of one."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest
from image_folders import write_grey_images
from processes import run_on_a_full_disk

from prefetch.cli import main

pytestmark = pytest.mark.slow  # most are processes


@pytest.fixture
def folder(workplace: Path) -> Path:
    """The current folder, with what the commands read, also under names that they write."""
    for name in ("db.npy", "db.png"):
        Path(name).hardlink_to("data/lmdb/data.mdb")
    assert 0 == main(["mean", "data/lmdb", "mean.binaryproto"])
    Path("mean.png").symlink_to("mean.binaryproto")
    text = "source: data/lmdb\nbatch_size: 8\ntransform: {mean_file: mean.binaryproto}\n"
    Path("feed.yaml").write_text(text, encoding="utf-8")
    Path("feed.png").hardlink_to("feed.yaml")
    network = Path("net.prototxt").read_text()
    mean = 'transform_param { mean_file: "mean.binaryproto" }'
    Path("net.prototxt").write_text(network.replace("data_param", f"{mean} data_param"))
    write_grey_images(Path("images"), 3, step=10)
    Path("list.txt").write_text("0.png 0\nnone.png 1\n2.png 2\n")
    Path("note.txt").write_text("mine\tto keep\t\n")
    return workplace


def content(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


_SKIPPING = ["convert", "images", "list.txt", "db", "--skip-unreadable", "--report"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["mean", "data/lmdb", "db.npy"],
        ["mean", "data/lmdb/data.mdb", "db.npy"],
        ["mean", "db.npy", "./db.npy"],
        ["inspect", "data/lmdb", "--show", "db.png"],
        ["inspect", "db.png", "--show", "db.png"],
        ["show", "feed.yaml", "feed.png"],
        ["show", "feed.yaml", "db.png"],
        ["show", "feed.yaml", "mean.png"],
        ["from-prototxt", "net.prototxt", "net.prototxt"],
        ["from-prototxt", "net.prototxt", "net.prototxt", "--force"],
        ["from-prototxt", "net.prototxt", "data/lmdb/data.mdb", "--force"],
        ["from-prototxt", "net.prototxt", "mean.binaryproto", "--force"],
        [*_SKIPPING, "list.txt"],
        [*_SKIPPING, "images/../list.txt"],
        [*_SKIPPING, "images/0.png"],
        [*_SKIPPING, "note.txt"],
        [*_SKIPPING, "images"],
        [*_SKIPPING, "db"],
        [*_SKIPPING, "db.partial"],
    ],
    ids=" ".join,
)
def test_nothing_that_is_read_is_written_over(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(folder)
    assert 2 == main(arguments)
    assert "name another file" in capsys.readouterr().err
    assert before == content(folder)


@pytest.mark.parametrize(
    "arguments",
    [
        ["mean", "data/lmdb", "there.npy"],
        ["mean", "data/lmdb", "there.binaryproto"],
        ["inspect", "data/lmdb", "--show", "there.png"],
        ["show", "feed.yaml", "there.png"],
        ["from-prototxt", "net.prototxt", "there.yaml"],
    ],
    ids=" ".join,
)
def test_what_is_there_is_written_over_with_force_only(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = Path(arguments[-1])
    there.write_text("mine")
    before = content(folder)
    assert 2 == main(arguments)
    assert f"{there} is there already; --force writes over it" in capsys.readouterr().err
    assert before == content(folder)
    assert 0 == main([*arguments, "--force"])
    assert b"mine" != there.read_bytes()


@pytest.mark.parametrize(
    "arguments",
    [
        ["mean", "data/lmdb", "there.npy"],
        ["inspect", "data/lmdb", "--show", "there.png"],
        ["show", "feed.yaml", "there.png"],
        ["from-prototxt", "net.prototxt", "there.yaml"],
    ],
    ids=" ".join,
)
def test_a_link_to_nothing_is_followed_with_force_only(
    arguments: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path(arguments[-1]).symlink_to("elsewhere")
    before = content(folder)
    assert 2 == main(arguments)
    assert "is a link to elsewhere, which is not there; --force" in capsys.readouterr().err
    assert before == content(folder)
    assert 0 == main([*arguments, "--force"])
    assert Path("elsewhere").stat().st_size > 0


def test_a_report_is_not_made_where_a_link_to_nothing_leads(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("report.tsv").symlink_to("elsewhere")
    assert 2 == main([*_SKIPPING, "report.tsv"])
    assert "link to elsewhere, which is not there; name another file" in capsys.readouterr().err
    assert not (folder / "elsewhere").exists()
    assert not (folder / "db").exists()


@pytest.mark.usefixtures("folder")
def test_what_keeps_nothing_is_written_into_without_force() -> None:
    Path("null.npy").symlink_to("/dev/null")
    assert 0 == main(["mean", "data/lmdb", "null.npy"])
    assert 0 == main(["from-prototxt", "net.prototxt", "/dev/null"])
    assert 0 == main(["mean", "data/lmdb", "/dev/null"])
    assert 0 == main(["inspect", "data/lmdb", "--show", "/dev/null"])
    assert 0 == main(["show", "feed.yaml", "/dev/null"])
    assert Path("/dev/null").is_char_device()


def test_a_file_of_somebody_else_s_is_not_taken_for_the_usual_report(folder: Path) -> None:
    Path("db.unreadable.tsv").write_text("mine")
    assert 2 == main(["convert", "images", "list.txt", "db", "--skip-unreadable"])
    Path("list.txt").write_text("0.png 0\n")
    assert 2 == main(["convert", "images", "list.txt", "db"])
    assert "mine" == Path("db.unreadable.tsv").read_text()


@pytest.mark.parametrize("before", ["", "3\t/a\tno file\n", "3\t/a\\tb\tno\n4\t/c\tno\n"])
@pytest.mark.usefixtures("folder")
def test_an_earlier_report_is_replaced_and_goes_when_all_is_well(before: str) -> None:
    Path("db.unreadable.tsv").write_text(before)
    assert 1 == main(["convert", "images", "list.txt", "db"])
    assert Path("db.unreadable.tsv").read_text().startswith("1\t")
    cv2.imwrite("images/none.png", np.zeros((6, 8, 3), np.uint8))
    assert 0 == main(["convert", "images", "list.txt", "db", "--resume"])
    assert not Path("db.unreadable.tsv").exists()


@pytest.mark.usefixtures("folder")
def test_a_report_may_go_nowhere() -> None:
    assert 0 == main([*_SKIPPING, "/dev/null"])
    assert Path("/dev/null").is_char_device()


@pytest.mark.usefixtures("folder")
def test_tables_have_a_line_a_row_whatever_names_hold() -> None:
    Path("list.txt").write_bytes(b"0.png 0\na\tb\\c\xff.png 1\n")
    assert 0 == main(["convert", "images", "list.txt", "db", "--skip-unreadable"])
    expected = rb"/images/a\tb\\c" + b"\xff.png\tNo such file or directory\n"
    assert Path("db.unreadable.tsv").read_bytes().endswith(expected)
    assert 2 == Path("db.unreadable.tsv").read_bytes().count(b"\t")
    for name in ("plain", "tab\there", "line\nhere", "return\rhere", "back\\slash"):
        Path("classes", name).mkdir(parents=True)
        Path("classes", name, "0.png").write_bytes(Path("images/0.png").read_bytes())
    assert 0 == main(["convert", "classes", "db2"])
    assert (
        b"0\tback\\\\slash\n1\tline\\nhere\n2\tplain\n3\treturn\\rhere\n4\ttab\\there\n"
        == Path("db2/classes.tsv").read_bytes()
    )


@pytest.mark.parametrize("name", ["/", "..", "images/.."])
def test_a_database_needs_a_name(
    name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(folder)
    assert 2 == main(["convert", "images", "list.txt", name])
    assert "is no name for a folder to make" in capsys.readouterr().err
    assert before == content(folder)


def test_a_database_among_its_class_folders_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("classes/cat").mkdir(parents=True)
    Path("images/0.png").rename("classes/cat/0.png")
    for name in ("classes/db", "classes/cat/db"):
        assert 2 == main(["convert", "classes", name])
        assert "would be in classes, and be taken for a class folder" in capsys.readouterr().err
    assert ["cat"] == os.listdir("classes")  # noqa: PTH208


# --- a full disk -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "output"),
    [
        (["mean", "data/lmdb", "OUT.npy"], "OUT.npy"),
        (["mean", "data/lmdb", "OUT.binaryproto"], "OUT.binaryproto"),
        (["inspect", "data/lmdb", "--show", "OUT.png"], "OUT.png"),
        (["show", "feed.yaml", "OUT.png"], "OUT.png"),
        (["from-prototxt", "net.prototxt", "OUT.yaml"], "OUT.yaml"),
        (["get", "data/lmdb", "0", "--out", "OUT.npy"], "OUT.npy"),
    ],
    ids=["npy", "binaryproto", "inspect", "show", "from-prototxt", "get"],
)
@pytest.mark.parametrize("is_there", [False, True], ids=["new", "old"])
def test_a_full_disk_leaves_no_part_of_a_file(
    arguments: list[str], output: str, folder: Path, *, is_there: bool
) -> None:
    if is_there:
        Path(output).write_bytes(b"old")
    before = content(folder)
    ended = run_on_a_full_disk(100, *arguments, "--force")
    assert (1, "") == (ended.returncode, ended.stdout)
    assert f"error: {output}: cannot be written: File too large; " in ended.stderr
    assert "bytes are free there, in files of 100 bytes at the most (ulimit -f)" in ended.stderr
    assert "make room, or name another place" in ended.stderr
    assert before == content(folder)


@pytest.mark.parametrize("limit", [0, 10, 5000, 20_000])
def test_a_disk_that_is_full_from_the_start_is_told_with_path_and_cure(
    limit: int, folder: Path
) -> None:
    Path("list.txt").write_text("0.png 0\n2.png 2\n" * 300)
    ended = run_on_a_full_disk(limit, "convert", "images", "list.txt", "db")
    assert (1, "") == (ended.returncode, ended.stdout)
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"error: {folder}/db.partial: ")
    assert f"bytes are free there, in files of {limit} bytes at the most (ulimit -f)" in line
    assert not Path("db").exists()
    resumed = run_on_a_full_disk(
        10_000_000, "convert", "images", "list.txt", "db", "--resume", "--json"
    )
    assert 0 == resumed.returncode, resumed.stderr
    assert 600 == json.loads(resumed.stdout)["records"]


@pytest.mark.parametrize("limit", [0, 100, 5000])
@pytest.mark.parametrize(
    "arguments",
    [
        ["merge", "data/lmdb", "data/lmdb", "out", "--renumber"],
        ["reencode", "data/lmdb", "out", "--to", "png"],
        ["split", "data/lmdb", "out", "rest", "--at", "3"],
        ["export", "data/lmdb", "out"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_what_a_full_disk_stops_is_resumed(arguments: list[str], limit: int, folder: Path) -> None:
    if arguments[0] == "export":
        limit //= 100  # its files are small
    ended = run_on_a_full_disk(limit, *arguments)
    assert (1, "") == (ended.returncode, ended.stdout)
    assert f"{folder}/out.partial: " in ended.stderr
    assert "bytes are free there" in ended.stderr
    assert not Path("out").exists()
    resumed = run_on_a_full_disk(10_000_000, *arguments, "--resume")
    assert 0 == resumed.returncode, resumed.stderr
    assert Path("out").is_dir()
    assert not Path("out.partial").exists()


@pytest.mark.usefixtures("folder")
def test_where_the_report_cannot_be_written_the_images_are_still_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    os.mkfifo("pipe")  # without a reader
    assert 1 == main(["convert", "images", "list.txt", "db", "--report", "pipe"])
    err = capsys.readouterr().err
    assert "error: pipe: cannot be written" in err
    assert "1 of 3 images cannot be read" in err


@pytest.mark.parametrize("report", ["pipe", "/dev/full"])
@pytest.mark.usefixtures("folder")
def test_no_database_gets_its_name_before_what_it_lacks_is_listed(
    report: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo("pipe")  # without a reader
    assert 1 == main([*_SKIPPING, report, "--json"])
    out, err = capsys.readouterr()
    assert "" == out
    assert f"error: {report}: cannot be written" in err
    assert "/db.partial: all that can be read is stored; --resume continues it" in err
    assert not Path("db").exists()
    assert 0 == main([*_SKIPPING, "left-out.tsv", "--resume", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert (2, 2, "left-out.tsv") == (
        told["records"],
        told["records_resumed"],
        told["unreadable_report"],
    )


def test_a_report_that_no_file_can_be_made_for_is_told_before_anything_is_converted(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content(folder)
    assert 1 == main([*_SKIPPING, "/proc/left-out.tsv"])
    assert "error: /proc/left-out.tsv: cannot be written" in capsys.readouterr().err
    assert before == content(folder)
    assert not Path("db.partial").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("list.txt/db", "/list.txt is no folder; name another place"),
        ("n" * 250, "File name too long; choose a shorter name"),
        ("/proc/db", "the database cannot be begun there"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_place_where_no_database_can_be_made_is_told(
    name: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == main(["convert", "images", "list.txt", name])
    err = capsys.readouterr().err
    assert words in err
    assert "Errno" not in err
