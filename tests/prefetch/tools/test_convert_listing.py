"""Lists, class folders, labels and keys: what is taken as it is, and what is refused."""

from __future__ import annotations

import codecs
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from processes import DEADLINE_S

from prefetch._tools.convert.errors import InputError
from prefetch._tools.convert.inputs.class_folders import find_classes
from prefetch._tools.convert.inputs.keys import MAX_BYTES, image_key
from prefetch._tools.convert.inputs.labels import LabelError, LabelRule, check_labels, parse_label
from prefetch._tools.convert.inputs.list_file import read_list

if TYPE_CHECKING:
    from prefetch._tools.convert.inputs.listing import Entry


def entries(folder: Path, content: bytes, rule: LabelRule = LabelRule.STRICT) -> list[Entry]:
    path = folder / "list.txt"
    path.write_bytes(content)
    return list(read_list(folder, path, rule=rule).entries)


def test_a_line_is_split_at_its_last_space(tmp_path: Path) -> None:
    found = entries(tmp_path, b"a b.jpg 1\n  c.jpg 2\nd\te.jpg 3\n")
    assert [("a b.jpg", 1), ("  c.jpg", 2), ("d\te.jpg", 3)] == found


def test_names_are_bytes_of_any_encoding(tmp_path: Path) -> None:
    names = ["köln.jpg".encode(), "köln.jpg".encode("latin-1"), "猫.png".encode()]
    found = entries(tmp_path, b"".join(name + b" 0\n" for name in names))
    assert names == [os.fsencode(entry.name) for entry in found]


def test_windows_line_ends_a_byte_order_mark_and_empty_lines_at_the_end_are_left_out(
    tmp_path: Path,
) -> None:
    assert [("a", 1), ("b", 2)] == entries(tmp_path, b"\xef\xbb\xbfa 1\r\nb 2\r\n\r\n\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a.jpg -1", "negative"),
        ("a.jpg 0.5", "no integer"),
        ("a.jpg 1e3", "no integer"),
        ("a.jpg cat", "no integer"),
        ("a.jpg ٣", "no integer"),
        ("a.jpg 2147483648", "does not fit int32"),
        ("a.jpg 1 2 3", "several labels"),
        ("a.jpg 0.5 3", "several labels"),
        ("a.jpg 3 ", "ends in a space"),
        ("a.jpg  3", "several spaces stand before the label"),
        ("a.jpg " + "9" * 5000, "does not fit int32"),
        ("a.jpg -" + "9" * 5000, "does not fit int32"),
        ("a.jpg\t3", r"a tab stands before the label.*'a.jpg\\t3'.*sed 's/"),
        ("a cat.jpg\t3", "a tab stands before the label"),
        ("a.jpg,3", "a comma stands before the label"),
        ("a.jpg;3", "a semicolon stands before the label"),
        ("a.jpg 1,2", "several"),
        ("a.jpg", "a name, a space and a label"),
        ("", "empty"),
    ],
)
def test_a_label_is_refused_with_its_line_rather_than_bent(
    line: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=f"line 2: .*{words}"):
        entries(tmp_path, f"good.jpg 1\n{line}\nlast.jpg 0\n".encode())


