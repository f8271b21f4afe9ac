"""Commands on stored records: get, export, merge, split, reencode, labels."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from databases import names_in, records_of
from image_folders import write_list

import prefetch
from prefetch._record.wire import encode_datum, parse_datum
from prefetch.caffe import Datum
from prefetch.cli import main
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Callable

Run = Any


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a database of ten raw records and one of files."""
    monkeypatch.chdir(tmp_path)
    write_database(Path("raw"), fingerprinted_images(10))
    rng = np.random.default_rng(1)
    Path("photos").mkdir()
    for number in range(6):
        ending = "png" if number % 2 else "jpg"
        cv2.imwrite(f"photos/{number}.{ending}", rng.integers(0, 256, (12, 16, 3), np.uint8))
    names = sorted(path.name for path in Path("photos").iterdir())
    write_list(Path("photos.txt"), names)
    assert 0 == main(["convert", "photos", "photos.txt", "files", "--encoded"])
    return tmp_path


@pytest.fixture
def run(folder: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; return its exit status, its output and its messages."""
    capsys.readouterr()

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def report(run: Run, *arguments: str) -> Any:
    status, out, err = run(*arguments, "--json")
    assert (0, "") == (status, err)
    return json.loads(out)


# --- get -------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["00000007", "7"])
def test_a_record_is_got_by_its_key_or_its_number(wanted: str, run: Run) -> None:
    found = report(run, "get", "raw", wanted)
    assert (7, "00000007", 7) == (found["record"], found["key"], found["label"])
    assert ("raw", [3, 8, 8]) == (found["kind"], found["shape"])


def test_a_key_wins_over_a_number(run: Run) -> None:
    images = fingerprinted_images(3)
    write_database(Path("db"), zip((b"2", b"1", b"0"), (value for _, value in images), strict=True))
    assert 0 == report(run, "get", "db", "2")["label"]


def test_a_key_that_is_no_text_is_named_as_reports_print_it(run: Run) -> None:
    key = b"caf\xe9\t\\1"
    write_database(Path("db"), [(key, encode_image(np.zeros((1, 2, 2), np.uint8), label=4))])
    shown = report(run, "get", "db", "0")["key"]
    assert 4 == report(run, "get", "db", shown)["label"]
    assert 4 == report(run, "get", "db", os.fsdecode(key))["label"]


@pytest.mark.parametrize("wanted", ["nope", "10", "9" * 40, ""])
def test_what_no_record_is_called_is_answered_with_what_there_is(wanted: str, run: Run) -> None:
    status, out, err = run("get", "raw", wanted)
    assert (1, "") == (status, out)
    assert "keys go from 00000000 to 00000009, numbers from 0 to 9" in err


def piped(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[int, bytes]:
    """Run a command with its output into a pipe; return its status and what came through."""
    content = io.BytesIO()
    output = io.TextIOWrapper(content, encoding="utf-8", write_through=True)
    monkeypatch.setattr(sys, "stdout", output)
    status = main(arguments)
    output.flush()
    return status, content.getvalue()


def test_into_a_pipe_goes_the_image_file_that_is_stored(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = (folder / "photos" / "0.jpg").read_bytes()
    assert (0, expected) == piped(monkeypatch, "get", "files", "0")


def test_into_a_pipe_a_raw_record_goes_as_png(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    write_database(folder / "db", [(b"a", encode_image(pixels, label=0))])
    status, content = piped(monkeypatch, "get", "db", "a")
    image = cv2.imdecode(np.frombuffer(content, np.uint8), cv2.IMREAD_UNCHANGED)
    assert 0 == status
    assert image is not None
    np.testing.assert_array_equal(pixels, image.transpose(2, 0, 1))


def test_floats_and_many_channels_are_got_as_arrays(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    floats = encode_datum(channels=2, height=1, width=2, floats=[1.5, -2, 0, 4], label=0)
    planes = encode_image(np.arange(20, dtype=np.uint8).reshape(5, 2, 2), label=0)
    write_database(folder / "db", [(b"f", floats), (b"p", planes)])
    for key, expected in (("f", [[[1.5, -2]], [[0, 4]]]), ("p", np.arange(20).reshape(5, 2, 2))):
        status, content = piped(monkeypatch, "get", "db", key)
        assert 0 == status
        np.testing.assert_array_equal(np.load(io.BytesIO(content)), expected)


def test_the_name_of_the_file_says_what_it_is(run: Run) -> None:
    value = records_of(Path("files"))[b"00000000_0.jpg"]
    for name in ("r.jpg", "r.png", "r.npy", "r.datum"):
        status, out, err = run("get", "files", "0", "--out", name)
        assert (0, "") == (status, err)
        assert name in out
    assert Path("photos/0.jpg").read_bytes() == Path("r.jpg").read_bytes()
    assert value == Path("r.datum").read_bytes()
    np.testing.assert_array_equal(
        np.load("r.npy").transpose(1, 2, 0), cv2.imread("r.png", cv2.IMREAD_UNCHANGED)
    )


def test_a_file_is_got_over_another_by_force_only(run: Run) -> None:
    Path("r.png").write_bytes(b"mine")
    assert 2 == run("get", "raw", "0", "--out", "r.png")[0]
    assert b"mine" == Path("r.png").read_bytes()
    assert 0 == run("get", "raw", "0", "--out", "r.png", "--force")[0]
    assert b"\x89PNG" == Path("r.png").read_bytes()[:4]


@pytest.mark.parametrize("name", ["r", "r.txt", "r.gif"])
def test_a_file_of_no_type_that_is_written_is_a_wrong_use(name: str, run: Run) -> None:
    status, _, err = run("get", "raw", "0", "--out", name)
    assert 2 == status
    assert ".npy takes any pixels" in err
    assert not Path(name).exists()


def test_a_damaged_record_is_described_and_got_as_its_bytes(run: Run) -> None:
    write_database(Path("db"), [(b"bad", b"\xff\xff")])
    found = report(run, "get", "db", "bad")
    assert ("damaged", None) == (found["kind"], found["label"])
    assert found["fault"]
    assert 0 == run("get", "db", "bad", "--out", "bad.datum")[0]
    assert b"\xff\xff" == Path("bad.datum").read_bytes()
    status, _, err = run("get", "db", "bad")
    assert 1 == status
    assert "--json describes it" in err


# --- export ----------------------------------------------------------------------------------


def test_what_was_converted_as_files_comes_back_bit_for_bit(run: Run) -> None:
    found = report(run, "export", "files", "out")
    assert (6, {"jpg": 3, "png": 3}) == (found["num_files"], found["kinds"])
    assert [*names_in(Path("photos")), "list.txt"] == names_in(Path("out"))
    for path in Path("photos").iterdir():
        assert path.read_bytes() == (Path("out") / path.name).read_bytes()
    assert 0 == run("convert", "out", "out/list.txt", "again", "--encoded")[0]
    assert records_of(Path("files")) == records_of(Path("again"))


def test_raw_records_come_back_with_their_pixels_and_labels(run: Run) -> None:
    report(run, "export", "raw", "out")
    assert 0 == run("convert", "out", "out/list.txt", "again")[0]
    for before, after in zip(
        records_of(Path("raw")).values(), records_of(Path("again")).values(), strict=True
    ):
        one, other = parse_datum(memoryview(before)), parse_datum(memoryview(after))
        assert (one.data, one.label) == (other.data, other.label)


def test_class_folders_are_named_by_the_classes(run: Run) -> None:
    for name in ("cat", "dog"):
        Path(f"classes/{name}").mkdir(parents=True)
        cv2.imwrite(f"classes/{name}/0.png", np.full((4, 4, 3), len(name), np.uint8))
    assert 0 == run("convert", "classes", "db", "--encoded")[0]
    report(run, "export", "db", "out", "--by-class")
    assert ["cat", "classes.tsv", "dog", "list.txt"] == names_in(Path("out"))
    assert "cat/0.png 0\ndog/0.png 1\n" == Path("out/list.txt").read_text(encoding="utf-8")
    for name in ("list.txt", "classes.tsv"):
        (Path("out") / name).unlink()
    assert 0 == run("convert", "out", "again", "--encoded")[0]
    assert records_of(Path("db")) == records_of(Path("again"))


def test_no_key_leads_out_of_the_folder(run: Run) -> None:
    keys = [
        b"../up",
        b"/root",
        b"a",
        b"a/b",
        b"a/b/c",
        b"x\ny",
        b"list.txt",
        b"00000001_",
        b"z" * 300,
    ]
    image = encode_image(np.zeros((1, 2, 2), np.uint8), label=0)
    write_database(Path("db"), [(key, image) for key in keys])
    report(run, "export", "db", "deep/out")
    assert ["deep", "files", "photos", "photos.txt", "raw"] == sorted({*names_in(Path())} - {"db"})
    listed = Path("deep/out/list.txt").read_text(encoding="utf-8").splitlines()
    assert len(keys) == len(listed) == len(set(listed))
    for line in listed:
        assert (Path("deep/out") / line.rpartition(" ")[0]).is_file()


def test_classes_whose_names_are_no_folders_are_named_by_their_labels(run: Run) -> None:
    images = [encode_image(np.zeros((1, 2, 2), np.uint8), label=label) for label in range(4)]
    write_database(Path("db"), [(b"%d" % at, image) for at, image in enumerate(images)])
    table = "0\t../x\n1\tsame\n2\tsame\n3\tlist.txt\n"
    Path("db/classes.tsv").write_text(table, encoding="utf-8")
    report(run, "export", "db", "out", "--by-class")
    assert ["class-0", "class-2", "class-3", "classes.tsv", "list.txt", "same"] == names_in(
        Path("out")
    )
    assert table == Path("out/classes.tsv").read_text(encoding="utf-8")


def test_a_record_without_pixels_stops_an_export_that_can_be_continued(run: Run) -> None:
    good = encode_image(np.zeros((1, 2, 2), np.uint8), label=0)
    write_database(Path("db"), [(b"a", good), (b"b", b"\xff"), (b"c", good)])
    status, _, err = run("export", "db", "out")
    assert 1 == status
    assert "record 1 (b)" in err
    assert not Path("out").exists()
    assert "--resume" in run("export", "db", "out")[2]
    status, out, err = run("export", "db", "out", "--resume", "--skip-unreadable", "--json")
    assert 0 == status
    assert "record 1 (b)" in err
    found = json.loads(out)
    assert (2, 1, 1) == (found["num_files"], found["num_resumed"], found["num_unreadable"])
    assert ["a.png", "c.png", "list.txt"] == names_in(Path("out"))
    assert not Path("out.partial").exists()


def test_an_export_that_ctrl_c_interrupts_is_resumed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("prefetch._tools.stored.export._Writer._put", interrupted)
        status, _, err = run("export", "raw", "out")
    assert 130 == status
    assert "0 of 10 records written; --resume continues it" in err
    assert not Path("out").exists()
    assert 1 == run("export", "files", "out", "--resume")[0]
    assert 10 == report(run, "export", "raw", "out", "--resume")["num_files"]


def test_an_export_takes_no_place_of_anything(run: Run) -> None:
    Path("out").mkdir()
    status, _, err = run("export", "raw", "out")
    assert 1 == status
    assert "is there already" in err
    assert not Path("out.partial").exists()
    assert 2 == run("export", "raw", "raw")[0]


# --- merge -----------------------------------------------------------------------------------


def test_merging_keeps_every_record_bit_for_bit(run: Run) -> None:
    damaged = [(b"0", b"\xff\xff"), (b"\xff", b"")]
    write_database(Path("odd"), damaged)
    found = report(run, "merge", "raw", "files", "odd", "all")
    assert (18, 18) == (found["num_records"], found["num_unchanged"])
    expected = {**records_of(Path("raw")), **records_of(Path("files")), **dict(damaged)}
    assert expected == records_of(Path("all"))


def test_keys_in_common_are_named_and_can_be_numbered(run: Run) -> None:
    status, _, err = run("merge", "raw", "raw", "two")
    assert 1 == status
    assert "00000000, 00000001, 00000002, 00000003, 00000004, ..." in err
    assert "--renumber" in err
    report(run, "merge", "raw", "raw", "two", "--renumber")
    records = records_of(Path("two"))
    assert b"00000011_00000001" == list(records)[11]
    assert 2 * list(records_of(Path("raw")).values()) == list(records.values())


def test_classes_are_joined_unless_they_contradict(run: Run) -> None:
    write_database(Path("more"), [(b"x", encode_image(np.zeros((1, 2, 2), np.uint8), label=2))])
    Path("raw/classes.tsv").write_text("0\tcat\n1\tdog\n", encoding="utf-8")
    Path("more/classes.tsv").write_text("1\tdog\n2\tcow\n", encoding="utf-8")
    report(run, "merge", "raw", "more", "all")
    names = "0\tcat\n1\tdog\n2\tcow\n"
    assert names == Path("all/classes.tsv").read_text(encoding="utf-8")
    Path("more/classes.tsv").write_text("1\tcow\n", encoding="utf-8")
    status, _, err = run("merge", "raw", "more", "other")
    assert 1 == status
    assert "its label 1 is cow, and that of" in err


def test_one_database_is_no_merge_and_none_is_written_over(run: Run) -> None:
    assert 2 == run("merge", "raw", "out")[0]
    assert 2 == run("merge", "raw", "files", "raw", "--force")[0]
    before = records_of(Path("raw"))
    status, _, err = run("merge", "files", "files", "raw", "--renumber")
    assert 1 == status
    assert "--force replaces it" in err
    assert before == records_of(Path("raw"))


# --- split -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [["--at", "4"], ["--fraction", "0.4", "--seed", "7"]])
def test_splitting_keeps_every_record_bit_for_bit(how: list[str], run: Run) -> None:
    found = report(run, "split", "raw", "a", "b", *how)
    assert [4, 6] == [one["num_records"] for one in found["databases"]]
    first, second = records_of(Path("a")), records_of(Path("b"))
    assert records_of(Path("raw")) == {**first, **second}
    assert not first.keys() & second.keys()
    assert (list(first) == list(records_of(Path("raw")))[:4]) == (how[0] == "--at")


def test_what_was_split_merges_to_what_it_was(run: Run) -> None:
    report(run, "split", "files", "a", "b", "--fraction", "0.5", "--seed", "1")
    report(run, "merge", "b", "a", "again")
    assert records_of(Path("files")) == records_of(Path("again"))


def test_each_label_gets_its_share(run: Run) -> None:
    image = np.zeros((1, 2, 2), np.uint8)
    write_database(
        Path("db"), [(b"%03d" % at, encode_image(image, label=at % 10 == 0)) for at in range(100)]
    )
    report(run, "split", "db", "a", "b", "--fraction", "0.8", "--stratify")
    assert {"0": 72, "1": 8} == report(run, "labels", "a")["labels"]
    assert {"0": 18, "1": 2} == report(run, "labels", "b")["labels"]


@pytest.mark.parametrize("stratify", [False, True])
def test_a_part_is_what_a_feed_of_that_subset_serves(run: Run, *, stratify: bool) -> None:
    image = np.zeros((1, 2, 2), np.uint8)
    write_database(
        Path("db"), [(b"%03d" % at, encode_image(image, label=at % 3)) for at in range(50)]
    )
    options = ["--stratify"] if stratify else []
    report(run, "split", "db", "a", "b", "--fraction", "0.3", "--seed", "5", *options)
    for part, complement in (("a", False), ("b", True)):
        subset = {"fraction": 0.3, "seed": 5, "stratify": stratify, "complement": complement}
        with prefetch.open(source="db", batch_size=50, subset=subset, last_batch="partial") as feed:
            served = [key for batch in feed for key in batch.keys]
        assert list(records_of(Path(part))) == served


@pytest.mark.parametrize(
    "how",
    [
        [],
        ["--at", "3", "--fraction", "0.5"],
        ["--at", "10"],
        ["--fraction", "0"],
        ["--at", "3", "--stratify"],
        ["--fraction", "1.5"],
    ],
)
def test_a_split_that_leaves_nothing_or_says_two_things_is_a_wrong_use(
    how: list[str], run: Run
) -> None:
    assert 2 == run("split", "raw", "a", "b", *how)[0]
    assert not Path("a").exists()
    assert not Path("b").exists()


def test_a_split_whose_second_place_is_taken_makes_nothing(run: Run) -> None:
    Path("b").mkdir()
    assert 1 == run("split", "raw", "a", "b", "--at", "3")[0]
    assert not Path("a").exists()
    assert 2 == run("split", "raw", "a", "a", "--at", "3")[0]


# --- reencode --------------------------------------------------------------------------------


def test_pixels_become_files_and_pixels_again(run: Run) -> None:
    report(run, "reencode", "raw", "png", "--to", "png")
    encoded = [parse_datum(memoryview(value)) for value in records_of(Path("png")).values()]
    assert all(one.encoded for one in encoded)
    assert list(range(10)) == [one.label for one in encoded]
    report(run, "reencode", "png", "back", "--to", "raw")
    assert records_of(Path("raw")).keys() == records_of(Path("back")).keys()
    for before, after in zip(
        records_of(Path("raw")).values(), records_of(Path("back")).values(), strict=True
    ):
        assert parse_datum(memoryview(before)).data == parse_datum(memoryview(after)).data


def test_what_has_the_form_already_stays_bit_for_bit(run: Run) -> None:
    found = report(run, "reencode", "files", "jpg", "--to", "jpg")
    assert 3 == found["num_unchanged"]
    before, after = records_of(Path("files")), records_of(Path("jpg"))
    assert {key for key in before if before[key] == after[key]} == {
        key for key in before if key.endswith(b".jpg")
    }


def test_a_lower_quality_takes_fewer_bytes(run: Run) -> None:
    report(run, "reencode", "files", "low", "--to", "jpg", "--quality", "20")
    before, after = records_of(Path("files")), records_of(Path("low"))
    assert all(len(after[key]) < len(before[key]) for key in before if key.endswith(b".jpg"))


def test_sizes_change_and_forms_stay(run: Run) -> None:
    found = report(run, "reencode", "files", "small", "--resize-shorter", "6", "--center-crop", "5")
    assert {"3x5x5": 6} == found["shapes"] or {"3x5x5"} == set(found["shapes"])
    kinds = report(run, "inspect", "small", "--full")["kinds"]
    assert {"jpeg": 3, "png": 3} == kinds


def test_floats_have_no_other_form(run: Run) -> None:
    write_database(
        Path("db"), [(b"a", encode_datum(channels=1, height=1, width=1, floats=[2], label=0))]
    )
    status, _, err = run("reencode", "db", "png", "--to", "png")
    assert 1 == status
    assert "holds floats" in err


@pytest.mark.parametrize(
    "options",
    [[], ["--to", "nonsense"], ["--to", "gif"], ["--resize-width", "3", "--resize-shorter", "2"]],
)
def test_a_form_that_is_none_is_a_wrong_use(options: list[str], run: Run) -> None:
    assert 2 == run("reencode", "raw", "new", *options)[0]
    assert not Path("new").exists()


# --- labels ----------------------------------------------------------------------------------


def test_labels_are_counted_with_the_names_of_their_classes(run: Run) -> None:
    Path("names.txt").write_text("zero\none\n", encoding="utf-8")
    status, out, err = run("labels", "raw", "--names", "names.txt")
    assert (0, "") == (status, err)
    assert "10 with 10 labels" in out
    assert "1  one" in out
    assert "0\tzero\n1\tone\n" == Path("raw/classes.tsv").read_text(encoding="utf-8")
    assert {"0": "zero", "1": "one"} == report(run, "labels", "raw")["class_names"]
    assert "one" == report(run, "get", "raw", "1")["class_name"]
    assert 2 == run("labels", "raw", "--names", "names.txt")[0]  # there is a file now


def test_new_labels_change_nothing_else(run: Run) -> None:
    odd = Datum(channels=1, height=1, width=1, data=b"\x07", label=3).SerializeToString()
    odd += b"\x98\x06\x05"  # a field 99 that nobody knows
    write_database(Path("db"), [(b"a b", odd), (b"c", b"\xff"), (b"d", odd)])
    Path("new.txt").write_text("a b 5\nd 3\n", encoding="utf-8")
    assert 0 == run("labels", "db", "new", "--set", "new.txt")[0]
    records = records_of(Path("new"))
    assert (b"\xff", odd) == (records[b"c"], records[b"d"])
    changed, before = Datum.FromString(records[b"a b"]), Datum.FromString(odd)
    assert 5 == changed.label
    before.label = 5
    assert before.SerializeToString() == records[b"a b"]
    assert records[b"a b"].endswith(b"\x98\x06\x05")


@pytest.mark.parametrize(
    ("lines", "fault"),
    [
        ("nobody 3\n", "1 key of it no record has: nobody"),
        ("00000000 -1\n", "line 1: the label -1 is negative"),
        ("00000000\n", "line 1: expected a key, a space and a label"),
        ("00000000 1\n00000000 2\n", "line 2: the key has another label before"),
    ],
)
def test_new_labels_that_fit_no_record_are_refused(lines: str, fault: str, run: Run) -> None:
    Path("new.txt").write_text(lines, encoding="utf-8")
    status, _, err = run("labels", "raw", "new", "--set", "new.txt")
    assert 1 == status
    assert fault in err
    assert not Path("new").exists()


def test_new_labels_need_a_new_database(run: Run) -> None:
    Path("new.txt").write_text("00000000 1\n", encoding="utf-8")
    assert 2 == run("labels", "raw", "--set", "new.txt")[0]
    assert 2 == run("labels", "raw", "new")[0]


def test_records_without_a_label_are_counted_apart(run: Run) -> None:
    bare = encode_datum(channels=1, height=1, width=1, data=b"x")
    write_database(
        Path("db"), [(b"a", bare), (b"b", encode_image(np.zeros((1, 1, 1), np.uint8), label=0))]
    )
    found = report(run, "labels", "db")
    assert (2, 1, {"0": 1}) == (
        found["num_records"],
        found["num_without_label"],
        found["labels"],
    )
    assert "no label" in run("labels", "db")[1]
    report(run, "reencode", "db", "png", "--to", "png")
    assert 1 == report(run, "labels", "png")["num_without_label"]
    Path("new.txt").write_text("a 0\n", encoding="utf-8")
    report(run, "labels", "db", "new", "--set", "new.txt")
    assert {"0": 2} == report(run, "labels", "new")["labels"]
    status, _, err = run("split", "db", "x", "y", "--fraction", "0.5", "--stratify")
    assert 1 == status
    assert "leave stratify out" in err


def test_a_record_that_is_no_datum_has_no_label_to_count(run: Run) -> None:
    write_database(Path("db"), [(b"a", b"\xff")])
    status, _, err = run("labels", "db")
    assert 1 == status
    assert "record 0 (a) has no label" in err


# --- all that make a database ----------------------------------------------------------------

_MAKERS: dict[str, list[str]] = {
    "convert": ["photos", "photos.txt", "out"],
    "merge": ["raw", "files", "out"],
    "reencode": ["raw", "out", "--to", "png"],
    "labels": ["raw", "out", "--set", "new.txt"],
}


@pytest.mark.parametrize("command", _MAKERS)
def test_a_database_is_replaced_by_force_only_and_once_the_new_one_is_whole(
    command: str, run: Run
) -> None:
    Path("new.txt").write_text("00000000 1\n", encoding="utf-8")
    write_database(Path("out"), fingerprinted_images(1))
    before = records_of(Path("out"))
    status, _, err = run(command, *_MAKERS[command])
    assert 1 == status
    assert "--force replaces it" in err
    assert before == records_of(Path("out"))
    assert 0 == run(command, *_MAKERS[command], "--force")[0]
    assert before != records_of(Path("out"))
    assert not Path("out.partial").exists()
    before = records_of(Path("out"))
    (Path("out") / "notes.txt").write_text("mine", encoding="utf-8")
    status, _, err = run(command, *_MAKERS[command], "--force")
    assert 1 == status
    assert "is no database" in err
    assert before == records_of(Path("out"))


def interrupt_at(number: int) -> Callable[..., Any]:
    """Return a reading of records that Ctrl-C ends at one of them."""
    from prefetch._tools.stored import copies  # noqa: PLC0415 - only here

    read = copies.StoredExamples.read

    def interrupted(examples: copies.StoredExamples, index: int) -> Any:
        if index == number:
            raise KeyboardInterrupt
        return read(examples, index)

    return interrupted


@pytest.mark.parametrize("command", ["merge", "reencode", "labels"])
def test_what_ctrl_c_interrupts_is_resumed(
    command: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("new.txt").write_text("00000000 1\n", encoding="utf-8")
    with monkeypatch.context() as patch:
        patch.setattr("prefetch._tools.stored.copies.StoredExamples.read", interrupt_at(5))
        status, _, err = run(command, *_MAKERS[command], "--threads", "1")
    assert 130 == status
    assert "--resume continues it" in err
    assert not Path("out").exists()
    assert "--resume" in run(command, *_MAKERS[command])[2]
    found = report(run, command, *_MAKERS[command], "--resume")
    assert found["num_resumed"] > 0
    resumed = records_of(Path("out"))
    assert 0 == run(command, *_MAKERS[command], "--force")[0]
    assert resumed == records_of(Path("out"))


def test_another_run_is_not_taken_for_what_was_interrupted(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("prefetch._tools.stored.copies.StoredExamples.read", interrupt_at(5))
        assert 130 == run("reencode", "raw", "out", "--to", "png")[0]
    status, _, err = run("reencode", "raw", "out", "--to", "jpg", "--resume")
    assert 1 == status
    assert "what is converted has changed (options)" in err
