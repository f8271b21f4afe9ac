"""``ringfeed convert`` and ``ringfeed mean``: what they print, and their exit status."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import fake_plyvel
import numpy as np
import pytest
from databases import names_in, records_of
from image_folders import write_grey_images, write_list
from processes import DEADLINE_S

import prefetch
from prefetch._record.wire import parse_datum
from prefetch._tools.convert.inputs.images import ImageExamples
from prefetch._tools.convert.inputs.listing import Entry, Listing
from prefetch._tools.convert.inputs.treatment import Treatment
from prefetch._transform.mean_file import load_mean
from prefetch.cli import main
from prefetch.testing import fingerprinted_images

if TYPE_CHECKING:
    from numpy.typing import NDArray


@pytest.fixture
def images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make images/0.png to 3.png and their list.txt in the working directory."""
    monkeypatch.chdir(tmp_path)
    write_list(tmp_path / "list.txt", [f"{index}.png" for index in range(4)])
    return write_grey_images(tmp_path / "images", 4, step=10)


def test_convert_says_what_it_stored(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == main(["convert", "images", "list.txt", "db"])
    out, err = capsys.readouterr()
    assert "list, 4 images" in out
    assert "3 x 6 x 8: 4" in out
    assert "" == err


def test_the_json_report_is_all_of_the_output(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["convert", "images/", "list.txt", "db", "--encoded", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report.pop("elapsed_s") > 0
    assert report.pop("size_bytes") == Path("db/data.mdb").stat().st_size
    assert report.pop("file_bytes") == Path("db/data.mdb").stat().st_size
    assert {
        "database": str(Path("db").absolute()),
        "input": "list",
        "num_images": 4,
        "num_records": 4,
        "num_resumed": 0,
        "num_unchanged": 4,
        "num_unreadable": 0,
        "images": 4,
        "records": 4,
        "records_resumed": 0,
        "records_unchanged": 4,
        "shapes": [{"shape": [3, 6, 8], "records": 4}],
        "has_labels": True,
        "class_names": {},
        "classes": {},
        "unreadable": 0,
        "unreadable_report": None,
    } == report


def test_caffes_spelling_of_options_works_too(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--resize_width=4", "--resize_height=2", "--check_size", "--encode_type=jpg"]
    assert 0 == main(["convert", *options, "--backend=lmdb", "images", "list.txt", "db", "--json"])
    assert [2, 4] == json.loads(capsys.readouterr().out)["shapes"][0]["shape"][1:]


def test_class_folders_come_with_a_file_of_their_labels(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("dog", "cat"):
        (images / name).mkdir()
        (images / name / "a.png").write_bytes((images / "1.png").read_bytes())
    assert 0 == main(["convert", "images", "db", "--json"])
    assert {"cat": 0, "dog": 1} == json.loads(capsys.readouterr().out)["classes"]
    assert "0\tcat\n1\tdog\n" == Path("db/classes.tsv").read_text()


def test_unreadable_images_exit_with_1_and_are_listed_in_a_file(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "2.png").unlink()
    assert 1 == main(["convert", "images", "list.txt", "db"])
    err = capsys.readouterr().err
    assert "1 of 4 images cannot be read" in err
    assert f"{images}/2.png: No such file or directory" in err
    assert not Path("db").exists()
    expected = f"2\t{images}/2.png\tNo such file or directory\n"
    assert expected == Path("db.unreadable.tsv").read_text()
    (images / "2.png").write_bytes((images / "1.png").read_bytes())
    assert 0 == main(["convert", "images", "list.txt", "db", "--resume"])
    assert ["db", "images", "list.txt"] == names_in(Path())


def test_skipped_images_are_counted_and_listed(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "2.png").unlink()
    (images / "3.png").write_bytes(b"no image")
    options = ["--skip-unreadable", "--report", "left-out.tsv", "--json"]
    assert 0 == main(["convert", "images", "list.txt", "db", *options])
    report = json.loads(capsys.readouterr().out)
    assert (4, 2, 2) == (report["images"], report["records"], report["unreadable"])
    assert "left-out.tsv" == report["unreadable_report"]
    listed = [line.split("\t")[:2] for line in Path("left-out.tsv").read_text().splitlines()]
    assert [["2", f"{images}/2.png"], ["3", f"{images}/3.png"]] == listed


def test_a_name_that_is_no_utf_8_or_would_steer_the_terminal_is_told_escaped(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("list.txt").write_bytes(b"0.png 0\nk\xf6ln.png 1\n\x1b[31m.png 2\n")
    assert 1 == main(["convert", "images", "list.txt", "db"])
    err = capsys.readouterr().err
    assert r"/k\xf6ln.png: No such file" in err
    assert r"/\x1b[31m.png: No such file" in err
    name = "new\nline\x1b"
    Path("list.txt").write_text("0.png 0\n")
    assert 0 == main(["convert", "images", "list.txt", name])
    assert r"database  new\nline\x1b" in capsys.readouterr().out


def test_where_all_fail_the_count_and_the_first_are_told_and_nothing_is_left(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = names_in(Path())
    (images.parent / "empty").mkdir()
    assert 1 == main(["convert", "empty", "list.txt", "db", "--skip-unreadable"])
    err = capsys.readouterr().err
    assert "none of the 4 images can be read" in err
    assert f"the first is {images.parent}/empty/0.png" in err
    assert ["empty", *before] == sorted(names_in(Path()))


def test_bad_labels_exit_with_1_and_their_lines(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("list.txt").write_text("0.png 0\n1.png -1\n2.png 0.5\n")
    assert 1 == main(["convert", "images", "list.txt", "db"])
    err = capsys.readouterr().err
    assert "line 2: the label -1 is negative; --labels int32" in err
    assert "line 3: the label '0.5' is no integer" in err
    assert not list(Path().glob("db*"))
    assert 0 == main(["convert", "images", "list.txt", "db", "--labels", "caffe"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["images", "db", "--layout", "nchw"], "--layout: not for input of the kind folders"),
        (["images", "list.txt", "db", "--encode-type", "xyz"], "can be written"),
        (["images", "list.txt", "db", "--arrays", "x"], "IMAGES,LABELS"),
        (["images", "list.txt", "list.txt", "db"], "expected ROOT and LIST"),
        (["images", "list.txt", "db", "--seed", "-1"], "'--seed'"),
        (["images", "list.txt", "db", "--backend", "leveldb"], "lmdb"),
        (["db"], "DB"),
    ],
)
def test_a_wrong_use_exits_with_2(
    arguments: list[str], words: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["convert", *arguments])
    assert words in capsys.readouterr().err
    assert ["images", "list.txt"] == names_in(Path())


@pytest.mark.parametrize(
    "arguments",
    [
        ["images", "list.txt", "list.txt"],
        ["images", "list.txt", "images/../list.txt"],
        ["images", "list.txt", "images"],
        ["images", "images"],
        ["x.npy", "x.npy"],
        ["x.npy", "y.npy", "link"],
        ["images", "a.partial", "a"],
    ],
    ids=" ".join,
)
def test_a_database_in_the_place_of_what_is_read_is_a_wrong_use(
    arguments: list[str], images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("x.npy", np.zeros((2, 6, 5, 3), np.uint8))
    np.save("y.npy", np.array([1, 2]))
    Path("link").symlink_to("y.npy")
    Path("a.partial").hardlink_to("list.txt")
    before = names_in(Path()), names_in(images)
    assert 2 == main(["convert", *arguments])
    err = capsys.readouterr().err
    assert "which is read; DB, the last argument, is another folder" in err
    assert "remove" not in err
    assert before == (names_in(Path()), names_in(images))


@pytest.mark.parametrize("arguments", [["images", "list.txt"], ["x.npy", "images"]])
def test_where_the_database_was_forgotten_nobody_is_told_to_remove_an_input(
    arguments: list[str], images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("x.npy", np.zeros((2, 6, 5, 3), np.uint8))
    assert 1 == main(["convert", *arguments])
    err = capsys.readouterr().err
    assert f"{images.parent}/{arguments[-1]}: is there already and is no database; name" in err
    assert "remove" not in err


def test_a_wrong_path_is_told_in_full(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 1 == main(["convert", "pictures", "list.txt", "db"])
    assert f"{Path('pictures').absolute()}: there is no such" in capsys.readouterr().err
    assert ["images", "list.txt"] == names_in(Path())


def test_a_database_that_is_there_is_told_before_anything_is_read(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("db").mkdir()
    assert 1 == main(["convert", "images", "nothing.txt", "db"])
    assert f"{Path('db').absolute()}: is there already; remove it" in capsys.readouterr().err


def test_resuming_ends_well_where_the_same_conversion_has_finished(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "k\udcf6ln.png").touch()
    Path("list.txt").write_bytes(b"0.png 0\n1.png 1\nk\xf6ln.png 2\n")
    command = ["convert", "images", "list.txt", "db", "--skip-unreadable", "--resume", "--json"]
    assert 0 == main(command)
    first = json.loads(capsys.readouterr().out)
    listed = Path("db.unreadable.tsv").read_bytes()
    Path("db.unreadable.tsv").unlink()
    before = Path("db/data.mdb").stat()
    assert 0 == main(command)
    out, err = capsys.readouterr()
    assert f"{Path('db').absolute()}: is finished already, by the same names, labels and" in err
    again = json.loads(out)
    assert again.pop("elapsed_s") >= 0
    del first["elapsed_s"]
    assert {**first, "num_resumed": 2, "records_resumed": 2} == again
    assert listed == Path("db.unreadable.tsv").read_bytes()
    assert before == Path("db/data.mdb").stat()


@pytest.mark.parametrize(
    "change",
    [["--gray"], ["--skip-unreadable"], ["--check-size"], ["a label"], ["no record of it"]],
)
def test_a_finished_database_of_anything_else_is_in_the_way(
    change: list[str], images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cv2.imwrite(str(images / "1.png"), np.zeros((7, 8, 3), np.uint8))
    (images / "3.png").unlink()
    command = ["convert", "images", "list.txt", "db", "--resume"]
    assert 0 == main([*command, "--skip-unreadable"])
    changed = [*command, "--skip-unreadable", *change]
    if change == ["--skip-unreadable"]:
        changed = command
    elif change == ["a label"]:
        Path("list.txt").write_text(Path("list.txt").read_text().replace("1.png 1", "1.png 7"))
        changed = changed[:-1]
    elif change == ["no record of it"]:
        Path("db/conversion.json").unlink()
        changed = changed[:-1]
    before = Path("db/data.mdb").stat()
    assert 1 == main(changed)
    assert "is there already; remove it" in capsys.readouterr().err
    assert before == Path("db/data.mdb").stat()


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize(("given", "missing"), [("height", "width"), ("width", "height")])
def test_one_size_alone_is_a_wrong_use(
    given: str, missing: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["convert", "images", "list.txt", "db", f"--resize-{given}", "3"])
    err = " ".join(capsys.readouterr().err.split())
    assert f"--resize-{given} has no effect without --resize-{missing}" in err
    assert "--resize-shorter 3" in err
    assert not Path("db").exists()


def test_force_begins_anew_where_an_interrupted_conversion_is_of_other_options(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("images/broken.png").write_bytes(b"no image")
    with Path("list.txt").open("a") as names:
        names.write("broken.png 1\n")
    command = ["convert", str(images), "list.txt", "db"]
    assert 1 == main([*command, "--gray"])
    changed = [*command, "--skip-unreadable"]
    assert 1 == main(changed)
    assert "continue it with --resume, or begin anew with --force" in capsys.readouterr().err
    assert 1 == main([*changed, "--resume"])
    assert "or begin anew with --force, without --resume" in capsys.readouterr().err
    foreign = Path("db.partial/database/precious")
    foreign.write_text("mine")
    assert 1 == main([*changed, "--force"])
    assert f"{foreign}: --force does not remove it" in capsys.readouterr().err
    assert Path("db.partial/database/data.mdb").exists()
    foreign.unlink()
    assert 0 == main([*changed, "--force"])
    assert not Path("db.partial").exists()
    with prefetch.open("db", batch_size=1) as feed:
        assert 3 == next(iter(feed)).data.shape[1]


def test_records_that_a_feed_needs_options_for_are_warned_of(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cv2.imwrite(str(images / "1.png"), np.zeros((7, 8), np.uint8))
    assert 0 == main(["convert", "images", "list.txt", "db", "--encoded"])
    err = capsys.readouterr().err
    assert "records of 1 and 3 channels; a feed needs force_color" in err
    assert "several sizes; a feed needs a crop_size" in err


def test_shapes_of_all_records_are_reported_and_warned_of_after_a_resume(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cv2.imwrite(str(images / "1.png"), np.zeros((7, 8), np.uint8))
    (images / "3.png").unlink()
    assert 1 == main(["convert", "images", "list.txt", "db", "--encoded"])
    cv2.imwrite(str(images / "3.png"), np.zeros((6, 8, 3), np.uint8))
    capsys.readouterr()
    assert 0 == main(["convert", "images", "list.txt", "db", "--encoded", "--resume", "--json"])
    out, err = capsys.readouterr()
    report = json.loads(out)
    assert [{"shape": [3, 6, 8], "records": 3}, {"shape": [1, 7, 8], "records": 1}] == (
        report["shapes"]
    )
    assert (4, 3, 4) == (
        report["records"],
        report["records_resumed"],
        report["records_unchanged"],
    )
    assert "records of 1 and 3 channels; a feed needs force_color" in err
    assert "several sizes; a feed needs a crop_size" in err


# One of the images takes until the test lets it go on.
_SLOW = """
    import sys
    from prefetch._tools.convert.inputs.images import ImageExamples
    from prefetch.cli import main

    read = ImageExamples.read

    def read_slowly(self, index):
        if index == 20:
            print("now", flush=True)
            sys.stdin.readline()
        return read(self, index)

    ImageExamples.read = read_slowly
    sys.exit(main(["convert", "images", "list.txt", "db", "--threads", "1"]))
"""


def test_ctrl_c_exits_with_130_and_says_how_to_go_on(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("list.txt").write_text("".join(f"{index % 4}.png 0\n" for index in range(100)))
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(_SLOW)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert "now\n" == process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate("go on\n", timeout=DEADLINE_S)
    assert 130 == process.returncode, err
    (num_stored,) = re.findall(r"db\.partial: (\d+) of 100 records stored; --resume continues", err)
    assert "Traceback" not in err
    assert not Path("db").exists()
    capsys.readouterr()
    assert 0 == main(["convert", "images", "list.txt", "db", "--resume", "--json"])
    report = json.loads(capsys.readouterr().out)
    # Nothing that was done is done again, though it was too little for a commit.
    assert (100, int(num_stored)) == (report["records"], report["records_resumed"])
    assert int(num_stored) > 0


@pytest.mark.parametrize("kind", ["folders", "list"])
def test_a_pipe_among_the_images_is_unreadable_and_no_hang(
    kind: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.mkfifo(images / "pipe.png")
    Path("list.txt").write_text("0.png 0\npipe.png 1\n")
    if kind == "folders":
        Path("classes").mkdir()
        images.rename("classes/images")
    inputs = ["images", "list.txt"] if kind == "list" else ["classes"]
    assert 1 == main(["convert", *inputs, "db"])
    assert "pipe.png: is a pipe (FIFO), and a regular file" in capsys.readouterr().err
    assert 0 == main(["convert", *inputs, "db", "--resume", "--skip-unreadable"])


def test_mean_writes_a_mean_file_and_the_channels_means(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["convert", "images", "list.txt", "db"])
    capsys.readouterr()
    assert 0 == main(["mean", "db", "mean.binaryproto", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert ([3, 6, 8], 4, [15.0] * 3, False) == (
        report["shape"],
        report["records"],
        report["channel_means"],
        report["exact"],
    )
    np.testing.assert_array_equal(
        np.full((3, 6, 8), 15, np.float32), load_mean(Path("mean.binaryproto"))
    )
    assert 0 == main(["mean", "db", "mean.npy", "--exact"])
    assert "channel 2  15\n" in capsys.readouterr().out
    np.testing.assert_array_equal(load_mean(Path("mean.npy")), load_mean(Path("mean.binaryproto")))


def test_mean_refuses_several_sizes_with_the_key(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cv2.imwrite(str(images / "2.png"), np.zeros((8, 6, 3), np.uint8))
    assert 0 == main(["convert", "images", "list.txt", "db"])
    capsys.readouterr()
    assert 1 == main(["mean", "db", "mean.npy"])
    err = capsys.readouterr().err
    assert "key '00000002_2.png'" in err
    assert "the record is 3 x 8 x 6" in err
    assert "the first record is 3 x 6 x 8" in err
    assert not Path("mean.npy").exists()


@pytest.mark.parametrize(
    "arguments", [["db", "mean.txt"], ["db", "--force-color", "--force-gray"], []]
)
def test_a_wrong_use_of_mean_exits_with_2(arguments: list[str], images: Path) -> None:
    assert 2 == main(["mean", *arguments])


def test_mean_of_a_database_that_is_not_there_exits_with_1(images: Path) -> None:
    assert 1 == main(["mean", "none", "mean.npy"])
    assert not Path("mean.npy").exists()


def test_names_that_are_no_text_are_stored_and_reported(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "k\udcf6ln.png").write_bytes((images / "1.png").read_bytes())
    Path("list.txt").write_bytes(b"k\xf6ln.png 1\nk\xf6nig.png 1\n")
    assert 0 == main(["convert", "images", "list.txt", "db", "--skip-unreadable", "--json"])
    assert 1 == json.loads(capsys.readouterr().out)["unreadable"]
    assert b"k\xf6nig.png" in Path("db.unreadable.tsv").read_bytes()


def test_arrays_convert_from_the_command_line(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez("x.npz", a=np.zeros((2, 6, 5, 3), np.uint8), b=np.array([1, 2]))
    assert 0 == main(["convert", "x.npz", "db", "--arrays", "a,b", "--reverse-channels"])
    assert "3 x 6 x 5: 2" in capsys.readouterr().out


def test_arrays_without_labels_are_told(images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.zeros((2, 6, 5, 3), np.uint8))
    np.save("y.npy", np.array([1, 2]))
    assert 0 == main(["convert", "x.npy", "db"])
    assert re.search(r"^labels +none$", capsys.readouterr().out, re.MULTILINE)
    assert 0 == main(["convert", "x.npy", "db2", "--json"])
    assert json.loads(capsys.readouterr().out)["has_labels"] is False
    assert 0 == main(["convert", "x.npy", "y.npy", "db3"])
    assert "labels" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["0.png", "none.png"], "read"),
        (["0.png", "photo"], "written"),
        (["0.png", "photo", "none.png"], "read or written"),
    ],
)
def test_what_cannot_be_written_is_not_said_to_be_unreadable(
    names: list[str], words: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (images / "photo").write_bytes((images / "1.png").read_bytes())
    write_list(Path("list.txt"), names)
    assert 1 == main(["convert", "images", "list.txt", "db", "--encoded"])
    err = capsys.readouterr().err
    assert f"{len(names) - 1} of {len(names)} images cannot be {words}:" in err
    assert f"that cannot be {words}\n" in err
    write_list(Path("list.txt"), names[1:2])
    assert 1 == main(["convert", "images", "list.txt", "db2", "--encoded"])
    err = capsys.readouterr().err
    what = "read" if names[1] == "none.png" else "written"
    assert f"the only image cannot be {what}, so that no database is made" in err
    assert ("relative to ROOT?" in err) == (names[1] == "none.png")


# --- sizes, backgrounds, orders --------------------------------------------------------------


def pixels_of(database: str) -> list[NDArray[Any]]:
    """Return the pixels of a raw database's records, (height, width, channels)."""
    found = [parse_datum(memoryview(value)) for value in records_of(Path(database)).values()]
    return [one.pixels(np.dtype(np.float32)).transpose(1, 2, 0) for one in found]


def test_the_shorter_side_is_resized_and_the_middle_cut_out(images: Path) -> None:
    rng = np.random.default_rng(0)
    wide, high = rng.integers(0, 256, (10, 25, 3), np.uint8), rng.integers(0, 256, (25, 11, 3))
    for index, image in enumerate((wide, high)):
        cv2.imwrite(str(images / f"{index}.png"), image)
    Path("list.txt").write_text("0.png 0\n1.png 1\n", encoding="utf-8")
    options = ["--resize-shorter", "7", "--center-crop", "6"]
    assert 0 == main(["convert", "images", "list.txt", "db", *options])
    resized = cv2.resize(wide, (17, 7)), cv2.resize(high.astype(np.uint8), (7, 15))
    expected = [resized[0][0:6, 5:11], resized[1][4:10, 0:6]]
    for image, found in zip(expected, pixels_of("db"), strict=True):
        np.testing.assert_array_equal(image, found)


def test_an_image_too_small_for_its_crop_is_listed_with_the_cure(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 1 == main(["convert", "images", "list.txt", "db", "--center-crop", "7"])
    assert "--resize-shorter 7 makes it large enough" in capsys.readouterr().err
    assert images.is_dir()


@pytest.mark.usefixtures("images")
@pytest.mark.parametrize(
    "options",
    [
        ["--resize-shorter", "4", "--resize-width", "4"],
        ["--quality", "50"],
        ["--background", "reddish"],
        ["--background", "1,2,300"],
        ["--quality", "101", "--encoded"],
    ],
)
def test_options_of_images_that_contradict_are_a_wrong_use(options: list[str]) -> None:
    assert 2 == main(["convert", "images", "list.txt", "db", *options])
    assert not Path("db").exists()


@pytest.mark.parametrize(
    ("color", "behind"),
    [("white", (255, 255, 255)), ("#FF8000", (255, 128, 0)), ("1, 2,3", (1, 2, 3))],
)
def test_alpha_is_blended_with_a_background(
    color: str, behind: tuple[int, int, int], images: Path
) -> None:
    image = np.zeros((4, 3, 4), np.uint8)
    image[0] = (10, 20, 30, 255)
    image[1] = (10, 20, 30, 0)
    image[2:] = (100, 0, 200, 51)
    cv2.imwrite(str(images / "0.png"), image)
    Path("list.txt").write_text("0.png 0\n1.png 1\n", encoding="utf-8")
    assert 0 == main(["convert", "images", "list.txt", "db", "--background", color])
    found, opaque = pixels_of("db")
    blue_first = np.array(behind[::-1])
    np.testing.assert_array_equal(found[0, 0], (10, 20, 30))
    np.testing.assert_array_equal(found[1, 0], blue_first)
    np.testing.assert_array_equal(
        found[2, 0], np.round(0.2 * np.array([100, 0, 200]) + 0.8 * blue_first).astype(int)
    )
    np.testing.assert_array_equal(opaque, np.full((6, 8, 3), 10))


@pytest.mark.parametrize("ending", ["png", "webp"])
def test_images_whose_alpha_is_dropped_are_counted(
    ending: str, images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cv2.imwrite(str(images / f"a.{ending}"), np.full((4, 3, 4), 7, np.uint8))
    cv2.imwrite(str(images / f"b.{ending}"), np.full((4, 3, 3), 7, np.uint8))
    write_list(Path("list.txt"), [f"a.{ending}", f"b.{ending}", "1.png"])
    assert 0 == main(["convert", "images", "list.txt", "db"])
    assert "dropped of 1 image, which may show what it hid; see --background" in (
        capsys.readouterr().out
    )
    assert 0 == main(["convert", "images", "list.txt", "other", "--background", "white"])
    assert "alpha" not in capsys.readouterr().out


def test_without_a_background_alpha_is_dropped_as_ever(images: Path) -> None:
    cv2.imwrite(str(images / "0.png"), np.full((4, 3, 4), 7, np.uint8))
    Path("list.txt").write_text("0.png 0\n", encoding="utf-8")
    assert 0 == main(["convert", "images", "list.txt", "db"])
    np.testing.assert_array_equal(pixels_of("db")[0], np.full((4, 3, 3), 7))


def test_the_report_has_hints_on_grey_images_and_on_the_order_of_classes(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("classes").mkdir()
    images.rename("classes/grey")
    assert 0 == main(["convert", "classes", "db"])
    out, err = capsys.readouterr()
    assert "all grey, stored as three equal planes; --gray stores one" in out
    assert "class by class: train with shuffle: true, or store with --shuffle" in out
    assert "" == err
    assert 0 == main(["convert", "classes", "other", "--gray", "--shuffle"])
    out = capsys.readouterr().out
    assert "planes" not in out
    assert "class by class" not in out


def test_drafts_of_before_there_were_sizes_of_one_side_are_known_by_the_same_digest() -> None:
    listing = Listing("/", (Entry("a.png", 1),))
    fingerprint = ImageExamples(listing, Treatment(gray=True)).fingerprint()
    options = {
        "gray": True,
        "resize_height": 0,
        "resize_width": 0,
        "encoded": False,
        "encode_type": "",
    }
    digest = hashlib.sha256(json.dumps(options).encode()).hexdigest()
    assert digest == fingerprint["options"]
    cropped = ImageExamples(listing, Treatment(gray=True, center_crop=3)).fingerprint()
    assert digest != cropped["options"]


# --- LevelDB ---------------------------------------------------------------------------------


@pytest.fixture(params=["plyvel", "fake"])
def leveldb(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, dict[bytes, bytes]]:
    """Make a LevelDB of some records, and return its folder and what is in it."""
    if request.param == "fake":
        monkeypatch.setitem(sys.modules, "plyvel", fake_plyvel)
    plyvel = pytest.importorskip("plyvel", reason="plyvel, which makes LevelDBs, is not installed")
    monkeypatch.chdir(tmp_path)
    records = dict(fingerprinted_images(20)) | {b"odd": b"\xff\xff"}
    with plyvel.DB("level", create_if_missing=True) as database:
        for key, value in records.items():
            database.put(key, value)
    return tmp_path / "level", records


def test_a_leveldb_is_copied_bit_for_bit(
    leveldb: tuple[Path, dict[bytes, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    folder, records = leveldb
    assert 0 == main(["convert", "level", "db"])
    assert "leveldb, 21 images" in capsys.readouterr().out
    assert records == records_of(Path("db"))
    assert 0 == main(["convert", str(folder), "other", "--from", "leveldb", "--json"])
    assert 21 == json.loads(capsys.readouterr().out)["num_records"]


@pytest.mark.usefixtures("leveldb")
@pytest.mark.parametrize("options", [["--shuffle"], ["--gray"], ["--labels", "int32"]])
def test_options_for_images_are_a_wrong_use_with_a_leveldb(options: list[str]) -> None:
    assert 2 == main(["convert", "level", "db", *options])


def test_a_leveldb_without_plyvel_is_answered_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "plyvel", None)
    Path("level").mkdir()
    for name in ("CURRENT", "MANIFEST-000002"):
        (Path("level") / name).touch()
    assert 1 == main(["convert", "level", "db"])
    assert "pip install plyvel" in capsys.readouterr().err
    assert not Path("db.partial").exists()


def test_a_leveldb_that_is_none_or_in_use_is_told(
    leveldb: tuple[Path, dict[bytes, bytes]], capsys: pytest.CaptureFixture[str]
) -> None:
    import plyvel  # noqa: PLC0415 - the fixture has seen that it is there

    with plyvel.DB(str(leveldb[0])):
        assert 1 == main(["convert", "level", "db"])
    assert "LevelDB cannot open it" in capsys.readouterr().err
    Path("empty").mkdir()
    assert 1 == main(["convert", "empty", "db", "--from", "leveldb"])
    assert "is no LevelDB" in capsys.readouterr().err


# --- mean files ------------------------------------------------------------------------------


def test_a_mean_file_is_written_as_an_array_and_back(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["convert", "images", "list.txt", "db"])
    assert 0 == main(["mean", "db", "mean.binaryproto"])
    assert 0 == main(["mean", "mean.binaryproto", "mean.npy"])
    np.testing.assert_array_equal(load_mean(Path("mean.binaryproto")), np.load("mean.npy"))
    assert 0 == main(["mean", "mean.npy", "again.binaryproto"])
    assert Path("mean.binaryproto").read_bytes() == Path("again.binaryproto").read_bytes()
    capsys.readouterr()
    assert 0 == main(["mean", "mean.npy", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert (None, [15, 15, 15]) == (report["num_records"], report["channel_means"])
    assert images.is_dir()


def test_a_mean_is_drawn_from_a_database_or_a_file(
    images: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 0 == main(["convert", "images", "list.txt", "db"])
    assert 0 == main(["mean", "db", "mean.npy", "--show", "one.png"])
    assert "picture" in capsys.readouterr().out
    mean = np.stack([np.full((6, 8), value, np.float32) for value in (90, 120, 150)])
    np.save("colour.npy", mean)
    for channels, colour in (("bgr", (90, 120, 150)), ("rgb", (150, 120, 90))):
        command = ["mean", "colour.npy", "--show", "two.png", "--channels", channels, "--force"]
        assert 0 == main(command)
        picture = cv2.imread("two.png")
        assert picture is not None
        assert colour in {tuple(pixel) for pixel in picture.reshape(-1, 3).tolist()}
    assert 2 == main(["mean", "mean.npy", "--show", "one.png"])
    assert 2 == main(["mean", "db", "--show", "mean.txt"])
    assert images.is_dir()


@pytest.mark.usefixtures("images")
def test_a_mean_file_is_read_and_never_written_over_or_computed() -> None:
    np.save("mean.npy", np.zeros((1, 2, 2), np.float32))
    assert 2 == main(["mean", "mean.npy", "mean.npy", "--force"])
    assert 2 == main(["mean", "mean.npy", "--exact"])
    Path("bad.binaryproto").write_bytes(b"\xff\xff")
    assert 1 == main(["mean", "bad.binaryproto", "x.npy"])
    assert not Path("x.npy").exists()