def test_all_wrong_lines_are_named_at_once(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        entries(tmp_path, b"a x\nb 1\nc -2\n")
    assert ["line 1", "line 3"] == [fault.partition(":")[0] for fault in caught.value.faults]
    assert str(tmp_path / "list.txt") == caught.value.path


@pytest.mark.parametrize("text", ["a.jpg 1\n", "café/日本 1.jpg 12\r\nb.jpg 0\r\n", "a 3"])
@pytest.mark.parametrize(
    ("codec", "mark", "name"),
    [
        ("utf-16-le", codecs.BOM_UTF16_LE, "UTF-16"),
        ("utf-16-be", codecs.BOM_UTF16_BE, "UTF-16"),
        ("utf-32-le", codecs.BOM_UTF32_LE, "UTF-32"),
        ("utf-32-be", codecs.BOM_UTF32_BE, "UTF-32"),
        ("utf-16-le", b"", "UTF-16LE"),
        ("utf-16-be", b"", "UTF-16BE"),
        ("utf-32-le", b"", "UTF-32LE"),
        ("utf-32-be", b"", "UTF-32BE"),
    ],
)
def test_a_list_of_several_bytes_a_character_is_told_with_a_cure_that_works(
    text: str, codec: str, mark: bytes, name: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError) as caught:
        entries(tmp_path, mark + text.encode(codec))
    found = re.search(r"list\.txt: is (\S+), and .*: (iconv .*) LIST > NEW$", str(caught.value))
    assert found is not None
    assert name == found[1]
    command = [*shlex.split(found[2]), str(tmp_path / "list.txt")]
    repaired = subprocess.run(command, capture_output=True, check=True, timeout=DEADLINE_S).stdout
    labels = [int(line.rpartition(" ")[2]) for line in text.splitlines()]
    assert labels == [entry.label for entry in entries(tmp_path, repaired)]


def test_bytes_that_only_look_like_a_mark_are_of_a_name(tmp_path: Path) -> None:
    assert 1 == len(entries(tmp_path, b"\xff\xfe.jpg 1\n"))


@pytest.mark.parametrize("rule", [LabelRule.STRICT, LabelRule.CAFFE])
def test_a_zero_byte_is_told_with_its_line(rule: LabelRule, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"line 2: a zero byte .*'b\\x00\.jpg 2'"):
        entries(tmp_path, b"a.jpg 1\nb\0.jpg 2\n", rule)


@pytest.mark.parametrize("end", [b"", b"\r", b"\n", b"\r\n", b"\r\r"])
def test_lines_may_end_in_carriage_returns_alone(end: bytes, tmp_path: Path) -> None:
    found = entries(tmp_path, b"\xef\xbb\xbfa b.jpg 1\rc.jpg 2" + end)
    assert [("a b.jpg", 1), ("c.jpg", 2)] == found


def test_line_ends_of_several_kinds_are_told_with_a_cure_that_works(tmp_path: Path) -> None:
    content = b"a.jpg 1\rb.jpg 2\nc.jpg 3\n"
    with pytest.raises(
        InputError, match=r"line 1: a carriage return .*'a\.jpg 1\\rb\.jpg'"
    ) as caught:
        entries(tmp_path, content)
    (command,) = re.findall(r"(tr .*) < LIST > NEW", str(caught.value))
    repaired = subprocess.run(
        shlex.split(command), input=content, capture_output=True, check=True, timeout=DEADLINE_S
    ).stdout
    assert [1, 2, 3] == [entry.label for entry in entries(tmp_path, repaired)]
    (tmp_path / "a.jpg 1\rb.jpg").touch()
    assert [("a.jpg 1\rb.jpg", 2), ("c.jpg", 3)] == entries(tmp_path, content)


def test_bytes_that_are_no_utf_8_are_named_readably(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        entries(tmp_path, b"k\xf6ln.jpg\nk\xf6ln.jpg \xfc\nk\xf6ln.jpg\t1\nk\xf6ln 1.5 2\n")
    text = str(caught.value)
    assert 2 == text.count(r"'k\xf6ln.jpg") == text.count("ln.jpg")
    assert r"the label '\xfc' is no integer" in text
    assert r"there is no file 'k\xf6ln 1.5'" in text
    assert text.replace("\n", "").isprintable()


@pytest.mark.parametrize(
    ("label", "cure"),
    [
        ("cat", "number the classes from 0"),
        ("café2", "number the classes from 0"),
        ("0.5", "for labels of floats"),
        ("nan", "for labels of floats"),
    ],
)
def test_names_as_labels_get_the_advice_for_names(label: str, cure: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"is no integer; {cure}"):
        entries(tmp_path, f"a.JPG {label}\n".encode())


def test_an_empty_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the list is empty"):
        entries(tmp_path, b"\n")


def test_a_name_that_ends_in_a_number_is_a_name_where_there_is_such_a_file(tmp_path: Path) -> None:
    (tmp_path / "scan 12").touch()
    assert [("scan 12", 3)] == entries(tmp_path, b"scan 12 3\n")


def test_the_rule_int32_keeps_negative_labels(tmp_path: Path) -> None:
    assert [("a", -1), ("b", -(2**31))] == entries(
        tmp_path, b"a -1\nb -2147483648\n", LabelRule.INT32
    )


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("7", 7),
        ("-3", -3),
        ("+5x", 5),
        ("0.9", 0),
        ("cat", 0),
        ("", 0),
        ("\t4", 4),
        ("2147483648", -(2**31)),
        ("4294967297", 1),
        ("9" * 30, -1),
        ("9" * 5000, -1),
        ("-" + "9" * 5000, 0),
        ("0" * 5000 + "7", 7),
        ("-" + "9" * 30, 0),
    ],
)
def test_the_rule_caffe_gives_what_atoi_gives(text: str, label: int) -> None:
    assert label == parse_label(text, LabelRule.CAFFE)


def test_the_rule_caffe_takes_a_line_without_a_space_for_name_and_label(tmp_path: Path) -> None:
    assert [("12.jpg", 12)] == entries(tmp_path, b"12.jpg\n", LabelRule.CAFFE)


