"""Whole conversions: every image once, in the order of the list, or no database at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest
from databases import names_in, records_of
from image_folders import write_grey_images, write_list
from processes import DEADLINE_S

import prefetch
from prefetch._record.wire import parse_datum
from prefetch._tools.convert import (
    ConversionError,
    InputOptions,
    LabelRule,
    NothingConvertedError,
    OptionsError,
    Report,
    Treatment,
    UnreadableImagesError,
    convert,
    open_input,
)
from prefetch._tools.convert.draft import Draft
from prefetch._tools.convert.read_ahead import _read
from prefetch.caffe import Datum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefetch._tools.convert.examples import Example

RNG = np.random.default_rng(0)


@pytest.fixture
def images(tmp_path: Path) -> Path:
    """Make a folder of ten small images, 0.png to 9.png, each of another grey."""
    return write_grey_images(tmp_path / "images", 10, step=20)


def run(
    images: Path,
    names: Sequence[str],
    database: Path,
    options: InputOptions | None = None,
    *,
    threads: int | None = None,
    skip_unreadable: bool = False,
    check_size: bool = False,
    resume: bool = False,
) -> Report:
    opened = open_input(
        [images, write_list(images.parent / "list.txt", names)], options or InputOptions()
    )
    return convert(
        opened.examples,
        database,
        threads=threads,
        skip_unreadable=skip_unreadable,
        check_size=check_size,
        resume=resume,
    )


NAMES = [f"{index}.png" for index in range(10)]


def test_a_database_equals_byte_for_byte_one_that_protobuf_writes(
    images: Path, tmp_path: Path
) -> None:
    expected = {}
    for index, name in enumerate(NAMES):
        pixels = cv2.imread(str(images / name))
        assert pixels is not None
        datum = Datum(
            channels=3,
            height=6,
            width=8,
            data=pixels.transpose(2, 0, 1).tobytes(),
            label=index,
            encoded=False,
        )
        expected[b"%08d_%b" % (index, name.encode())] = datum.SerializeToString()
    report = run(images, NAMES, tmp_path / "db")
    assert expected == records_of(tmp_path / "db")
    assert (10, 10, {(3, 6, 8): 10}) == (report.num_images, report.num_stored, report.shapes)
    for value in expected.values():
        ours, theirs = parse_datum(memoryview(value)), Datum.FromString(value)
        assert bytes(ours.data or b"") == theirs.data
        assert ours.label == theirs.label


def test_a_converted_database_feeds_a_loop(images: Path, tmp_path: Path) -> None:
    run(images, NAMES, tmp_path / "db")
    with prefetch.open({"source": tmp_path / "db", "batch_size": 10}) as feed:
        batch = next(iter(feed))
        assert list(range(10)) == batch.label.numpy().tolist()
        assert [20.0 * index for index in range(10)] == batch.data.numpy()[:, 0, 0, 0].tolist()


@pytest.mark.parametrize("treatment", [Treatment(), Treatment(encode_type="jpg")])
def test_any_number_of_threads_writes_the_same(
    treatment: Treatment, images: Path, tmp_path: Path
) -> None:
    names = NAMES * 7
    contents = []
    for threads in (1, 2, 8):
        database = tmp_path / f"db{threads}"
        run(images, names, database, InputOptions(treatment=treatment), threads=threads)
        contents.append(records_of(database))
    assert contents[0] == contents[1] == contents[2]
    assert list(range(70)) == [Datum.FromString(v).label for v in contents[0].values()]


def test_shuffling_stores_the_same_images_in_another_order(images: Path, tmp_path: Path) -> None:
    labels = []
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        run(images, NAMES, tmp_path / name, InputOptions(shuffle=True, seed=seed))
        content = records_of(tmp_path / name)
        labels.append([Datum.FromString(value).label for value in content.values()])
        for index, (key, label) in enumerate(zip(content, labels[-1], strict=True)):
            assert b"%08d_%d.png" % (index, label) == key
    assert list(range(10)) == sorted(labels[0])
    assert labels[0] == labels[1]
    assert labels[0] not in (labels[2], list(range(10)))


def test_names_of_any_kind_are_kept(images: Path, tmp_path: Path) -> None:
    long = "/".join(["d" * 200] * 3 + ["n" * 90 + ".png"])
    names = ["with space.png", "ünïcödé 猫.png", "latin\udce4.png", "a/x.png", "b/x.png", long]
    for index, name in enumerate(names):
        (images / name).parent.mkdir(parents=True, exist_ok=True)
        (images / name).write_bytes((images / f"{index}.png").read_bytes())
    run(images, names, tmp_path / "db")
    keys = list(records_of(tmp_path / "db"))
    assert [b"%08d_%b" % (i, os.fsencode(n)) for i, n in enumerate(names[:-1])] == keys[:-1]
    assert (697, 511) == (len(os.fsencode(long)), len(keys[-1]))
    assert keys[-1].startswith(b"00000005_ddd")


def test_unreadable_images_fail_with_the_list_of_them_and_the_rest_is_kept(
    images: Path, tmp_path: Path
) -> None:
    (images / "3.png").write_bytes(b"damaged")
    names = [*NAMES[:5], "missing.png", *NAMES[5:]]
    with pytest.raises(UnreadableImagesError, match="2 of 11 images cannot be read") as caught:
        run(images, names, tmp_path / "db")
    assert [(3, f"{images}/3.png"), (5, f"{images}/missing.png")] == [
        (one.index, one.path) for one in caught.value.unreadable
    ]
    assert "No such file" in str(caught.value)
    assert not (tmp_path / "db").exists()
    for name in ("3.png", "missing.png"):
        (images / name).write_bytes((images / "0.png").read_bytes())
    report = run(images, names, tmp_path / "db", resume=True)
    assert (9, 11) == (report.num_resumed, report.num_stored)
    run(images, names, tmp_path / "at once")
    assert records_of(tmp_path / "at once") == records_of(tmp_path / "db")


def test_skipped_images_leave_their_numbers_unused(images: Path, tmp_path: Path) -> None:
    (images / "1.png").unlink()
    report = run(images, NAMES, tmp_path / "db", skip_unreadable=True)
    assert [1] == [one.index for one in report.unreadable]
    assert (10, 9) == (report.num_images, report.num_stored)
    assert [b"00000000_0.png", b"00000002_2.png"] == list(records_of(tmp_path / "db"))[:2]


@pytest.mark.parametrize("skip_unreadable", [False, True])
def test_nothing_is_left_where_every_image_fails(
    skip_unreadable: bool,  # noqa: FBT001 - a parameter of the test
    images: Path,
    tmp_path: Path,
) -> None:
    with pytest.raises(
        NothingConvertedError, match=f"none of the 2 images .* {images}/no/a.png: No such file"
    ):
        run(images, ["no/a.png", "no/b.png"], tmp_path / "db", skip_unreadable=skip_unreadable)
    assert ["images", "list.txt"] == names_in(tmp_path)
    (tmp_path / "new").mkdir()
    with pytest.raises(NothingConvertedError):
        run(images, ["no/a.png"], tmp_path / "new" / "folders" / "above" / "db")
    assert [] == names_in(tmp_path / "new")


@pytest.mark.parametrize("treatment", [Treatment(), Treatment(encoded=True)])
def test_check_size_names_the_two_images_and_their_shapes(
    treatment: Treatment, images: Path, tmp_path: Path
) -> None:
    cv2.imwrite(str(images / "4.png"), np.zeros((8, 6, 3), np.uint8))
    with pytest.raises(ConversionError, match=r"4\.png: is 3 x 8 x 6 .*0\.png is 3 x 6 x 8"):
        run(images, NAMES, tmp_path / "db", InputOptions(treatment=treatment), check_size=True)
    assert not (tmp_path / "db").exists()
    cv2.imwrite(str(images / "4.png"), np.zeros((6, 8, 3), np.uint8))
    options = InputOptions(treatment=treatment)
    run(images, NAMES, tmp_path / "db", options, check_size=True, resume=True)
    assert 10 == len(records_of(tmp_path / "db"))


def test_check_size_compares_with_what_an_earlier_process_stored(
    images: Path, tmp_path: Path
) -> None:
    (images / "9.png").unlink()
    with pytest.raises(UnreadableImagesError):
        run(images, NAMES, tmp_path / "db", check_size=True)
    cv2.imwrite(str(images / "9.png"), np.zeros((2, 2, 3), np.uint8))
    with pytest.raises(ConversionError, match=r"9\.png: is 3 x 2 x 2 .*0\.png is 3 x 6 x 8"):
        run(images, NAMES, tmp_path / "db", check_size=True, resume=True)


def test_check_size_refuses_shapes_that_an_earlier_process_has_stored(
    images: Path, tmp_path: Path
) -> None:
    cv2.imwrite(str(images / "4.png"), np.zeros((8, 6, 3), np.uint8))
    (images / "9.png").unlink()
    with pytest.raises(UnreadableImagesError):
        run(images, NAMES, tmp_path / "db")
    cv2.imwrite(str(images / "9.png"), np.zeros((6, 8, 3), np.uint8))
    with pytest.raises(ConversionError, match=r"4\.png: is 3 x 8 x 6 .*0\.png is 3 x 6 x 8"):
        run(images, NAMES, tmp_path / "db", check_size=True, resume=True)


def test_resuming_with_other_options_is_refused(images: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableImagesError):
        run(images, ["0.png", "missing.png"], tmp_path / "db")
    with pytest.raises(ConversionError, match="what is converted has changed"):
        run(
            images,
            ["0.png", "missing.png"],
            tmp_path / "db",
            InputOptions(treatment=Treatment(gray=True)),
            resume=True,
        )


_CONVERT = """
    import sys
    from pathlib import Path
    from prefetch._tools.convert import InputOptions, convert, open_input
    from prefetch._tools.convert.inputs.images import ImageExamples

    read = ImageExamples.read

    def wait_at_the_stuck_one(self, index):
        if self.name(index).endswith("stuck.png"):
            sys.stdin.read()  # until it is killed
        return read(self, index)

    ImageExamples.read = wait_at_the_stuck_one
    opened = open_input([Path(sys.argv[1]), Path(sys.argv[2])], InputOptions())
    convert(opened.examples, Path(sys.argv[3]), progress=lambda done, _: print(done, flush=True))