def test_labels_of_arrays_are_refused_with_the_record() -> None:
    with pytest.raises(LabelError, match="record 2: the label -1 is negative"):
        check_labels(np.array([0, 5, -1]), LabelRule.STRICT)
    with pytest.raises(LabelError, match="record 1: the label 4294967296 does not fit"):
        check_labels(np.array([0, 2**32]), LabelRule.INT32)
    with pytest.raises(LabelError, match="of type float64"):
        check_labels(np.array([0.0, 1.0]), LabelRule.INT32)
    assert [3, -1] == check_labels(np.array([3, -1]), LabelRule.INT32).tolist()


def test_class_folders_are_numbered_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("dog/2.JPG", "dog/1.png", "ant/deep/3.jpeg", "ant/notes.txt", ".git/4.jpg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    found = find_classes(tmp_path)
    assert (("ant", 0), ("dog", 1)) == found.classes
    assert (("ant/deep/3.jpeg", 0), ("dog/1.png", 1), ("dog/2.JPG", 1)) == found.entries
    note = "1 file left out: no images, by their names' endings: ant/notes.txt"
    assert note in found.notes


def test_folders_that_look_like_splits_are_noted(tmp_path: Path) -> None:
    for name in ("train/cat/1.png", "train/dog/2.png", "val/cat/3.png", "val/dog/4.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    (note,) = find_classes(tmp_path).notes
    assert "all of them hold the folders cat, dog: the classes are train, val;" in note
    (tmp_path / "val/5.png").touch()
    assert () == find_classes(tmp_path).notes


def test_class_folders_named_by_numbers_have_these_labels(tmp_path: Path) -> None:
    for name in ("2", "10", "7"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.png").touch()
    assert (("2", 2), ("7", 7), ("10", 10)) == find_classes(tmp_path).classes


def test_digits_that_int_refuses_are_still_a_label() -> None:
    assert 7 == parse_label("0" * 5000 + "7", LabelRule.STRICT)
    with pytest.raises(LabelError, match=r"the label 9{40}\.\.\. does not fit"):
        parse_label("9" * 5000, LabelRule.INT32)


def test_the_cure_for_another_separator_is_named_once_and_works(tmp_path: Path) -> None:
    path = tmp_path / "list.txt"
    path.write_text("a cat.jpg\t1\nb.jpg\t2\n")
    with pytest.raises(InputError) as caught:
        read_list(tmp_path, path)
    assert ["line 1", "line 2"] == [fault.partition(":")[0] for fault in caught.value.faults]
    assert 1 == str(caught.value).count("sed ")
    command = str(caught.value).partition("sed ")[2].partition(" LIST")[0]
    (sed,) = shlex.split(command)
    repaired = subprocess.run(
        ["sed", sed, path], capture_output=True, check=True, timeout=DEADLINE_S
    )
    path.write_bytes(repaired.stdout)
    assert (("a cat.jpg", 1), ("b.jpg", 2)) == read_list(tmp_path, path).entries


def test_a_list_may_come_through_a_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "wb") as pipe:
        pipe.write(b"a.jpg 1\n")
        pipe.close()
        assert (("a.jpg", 1),) == read_list(tmp_path, Path(f"/dev/fd/{reading}")).entries


def make_classes(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).mkdir(parents=True)
        (root / name / "a.png").touch()
    return root


def test_images_outside_of_class_folders_and_empty_classes_are_noted(tmp_path: Path) -> None:
    make_classes(tmp_path, "cat", "dog")
    assert () == find_classes(tmp_path).notes
    for name in ("loose.jpg", "more.png", "readme.txt"):
        (tmp_path / name).touch()
    (tmp_path / "bird").mkdir()
    loose, empty = find_classes(tmp_path).notes
    assert loose.startswith("2 images in ROOT itself, in no class folder: left out")
    assert empty.startswith("1 class folder without images")
    assert empty.endswith(": bird")
    assert (("bird", 0), ("cat", 1), ("dog", 2)) == find_classes(tmp_path).classes


def test_hidden_files_and_folders_are_counted_wherever_they_are(tmp_path: Path) -> None:
    make_classes(tmp_path, "cat", "dog", ".old")
    (tmp_path / "cat" / ".a.png").touch()
    (tmp_path / "dog" / "more").mkdir()
    (tmp_path / "dog" / "more" / ".b.png").touch()
    found = find_classes(tmp_path)
    assert ["cat/a.png", "dog/a.png"] == [entry.name for entry in found.entries]
    (note,) = found.notes
    assert note == (
        "3 hidden files or folders left out, whose names begin with a dot: .old, cat/.a.png, "
        "dog/more/.b.png"
    )


@pytest.mark.parametrize(
    ("names", "labels", "words"),
    [
        (("0", "1", "2"), (0, 1, 2), None),
        (("1", "2"), (1, 2), "are integers, and so these are the labels, from 1 to 2"),
        (("1", "2", "10", "cat"), (0, 2, 1, 3), "the names of 3 of 4 class folders are integers"),
        (("00", "01", "02"), (0, 1, 2), None),
        (("08", "9", "010"), (8, 9, 10), "are integers, and so these are the labels, from 8 to 10"),
        (("-3", "5"), (0, 1), "the names of 1 of 2 class folders are integers, and are not"),
        (("2147483648", "5"), (0, 1), "the names of 2 of 2 class folders are integers, and are"),
        (("7", "07"), (1, 0), "the names of 2 of 2 class folders are integers, and are not"),
    ],
)
def test_integers_as_names_of_class_folders_are_noted_where_they_change_labels(
    names: tuple[str, ...], labels: tuple[int, ...], words: str | None, tmp_path: Path
) -> None:
    found = find_classes(make_classes(tmp_path, *names))
    assert dict(zip(names, labels, strict=True)) == dict(found.classes)
    if words is None:
        assert () == found.notes
    else:
        (note,) = found.notes
        assert words in note


def test_what_only_has_the_name_of_an_image_is_listed_to_be_found_unreadable(
    tmp_path: Path,
) -> None:
    make_classes(tmp_path, "cat")
    os.mkfifo(tmp_path / "cat" / "pipe.png")
    (tmp_path / "cat" / "gone.png").symlink_to("nowhere")
    (tmp_path / "cat" / "circle.png").symlink_to("circle.png")
    names = [entry.name for entry in find_classes(tmp_path).entries]
    assert ["cat/a.png", "cat/circle.png", "cat/gone.png", "cat/pipe.png"] == names


def test_a_folder_without_class_folders_or_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    with pytest.raises(InputError, match="holds no class folders; give a LIST"):
        find_classes(tmp_path)
    (tmp_path / "cat").mkdir()
    with pytest.raises(InputError, match="holds 1 class folder and no images in them"):
        find_classes(tmp_path)


@pytest.mark.parametrize("target", [".", "..", "../..", "deep"])
def test_a_link_to_a_folder_that_it_lies_in_is_refused(target: str, tmp_path: Path) -> None:
    root = tmp_path / "root"
    (root / "cat" / "deep").mkdir(parents=True)
    (root / "cat" / "1.jpg").touch()
    (root / "cat" / "deep" / "link").symlink_to(f"../{target}")
    with pytest.raises(InputError, match=r"deep/link.*: leads back by a symbolic link"):
        find_classes(root)


def test_a_link_to_another_folder_is_followed(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "1.jpg").touch()
    for name in ("cat", "dog"):
        (tmp_path / "root").mkdir(exist_ok=True)
        (tmp_path / "root" / name).symlink_to("../store")
    found = find_classes(tmp_path / "root")
    assert (("cat/1.jpg", 0), ("dog/1.jpg", 1)) == found.entries


def test_a_key_is_the_place_and_the_name() -> None:
    assert b"00000007_dir/a b.jpg" == image_key(7, b"dir/a b.jpg")


def test_a_key_that_lmdb_would_refuse_is_shortened_and_still_its_own() -> None:
    name = b"x" * 700
    key, other = image_key(3, name), image_key(3, name[:-1] + b"y")
    assert MAX_BYTES == len(key)
    assert key.startswith(b"00000003_xxx")
    assert key != other
    assert key == image_key(3, name)


@pytest.mark.parametrize("length", range(502, 506))
def test_the_longest_whole_key_has_511_bytes(length: int) -> None:
    key = image_key(0, b"n" * length)
    assert (b"~" in key) == (length > 502)
    assert len(key) <= MAX_BYTES


@pytest.mark.parametrize("lead", [b"", b"a", b"ab"])
def test_a_shortened_key_is_cut_between_characters(lead: bytes) -> None:
    key = image_key(0, lead + "猫".encode() * 300)
    assert key.decode("utf-8").startswith("00000000_")


def test_what_is_the_same_for_all_lines_is_said_once(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("a.jpg Places\nb.jpg 0.5\nc.jpg,1\n")
    with pytest.raises(InputError) as caught:
        read_list(tmp_path, tmp_path / "list")
    assert len(caught.value.faults) == 3
    assert str(caught.value).count("make a second database") == 1