"""


@pytest.mark.slow
def test_a_killed_conversion_is_resumed_with_nothing_lost_or_doubled(
    images: Path, tmp_path: Path
) -> None:
    # More than is committed at once, then an image that keeps the process waiting.
    cv2.imwrite(str(images / "large.bmp"), RNG.integers(0, 256, (1000, 1200, 3), np.uint8))
    (images / "stuck.png").write_bytes((images / "0.png").read_bytes())
    names = ["large.bmp"] * 16 + ["stuck.png", "5.png"]
    listing = write_list(tmp_path / "list.txt", names)
    paths = [str(images), str(listing), str(tmp_path / "db")]
    command = [sys.executable, "-c", textwrap.dedent(_CONVERT), *paths]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= 10:
                break
        process.kill()
        process.wait(DEADLINE_S)
    assert -signal.SIGKILL == process.returncode
    assert not (tmp_path / "db").exists()
    report = run(images, names, tmp_path / "db", resume=True)
    assert 0 < report.num_resumed < 18
    run(images, names, tmp_path / "at once")
    assert records_of(tmp_path / "at once") == records_of(tmp_path / "db")


def test_all_cores_read_at_the_same_time(
    images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = open_input([images, write_list(tmp_path / "list.txt", NAMES[:8])], InputOptions())
    read_alone, together = opened.examples.read, threading.Barrier(4, timeout=DEADLINE_S)

    def read_together(index: int) -> Example:
        together.wait()  # broken, and an error, where fewer than four read
        return read_alone(index)

    monkeypatch.setattr(opened.examples, "read", read_together)
    monkeypatch.setattr(type(opened.examples), "chunk", 1)
    monkeypatch.setattr("prefetch._tools.convert.conversion.num_cores", lambda: 4)
    assert 8 == convert(opened.examples, tmp_path / "db").num_stored


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_interrupted_around_a_record_it_says_how_many_are_stored(
    after: bool,  # noqa: FBT001 - a parameter of the test
    images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put = Draft.put

    def interrupted(self: Draft, key: bytes, value: bytes, **note: bytes) -> None:
        if after or not key.startswith(b"00000006"):
            put(self, key, value, **note)
        if key.startswith(b"00000006"):
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Draft, "put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(images, NAMES, tmp_path / "db")
    (message,) = caplog.messages
    assert f"db.partial: {6 + after} of 10 records stored" in message
    assert 6 + after == run(images, NAMES, tmp_path / "db", resume=True).num_resumed


def test_a_reader_stops_between_two_images_where_nobody_wants_them_any_more(
    images: Path, tmp_path: Path
) -> None:
    examples = open_input(
        [images, write_list(tmp_path / "list.txt", NAMES)], InputOptions()
    ).examples
    ended = threading.Event()
    assert 10 == len(_read(examples, range(10), ended))
    ended.set()
    assert [] == _read(examples, range(10), ended)


def test_the_kind_of_input_is_told_by_what_it_is(images: Path, tmp_path: Path) -> None:
    assert (
        "list"
        == open_input([images, write_list(tmp_path / "list.txt", NAMES)], InputOptions()).kind
    )
    (images / "cat").mkdir()
    (images / "0.png").rename(images / "cat" / "0.png")
    opened = open_input([images], InputOptions())
    assert "folders" == opened.kind
    assert (("cat", 0),) == opened.classes
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 4, 4), np.uint8))
    assert "arrays" == open_input([tmp_path / "x.npy"], InputOptions()).kind
    (tmp_path / "1.bin").write_bytes(bytes(3073))
    assert "cifar" == open_input([tmp_path / "1.bin"], InputOptions()).kind


def test_options_of_another_kind_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 3, 2, 2), np.uint8))
    with pytest.raises(OptionsError, match="--shuffle: not for input of the kind arrays, only for"):
        open_input([tmp_path / "x.npy"], InputOptions(shuffle=True))
    for treatment, named in (
        (Treatment(gray=True), "--gray: not for"),
        (Treatment(encode_type="png", center_crop=3), "--encode-type and --center-crop: not for"),
    ):
        with pytest.raises(OptionsError, match=f"^{named}"):
            open_input([tmp_path / "x.npy"], InputOptions(treatment=treatment))
    with pytest.raises(OptionsError, match=r"expected IMAGES\.npy and LABELS\.npy"):
        open_input([tmp_path / "x.npy"] * 3, InputOptions())
    with pytest.raises(OptionsError, match="--labels caffe: it says what becomes of a list's text"):
        open_input([tmp_path / "x.npy"], InputOptions(labels=LabelRule.CAFFE))
    with pytest.raises(OptionsError, match="more than the 268435456 pixels"):
        Treatment(resize_height=100_000, resize_width=100_000)
    (tmp_path / "notes").write_text("nothing of the kind")
    with pytest.raises(OptionsError, match="--from says what it is"):
        open_input([tmp_path / "notes"], InputOptions())
    with pytest.raises(OptionsError, match=r"notes: is no folder, .* give ROOT, then LIST"):
        open_input([tmp_path / "notes", tmp_path], InputOptions())


def test_a_wrong_path_is_named_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"{tmp_path}/none: there is no such"):
        open_input([tmp_path.relative_to(tmp_path) / "none"], InputOptions())


def test_a_path_that_cannot_be_looked_at_is_told_as_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_input([tmp_path / "loop"], InputOptions())
    (tmp_path / "closed").mkdir()
    stat = Path.stat

    def forbidden(path: Path, **options: bool) -> os.stat_result:
        if path.parent.name == "closed":
            raise PermissionError(13, "Permission denied", str(path))
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", forbidden)  # root may look everywhere
    with pytest.raises(PermissionError):
        open_input([tmp_path / "closed" / "images"], InputOptions())


def test_opencv_has_as_many_threads_afterwards_as_before(images: Path, tmp_path: Path) -> None:
    before = cv2.getNumThreads()
    run(images, NAMES, tmp_path / "db")
    assert before == cv2.getNumThreads()
