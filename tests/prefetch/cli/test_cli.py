"""The command line: reports, files, errors in one line, exit statuses."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import re
import shutil
import signal
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import cv2
import numpy as np
import pytest

import prefetch
import prefetch.caffe
from prefetch._config.schema import config_schema
from prefetch._record.wire import encode_datum
from prefetch.cli import main
from prefetch.cli.reports import survey as survey_report
from prefetch.cli.reports.printing import print_fields
from prefetch.cli.terminal.messages import forward_messages
from prefetch.cli.terminal.progress import DelayedProgress
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

NETWORK = """
layer {
  name: "images" type: "Data" top: "data" top: "label" include { phase: TRAIN }
  transform_param { mirror: true crop_size: 5 scale: 0.017 mean_value: 104 mean_value: 117.5
                    mean_value: 123 }
  data_param { source: "data/lmdb" batch_size: 7 backend: LMDB rand_skip: 2 }
}
layer {
  name: "images" type: "Data" top: "data" include { phase: TEST }
  transform_param { mean_file: "data/mean.binaryproto" }
  data_param { source: "data/lmdb" batch_size: 4 backend: LMDB prefetch: 2 }
}
"""


@pytest.fixture
def folder(workplace: Path) -> Path:
    """The current folder, with a database, two configurations of it and a mean file."""
    Path("net.prototxt").write_text(NETWORK, encoding="utf-8")
    blob = prefetch.caffe.BlobProto(num=1, channels=3, height=8, width=8, data=[1.5] * 192)
    Path("data/mean.binaryproto").write_bytes(blob.SerializeToString())
    return workplace


Run = Any


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a command; return its exit status, its output and its messages."""

    def call(*arguments: str) -> tuple[int, str, str]:
        status = main(arguments)
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


def report(run: Run, *arguments: str) -> Any:
    status, out, err = run(*arguments, "--json")
    assert (0, "") == (status, err)
    return json.loads(out)


# --- the program -----------------------------------------------------------------------------


def test_the_version_is_the_distributions(run: Run) -> None:
    status, out, _ = run("--version")
    assert 0 == status
    assert out.startswith("ringfeed ")


def test_without_a_command_the_help_is_shown(run: Run) -> None:
    status, out, err = run()
    assert 2 == status
    assert "Commands:" in out + err


@pytest.mark.parametrize(
    "arguments", [["nonsense"], ["inspect"], ["inspect", ".", "--nonsense"], ["check", "none.yaml"]]
)
@pytest.mark.usefixtures("folder")
def test_a_wrong_use_is_status_2_with_a_word_on_how(run: Run, arguments: list[str]) -> None:
    status, out, err = run(*arguments)
    assert (2, "") == (status, out)
    assert "Usage:" in err
    assert "Traceback" not in err


@pytest.mark.parametrize("option", ["-v", "--verbose"])
@pytest.mark.usefixtures("folder")
def test_verbose_may_stand_behind_the_command_too(option: str, run: Run) -> None:
    for arguments in ([option, "check", "feed.yaml"], ["check", "feed.yaml", option]):
        status, _, errors = run(*arguments)
        assert 0 == status
        assert "info: transform.where: auto resolved to host" in errors


def test_debug_and_version_may_stand_behind_the_command_too(run: Run) -> None:
    assert "Traceback" in run("inspect", "nowhere", "--debug")[2]
    assert run("inspect", "--version")[1].startswith("ringfeed ")


def test_behind_two_dashes_all_is_an_argument(run: Run) -> None:
    status, _, errors = run("inspect", "--", "-v")
    assert 1 == status
    assert "/-v: " in errors


def test_a_missing_argument_is_answered_by_all_of_them(run: Run) -> None:
    status, _, errors = run("convert", "photos")
    assert 2 == status
    assert "Missing argument INPUT... DB. Give them in this order." in errors
    assert "Missing argument 'DB'" in run("inspect")[2]


@pytest.mark.parametrize(
    ("command", "usage", "argument"),
    [
        ("convert", "convert [OPTIONS] INPUT... DB\n", "  INPUT...  ROOT LIST"),
        ("mean", "mean [OPTIONS] DB [OUT]\n", "  OUT  OUT.binaryproto"),
        ("check", "check [OPTIONS] CONFIG\n", "  CONFIG  YAML file"),
    ],
)
def test_arguments_are_called_in_the_help_as_in_the_documents(
    command: str, usage: str, argument: str, run: Run
) -> None:
    _, output, _ = run(command, "--help")
    assert f"Usage: ringfeed {usage}" in output
    assert argument in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["\x1b[2J"],
        ["inspect", "\x1b[2J"],
        ["inspect", "--\x1b[2J"],
        ["inspect", "db", "\x1b[2J"],
        ["check", "\x1b[2J"],
        ["check", "data", "--phase", "\x1b[2J"],
        ["show", "\x1b[2J.yaml", "\x1b[2J.png"],
        ["show", "data", "\x1b[2J"],
        ["bench", "data", "--threads", "\x1b[2J"],
        ["convert", "\x1b[2J", "\x1b[2J", "\x1b[2J/db"],
        ["mean", "\x1b[2J", "\x1b[2J/m.npy"],
        ["from-prototxt", "\x1b[2J.prototxt"],
    ],
)
@pytest.mark.usefixtures("folder")
def test_nothing_on_the_command_line_steers_the_terminal_by_an_error(
    arguments: list[str], run: Run
) -> None:
    status, output, errors = run(*arguments)
    assert 0 != status
    assert r"\x1b[2J" in errors
    assert "\x1b" not in output + errors


@pytest.mark.usefixtures("folder")
def test_no_name_steers_the_terminal_by_a_report(run: Run) -> None:
    name = "\x1b[2J\x9b2J\x7f"
    shutil.copytree("data/lmdb", f"data/{name}")
    Path(f"{name}.prototxt").write_text(NETWORK, encoding="utf-8")
    Path("c.yaml").write_text(r'source: "data/\e[2J\x9b2J\x7f"', encoding="utf-8")
    for arguments in (
        ["inspect", f"data/{name}"],
        ["inspect", f"data/{name}", "--json"],
        ["check", "c.yaml"],
        ["check", "c.yaml", "--json"],
        ["show", "c.yaml", f"{name}.png"],
        ["mean", f"data/{name}", f"{name}.npy", "--json"],
        ["from-prototxt", f"{name}.prototxt"],
        ["from-prototxt", f"{name}.prototxt", f"{name}.yaml"],
    ):
        status, output, errors = run(*arguments)
        assert 0 == status, errors
        unprintable = {char for char in output + errors if not char.isprintable()}
        assert {"\n"} == unprintable, arguments
        if "--json" in arguments:
            assert name in "".join(_texts(json.loads(output)))


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _texts(inner)


def test_an_argument_of_any_length_is_quoted_in_part(run: Run) -> None:
    _, _, errors = run("inspect", "db", "--images", "9" * 100000)
    assert "expected an integer of fewer digits, found 999" in errors
    assert len(errors) < 1000


@pytest.mark.usefixtures("folder")
def test_an_error_is_one_message_and_status_1(run: Run) -> None:
    status, out, err = run("inspect", "none")
    assert (1, "", 1) == (status, out, len(err.splitlines()))
    assert err.startswith(f"error: {Path.cwd()}/none: there is nothing here")


@pytest.mark.parametrize(
    "arguments",
    [
        ["inspect", "pipe"],
        ["inspect", "."],
        ["mean", "pipe"],
        ["mean", "."],
        ["check", "pipe"],
        ["show", "pipe", "a.png"],
        ["bench", "pipe"],
        ["from-prototxt", "pipe"],
        ["check", "mean.yaml"],
        ["convert", "data", "pipe", "db"],
        ["convert", "pipe", "pipe", "db"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_a_pipe_where_a_file_is_expected_ends_by_itself(
    run: Run, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefetch._files.input.SILENCE_S", 0.01)
    os.mkfifo("pipe")
    Path("data.mdb").symlink_to("pipe")
    Path("mean.yaml").write_text("source: data/lmdb\ntransform: {mean_file: pipe}\n")
    status, out, err = run(*arguments)
    assert (1, "") == (status, out)
    assert "is a pipe" in err or "is neither a folder nor a file" in err or "is no file" in err


@pytest.mark.usefixtures("folder")
def test_every_fault_of_a_configuration_is_listed(run: Run) -> None:
    Path("bad.yaml").write_text("source: data/lmdb\nbatch_sise: 8\nprefetch: 0\n")
    status, _, err = run("check", "bad.yaml")
    assert 1 == status
    assert "did you mean batch_size" in err
    assert "line 3" in err


@pytest.mark.usefixtures("folder")
def test_with_debug_an_error_shows_where_it_comes_from(run: Run) -> None:
    status, _, err = run("--debug", "inspect", "none")
    assert 1 == status
    assert "Traceback" in err
    assert "DatabaseNotFoundError" in err


@pytest.mark.usefixtures("folder")
def test_a_device_that_is_not_there_is_an_error_like_any_other(run: Run) -> None:
    Path("gpu.yaml").write_text("source: data/lmdb\ndevice: cuda:99\n")
    status, out, err = run("check", "gpu.yaml")
    assert (1, "") == (status, out)
    assert err.startswith("error: ")


class _Interrupted:
    def __getattr__(self, name: str) -> object:
        raise KeyboardInterrupt


def test_interrupted_while_the_commands_are_imported_it_ends_with_130(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "prefetch.cli.app", cast("ModuleType", _Interrupted()))
    assert main(["--version"]) == 130


@pytest.mark.usefixtures("folder")
def test_interrupted_it_ends_with_130(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("prefetch._tools.survey.survey_database", interrupt)
    status, out, err = run("inspect", "data/lmdb")
    assert (130, "") == (status, out)
    assert "interrupted" in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("folder")
def test_an_error_of_our_own_making_is_not_hidden(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("prefetch._tools.survey.survey_database", fail)
    with pytest.raises(ZeroDivisionError):
        run("inspect", "data/lmdb")


@pytest.mark.usefixtures("folder")
def test_verbose_says_what_auto_became(run: Run) -> None:
    assert (
        "threads: auto resolved to"
        in run(
            *["-v", "bench", "feed.yaml", "--rounds", "1", "--batches", "1", "--consumer-ms", "0.1"]
        )[2]
    )


# --- inspect ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_inspect_prints_what_a_person_wants_to_know(run: Run) -> None:
    status, out, err = run("inspect", "data/lmdb")
    assert (0, "") == (status, err)
    assert f"database  {Path.cwd()}/data/lmdb\n" in out
    assert "records   20; all examined\n" in out
    assert "kinds     raw 20\n" in out
    assert "shapes    3 x 8 x 8: 20 (channels x height x width)\n" in out
    assert "keys      00000000\n" in out
    assert "problems  none found\n" in out
    assert 20 == out.count("\N{FULL BLOCK}" * 40)  # one label each


@pytest.mark.usefixtures("folder")
def test_inspect_reports_to_programs(run: Run) -> None:
    found = report(run, "inspect", "data/lmdb", "--full")
    assert {"raw": 20} == found["kinds"]
    assert {"3x8x8": 20} == found["shapes"]
    assert {str(label): 1 for label in range(20)} == found["labels"]
    assert ("00000000", "00000019") == (found["keys"][0], found["keys"][-1])
    assert (20, 20, True, True) == (
        found["num_records"],
        found["num_examined"],
        found["is_complete"],
        found["is_sound"],
    )
    assert Path("data/lmdb/data.mdb").stat().st_size == found["storage"]["file_bytes"]
    assert ([], None) == (found["problems"], found["picture"])


@pytest.mark.usefixtures("folder")
def test_inspect_ends_with_1_where_records_cannot_be_used(run: Run) -> None:
    write_database(
        Path("bad"),
        [(b"\xfe", b"\xff"), (b"a", encode_image(np.zeros((1, 2, 2), np.uint8), label=1))],
    )
    status, out, err = run("inspect", "bad", "--json")
    assert (1, "") == (status, err)
    (problem,) = [one for one in json.loads(out)["problems"] if one["severity"] == "error"]
    assert ["\\xfe"] == problem["keys"]
    status, out, _ = run("inspect", "bad")
    assert 1 == status
    assert "keys: \\xfe" in out


@pytest.mark.usefixtures("folder")
def test_many_labels_are_summed_up(run: Run) -> None:
    write_database(Path("many"), fingerprinted_images(50, (1, 2, 2)))
    assert "50 different ones, 0 to 49" in run("inspect", "many")[1]


@pytest.mark.usefixtures("folder")
def test_inspect_draws_a_picture(run: Run) -> None:
    found = report(run, "inspect", "data/lmdb", "--show", "a.png", "--images", "5")
    assert str(Path("a.png").absolute()) == found["picture"]
    assert cv2.imread("a.png") is not None


def shown_colours(picture: str) -> set[str]:
    """Return which of blue and red a picture shows."""
    pixels = cv2.imread(picture)
    assert pixels is not None
    colours = {"blue": (255, 0, 0), "red": (0, 0, 255)}
    return {name for name, colour in colours.items() if (pixels == colour).all(axis=2).any()}


@pytest.mark.parametrize(
    ("arguments", "colour"),
    [
        (["inspect", "blue", "--show", "a.png"], "blue"),
        (["inspect", "blue", "--show", "a.png", "--channels", "rgb"], "red"),
        (["show", "stored.yaml", "a.png"], "blue"),
        (["show", "rgb.yaml", "a.png"], "blue"),
        (["show", "stored.yaml", "a.png", "--channels", "rgb"], "red"),
        (["show", "rgb.yaml", "a.png", "--channels", "bgr"], "red"),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_pictures_have_the_colours_that_the_order_of_the_channels_says(
    arguments: list[str], colour: str, run: Run
) -> None:
    pixels = np.zeros((3, 8, 8), np.uint8)
    pixels[0] = 255
    write_database(Path("blue"), [(b"a", encode_image(pixels, label=0))])
    for channels in ("stored", "rgb"):
        Path(f"{channels}.yaml").write_text(
            f"source: blue\nbatch_size: 1\nprefetch: 2\ntransform: {{channels: {channels}}}\n"
        )
    assert 0 == run(*arguments)[0]
    assert {colour} == shown_colours("a.png")


@pytest.mark.parametrize(("options", "shown"), [([], 5), (["--images", "2"], 2)])
@pytest.mark.usefixtures("folder")
def test_as_many_records_are_drawn_as_asked_for(options: list[str], shown: int, run: Run) -> None:
    blue = np.zeros((3, 8, 8), np.uint8)
    blue[0] = 255
    write_database(Path("blue"), [(b"%d" % n, encode_image(blue, label=n)) for n in range(5)])
    assert 0 == run("inspect", "blue", "--show", "a.png", *options)[0]
    picture = cv2.imread("a.png")
    assert picture is not None
    assert shown * 144 * 144 == (picture == (255, 0, 0)).all(axis=2).sum()


@pytest.mark.usefixtures("folder")
def test_a_name_that_is_no_pictures_is_refused_before_anything_is_read(run: Run) -> None:
    status, _, err = run("inspect", "none", "--show", "a.txt")
    assert 2 == status
    assert "end it in .png" in err


@pytest.mark.usefixtures("folder")
def test_a_picture_that_cannot_be_written_is_an_error(run: Run) -> None:
    Path("a.png").mkdir()
    status, _, err = run("inspect", "data/lmdb", "--show", "a.png")
    assert 1 == status
    assert "a.png" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "none", "--show", "nowhere/a.png"),
        ("show", "digits.yaml", "nowhere/a.png"),
        ("mean", "none", "nowhere/mean.npy"),
        ("from-prototxt", "net.prototxt", "nowhere/net.yaml"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_a_folder_that_is_not_there_is_named_before_anything_is_read(
    arguments: tuple[str, ...], run: Run
) -> None:
    Path("digits.yaml").touch()
    status, _, err = run(*arguments)
    assert 2 == status
    assert f"there is no folder {Path('nowhere').absolute()}" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "loop"],
        ["check", "loop/a.yaml"],
        ["show", "loop", "a.png"],
        ["bench", "loop"],
        ["from-prototxt", "loop"],
        ["show", "feed.yaml", "loop/a.png"],
        ["inspect", "loop"],
        ["inspect", "data/lmdb", "--show", "loop/a.png"],
        ["mean", "loop"],
        ["mean", "data/lmdb", "loop/a.npy"],
        ["convert", "loop", "db"],
        ["convert", "data", "loop", "db"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_a_link_that_leads_in_circles_is_told_as_such(run: Run, arguments: list[str]) -> None:
    Path("loop").symlink_to("loop")
    status, out, err = run(*arguments)
    assert (1, "") == (status, out)
    assert "Too many levels of symbolic links" in err
    assert 1 == len(err.splitlines())


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "closed/it"],
        ["from-prototxt", "closed/it"],
        ["mean", "data/lmdb", "closed/it.npy"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_what_lies_in_a_closed_folder_is_told_as_such(
    run: Run, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    look = Path.stat

    def forbidden(path: Path, **options: bool) -> os.stat_result:
        if "closed" in path.parts:
            raise PermissionError(13, "Permission denied", str(path))
        return look(path, **options)

    monkeypatch.setattr(Path, "stat", forbidden)  # root may look everywhere
    status, _, err = run(*arguments)
    assert 1 == status
    assert f"{Path.cwd()}/closed" in err
    assert "Permission denied" in err


def test_where_the_terminal_has_no_blocks_bars_are_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="latin-1"))
    assert "#" == survey_report._bar_character()


# --- show ------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["data/lmdb", "data/lmdb/data.mdb", "data/lm*"])
@pytest.mark.usefixtures("folder")
def test_check_show_and_bench_take_a_database_as_open_does(run: Run, what: str) -> None:
    with prefetch.open(what) as feed:
        shape = list(next(iter(feed)).data.shape)
    found = report(run, "check", what)
    assert shape == list(found["data_shape"])
    assert "test" == report(run, "check", what, "--phase", "test")["phase"]
    assert shape == report(run, "show", what, "a.png")["batches"][0]["shape"]
    effort = ["--rounds", "1", "--batches", "1", "--consumer-ms", "0.1", "--batch-size", "4"]
    assert 0 == run("bench", what, *effort)[0]


@pytest.mark.usefixtures("folder")
def test_a_pattern_that_matches_nothing_is_a_wrong_use(run: Run) -> None:
    status, _, err = run("check", "data/none*")
    assert 2 == status
    assert "there is no file" in err


@pytest.mark.usefixtures("folder")
def test_show_does_not_write_over_its_database(run: Run) -> None:
    Path("data/lmdb/data.mdb").rename("data/lmdb.png")
    before = Path("data/lmdb.png").read_bytes()
    assert 2 == run("show", "data/lmdb.png", "data/lmdb.png", "--force")[0]
    assert before == Path("data/lmdb.png").read_bytes()


@pytest.mark.usefixtures("folder")
def test_show_draws_batches_and_reports_them(run: Run) -> None:
    found = report(run, "show", "feed.yaml", "--batches", "2", "b.png")
    assert [(0, 0), (0, 1)] == [(one["epoch"], one["number"]) for one in found["batches"]]
    assert [8, 3, 8, 8] == found["batches"][0]["shape"]
    assert list(range(8)) == found["batches"][0]["labels"]
    assert "00000008" == found["batches"][1]["keys"][0]
    picture = cv2.imread("b.png")
    assert picture is not None
    status, out, _ = run("show", "feed.yaml", "b.png", "--force")
    assert (0, "b.png: 8 records in 1 batch\n") == (status, out)
    again = cv2.imread("b.png")
    assert again is not None
    assert len(again) < len(picture)


@pytest.mark.usefixtures("folder")
def test_show_says_once_what_two_feeds_would_say(run: Run) -> None:
    good = encode_image(np.zeros((3, 8, 8), np.uint8), label=0)
    write_database(Path("bad"), [(b"a", good), (b"b", b"\xff"), (b"c", good)])
    Path("bad.yaml").write_text("source: bad\nbatch_size: 3\non_bad_record: skip\n")
    status, _, err = run("show", "bad.yaml", "b.png")
    (warning,) = err.splitlines()
    assert 0 == status
    assert "key 'b'" in warning


@pytest.mark.usefixtures("folder")
def test_show_takes_a_network_and_says_what_it_ignores(run: Run) -> None:
    status, _, err = run("show", "net.prototxt", "b.png")
    assert 0 == status
    assert err.startswith("warning: layer 'images'")
    assert "rand_skip has no effect" in err


# --- check -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_check_reports_what_a_configuration_comes_to(run: Run) -> None:
    found = report(run, "check", "feed.yaml")
    assert [str(Path("data/lmdb").absolute())] == found["sources"]
    assert (20, 3, "train") == (
        found["num_records"],
        found["batches_per_epoch"],
        found["phase"],
    )
    assert ([8, 3, 8, 8], "float32", "int64") == (
        found["data_shape"],
        found["data_dtype"],
        found["label_dtype"],
    )
    assert (0.0, 7.0, 3.5) == (found["least"], found["most"], found["mean"])
    batch_bytes = 8 * (3 * 8 * 8 * 4 + 8)
    assert (5, 5 * batch_bytes, 20 * batch_bytes) == (
        found["slots"],
        found["host_bytes"],
        found["most_host_bytes"],
    )
    assert [] == found["warnings"]


@pytest.mark.usefixtures("folder")
def test_check_counts_device_memory_where_there_is_any(run: Run) -> None:
    Path("device.yaml").write_text("source: data/lmdb\ndevice: simulated\n")
    found = report(run, "check", "device.yaml")
    assert found["device"] == "simulated"
    # Three of five batches are on the host at a time, whatever is held.
    assert 5 * found["host_bytes"] == 3 * found["device_bytes"]
    assert found["most_host_bytes"] == found["host_bytes"]
    _, out, _ = run("check", "device.yaml")
    assert "for the batches that are filled and copied" in out


@pytest.mark.usefixtures("folder")
def test_check_lists_warnings_in_its_report(run: Run) -> None:
    Path("one.yaml").write_text("source: data/lmdb\nprefetch: 1\nbatch_size: 8\n")
    (warning,) = report(run, "check", "one.yaml")["warnings"]
    assert "prefetch is 1" in warning
    Path("held.yaml").write_text("source: data/lmdb\nmax_batches_held: 1\nbatch_size: 8\n")
    (warning,) = report(run, "check", "held.yaml")["warnings"]
    assert "max_batches_held is 1" in warning
    status, out, err = run("check", "net.prototxt")
    assert (0, "") == (status, err)
    assert "rand_skip has no effect" in out
    assert "an endless stream" in out


@pytest.mark.parametrize(
    ("last_batch", "words"),
    [
        ("partial", "an epoch is one batch, smaller"),
        ("wrap", "a batch holds records several times"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_check_warns_of_batches_larger_than_the_database(
    last_batch: str, words: str, run: Run
) -> None:
    Path("large.yaml").write_text(f"source: data/lmdb\nbatch_size: 21\nlast_batch: {last_batch}\n")
    (warning,) = report(run, "check", "large.yaml")["warnings"]
    assert f"batch_size is 21, more than the 20 records: {words}" in warning
    Path("fits.yaml").write_text(f"source: data/lmdb\nbatch_size: 20\nlast_batch: {last_batch}\n")
    assert [] == report(run, "check", "fits.yaml")["warnings"]
    if last_batch == "partial":
        assert "epoch          1 batch\n" in run("check", "fits.yaml")[1]


@pytest.mark.parametrize(
    ("shard", "per_rank"),
    [
        ({"policy": "pad"}, 7),
        ({"policy": "drop"}, 6),
        ({"policy": "caffe", "phase": "train"}, 7),
        ({"policy": "caffe", "phase": "test"}, 20),
    ],
)
@pytest.mark.usefixtures("folder")
def test_check_counts_the_records_of_one_rank(
    shard: dict[str, str], per_rank: int, run: Run
) -> None:
    """In Caffe's test phase that is all of them: 20."""

    def warnings_of(batch_size: int) -> list[str]:
        Path("rank.yaml").write_text(
            f"source: data/lmdb\nbatch_size: {batch_size}\nlast_batch: wrap\n"
            f"phase: {shard.get('phase', 'train')}\n"
            f"shard: {{rank: 2, world_size: 3, policy: {shard['policy']}}}\n"
        )
        found: list[str] = report(run, "check", "rank.yaml")["warnings"]
        return found

    assert [] == warnings_of(per_rank)
    (warning,) = warnings_of(per_rank + 1)
    assert f"more than the {per_rank} records of one of 3 ranks: a batch holds" in warning


@pytest.mark.usefixtures("folder")
def test_verbose_check_says_what_was_chosen_and_lists_warnings_as_before(run: Run) -> None:
    quiet = run("check", "feed.yaml")
    assert "" == quiet[2]
    status, out, err = run("-v", "check", "feed.yaml", "--json")
    assert 0 == status
    assert [] == json.loads(out)["warnings"]
    assert "info: threads: auto resolved to" in err


@pytest.mark.usefixtures("folder")
def test_check_says_what_auto_became(run: Run) -> None:
    out = run("check", "feed.yaml")[1]
    assert re.search(r"^device +(cpu|cuda:0) \(auto\)$", out, re.MULTILINE)
    assert re.search(r"^threads +[1-9][0-9]* \(auto\)$", out, re.MULTILINE)
    assert "warnings       none" in out
    Path("chosen.yaml").write_text("source: data/lmdb\ndevice: cpu\nthreads: 3\n")
    out = run("check", "chosen.yaml")[1]
    assert re.search(r"^device +cpu$", out, re.MULTILINE)
    assert re.search(r"^threads +3$", out, re.MULTILINE)


@pytest.mark.usefixtures("folder")
def test_the_phase_can_be_chosen(run: Run) -> None:
    assert "test" == report(run, "check", "feed.yaml", "--phase", "test")["phase"]
    found = report(run, "check", "net.prototxt", "--phase", "TEST")
    assert ("test", None) == (found["phase"], found["label_dtype"])


@pytest.mark.usefixtures("folder")
def test_a_bad_record_of_the_first_batch_is_an_error(run: Run) -> None:
    write_database(Path("bad"), [(b"a", b"\xff")])
    Path("bad.yaml").write_text("source: bad\n")
    status, _, err = run("check", "bad.yaml")
    assert 1 == status
    assert "key 'a'" in err


@pytest.mark.usefixtures("folder")
def test_options_for_networks_are_refused_with_a_yaml_file(run: Run) -> None:
    assert 2 == run("check", "feed.yaml", "--layer", "x")[0]


# --- schema ----------------------------------------------------------------------------------


def test_schema_prints_the_schema(run: Run) -> None:
    status, out, _ = run("schema")
    assert (0, config_schema()) == (status, json.loads(out))


# --- from-prototxt ---------------------------------------------------------------------------


def first_bytes(feed: prefetch.Feed) -> list[bytes]:
    """Return the first batches of a feed, as bytes."""
    found = []
    for _, batch in zip(range(4), feed, strict=False):
        found.append(batch.data.numpy().tobytes())
        with contextlib.suppress(prefetch.LabelsNotProducedError):
            found.append(batch.label.numpy().tobytes())
    return found


@pytest.mark.parametrize("phase", ["TRAIN", "TEST"])
@pytest.mark.parametrize("out", ["net.yaml", "deep/er/net.yaml", None])
def test_the_yaml_file_serves_the_same_bytes_as_the_network(
    folder: Path, run: Run, phase: str, out: str | None
) -> None:
    where = Path(out or "elsewhere/net.yaml")
    where.parent.mkdir(parents=True, exist_ok=True)
    arguments = ["net.prototxt", "--phase", phase.lower(), "--seed", "1701"]
    status, text, _ = run("from-prototxt", *arguments, *([out] if out else []))
    assert 0 == status
    if out is None:
        where.write_text(text, encoding="utf-8")
    with warnings.catch_warnings(), prefetch.open(where) as ours:
        warnings.simplefilter("ignore", prefetch.PrefetchWarning)
        with prefetch.open_prototxt("net.prototxt", phase=phase, seed=1701) as caffes:
            assert caffes.config.model_dump(exclude={"transform"}) == ours.config.model_dump(
                exclude={"transform"}
            )
            assert first_bytes(caffes) == first_bytes(ours)
    is_relative = str(folder) not in where.read_text(encoding="utf-8")
    assert is_relative is (out is not None)


@pytest.mark.usefixtures("folder")
def test_without_a_seed_the_file_says_that_every_run_differs(run: Run) -> None:
    assert "seed: null  # another one every run" in run("from-prototxt", "net.prototxt")[1]


@pytest.mark.usefixtures("folder")
def test_numbers_stay_as_short_as_the_network_has_them(run: Run) -> None:
    out = run("from-prototxt", "net.prototxt")[1]
    assert "scale: 0.017\n" in out
    assert "mean_value: [104.0, 117.5, 123.0]\n" in out


@pytest.mark.usefixtures("folder")
def test_a_file_is_written_over_only_by_force(run: Run) -> None:
    Path("out.yaml").write_text("mine", encoding="utf-8")
    assert 2 == run("from-prototxt", "net.prototxt", "out.yaml")[0]
    assert "mine" == Path("out.yaml").read_text(encoding="utf-8")
    assert 0 == run("from-prototxt", "net.prototxt", "out.yaml", "--force")[0]
    assert "source" in Path("out.yaml").read_text(encoding="utf-8")


@pytest.mark.usefixtures("folder")
def test_a_path_that_yaml_could_take_for_something_else_is_a_path(run: Run) -> None:
    name = 'on: "yes" #1 é'
    write_database(Path(name), fingerprinted_images(7, (3, 8, 8)))
    text = NETWORK.replace("data/lmdb", name.replace('"', '\\"'))
    Path("odd.prototxt").write_text(text, encoding="utf-8")
    run("from-prototxt", "odd.prototxt", "odd.yaml")
    with prefetch.open("odd.yaml") as feed:
        assert (Path(name).absolute(),) == feed.config.source


@pytest.mark.usefixtures("folder")
def test_the_help_of_from_prototxt_speaks_of_networks_only(run: Run) -> None:
    out = run("from-prototxt", "--help")[1]
    assert "YAML file says" not in out
    assert "[default: train]" in out


# --- one of a thing --------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_one_of_a_thing_is_called_as_such(run: Run) -> None:
    write_database(Path("single"), fingerprinted_images(1))
    Path("one.yaml").write_text("source: single\nbatch_size: 1\nprefetch: 2\n", encoding="utf-8")
    Path("photos").mkdir()
    cv2.imwrite("photos/a.png", np.zeros((2, 2, 3), np.uint8))
    Path("list.txt").write_text("a.png 0\n")
    Path("none.txt").write_text("b.png 0\n")
    Path("classes/5/empty").mkdir(parents=True)
    Path("classes/5/a.png").write_bytes(Path("photos/a.png").read_bytes())
    Path("classes/5/note.txt").touch()
    told = [
        run("check", "one.yaml"),
        run("inspect", "single"),
        run("show", "one.yaml", "a.png"),
        run("convert", "photos", "list.txt", "db"),
        run("convert", "photos", "none.txt", "db2"),
        run("convert", "photos", "none.txt", "db3", "--skip-unreadable"),
        run("convert", "classes", "db4", "--encoded"),
        run("mean", "single"),
        run("convert", "photos/a.png", "a.png", "db5", "--from", "arrays"),
    ]
    text = "".join(out + err for _, out, err in told)
    assert "epoch          1 batch\n" in text
    assert "the only image cannot be read" in text
    assert "1 file left out" in text
    assert [] == re.findall(r"\b1 (?:\w+ )?\w+(?:es|[^s]s)\b", text)


# --- paths -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_a_path_that_is_no_utf_8_is_like_any_other(run: Run) -> None:
    name = os.fsdecode(b"k\xf6ln")
    Path("data/lmdb").rename(name)
    Path("feed.yaml").write_text("source: lmdb\n")
    np.save("x.npy", np.zeros((5, 3, 8, 8), np.uint8))
    assert report(run, "inspect", name, "--full", "--show", f"{name}.png")["path"].endswith(
        r"/k\xf6ln"
    )
    assert report(run, "mean", name, f"{name}.npy")["mean_file"].endswith(r"/k\xf6ln.npy")
    assert report(run, "convert", "x.npy", f"{name}2")["database"].endswith(r"/k\xf6ln2")
    assert r"/k\xf6ln2" in run("inspect", f"{name}2")[1]
    with prefetch.open({"source": name, "batch_size": 20}) as feed:
        assert [20] == [len(batch) for batch in feed]
    with pytest.raises(prefetch.ConfigError, match="half a character"):
        prefetch.open({"source": "\ud800"})


# --- for programs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ["convert", "classes", "db", "--skip-unreadable", "--seed", "3"],
        ["mean", "data/lmdb"],
        ["inspect", "bad", "--show", "a.png"],
        ["show", "net.prototxt", "a.png"],
        ["check", "net.prototxt"],
        ["bench", "net.prototxt", "--rounds", "1", "--batches", "1", "--consumer-ms", "0.1"],
    ],
    ids=lambda arguments: arguments[0],
)
@pytest.mark.parametrize("verbose", [[], ["-v"]], ids=["quiet", "verbose"])
@pytest.mark.usefixtures("folder")
def test_with_json_nothing_else_is_on_the_output(
    arguments: list[str], verbose: list[str], run: Run
) -> None:
    write_database(Path("bad"), [(b"a", b"\xff")])
    Path("classes/7").mkdir(parents=True)
    cv2.imwrite("classes/7/a.png", np.zeros((2, 2, 3), np.uint8))
    Path("classes/7/bad.png").touch()
    status, out, err = run(*verbose, *arguments, "--json")
    assert (1 if "bad" in arguments else 0) == status
    assert isinstance(json.loads(out), dict)
    if arguments[0] in {"convert", "show"}:
        assert "warning: " in err


# --- bench -----------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
def test_bench_measures_four_kinds_of_loop(run: Run) -> None:
    arguments = ["feed.yaml", "--rounds", "2", "--batches", "3", "--consumer-ms", "0.5"]
    status, out, _ = run("bench", *arguments, "--batch-size", "4", "--threads", "1", "--json")
    found = json.loads(out)
    assert 0 == status
    assert ["drain", "read", "wait", "python"] == [case["consumer"] for case in found["cases"]]
    assert [12, 12] == [one["images"] for one in found["cases"][0]["rounds"]]
    assert (4, 1) == (found["feed"]["batch_size"], found["feed"]["threads"])
    status, out, _ = run("bench", *arguments)
    assert 0 == status
    assert out.splitlines()[0].split()[:2] == ["loop", "images/s"]


# --- the terminal ----------------------------------------------------------------------------


def be_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the captured output and messages look like terminals."""
    monkeypatch.setenv("TERM", "xterm")
    for stream in (sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True)


def test_progress_shows_what_takes_longer_than_a_second(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_terminals(monkeypatch)
    now = 0.0
    with DelayedProgress(lambda: now) as progress:
        progress("reading", 1, 10)
        assert ("", "") == capsys.readouterr()
        now = 1.5
        progress("reading", 3, 10)
        progress("reading", 10, 10)
    out, err = capsys.readouterr()
    assert "" == out
    assert "reading" in err


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (["convert", "x.npy", "db"], "converting"),
        (["mean", "data/lmdb"], "adding up"),
        (["inspect", "many", "--full"], "reading"),
        (["show", "feed.yaml", "--batches", "2", "a.png", "--force"], "reading"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else value,
)
@pytest.mark.usefixtures("folder")
def test_every_command_that_may_take_long_shows_how_far_it_is(
    arguments: list[str], what: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("x.npy", np.zeros((300, 3, 8, 8), np.uint8))
    write_database(Path("many"), fingerprinted_images(2000, (1, 2, 2)))
    be_terminals(monkeypatch)
    monkeypatch.setattr("prefetch.cli.terminal.progress._DELAY_S", 1e9)
    assert what not in run(*arguments)[2]
    monkeypatch.setattr("prefetch.cli.terminal.progress._DELAY_S", -1.0)
    shutil.rmtree("db", ignore_errors=True)
    assert what in run(*arguments)[2]


def test_progress_is_for_people_only(capsys: pytest.CaptureFixture[str]) -> None:
    now = 0.0
    with DelayedProgress(lambda: now) as progress:
        now = 5.0
        progress("reading", 3, 10)
    assert ("", "") == capsys.readouterr()


def test_on_a_terminal_names_are_bold_and_values_as_they_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_terminals(monkeypatch)
    print_fields([("name", "[red]/a/b[/red] :smile:"), ("", "more")])
    out, _ = capsys.readouterr()
    assert "\x1b[1mname\x1b[0m  [red]/a/b[/red] :smile:" in out


def test_forwarding_messages_leaves_loggers_as_they_were() -> None:
    logger = logging.getLogger("prefetch")
    before = (logger.level, logger.propagate, list(logger.handlers))
    told: list[tuple[str, str]] = []
    with forward_messages(lambda *what: told.append(what)):
        logger.warning("%d and %s", 1, "two")
        logger.info("too little")
        warnings.warn("odd", prefetch.PrefetchWarning, stacklevel=1)
    assert [("warning", "1 and two"), ("warning", "odd")] == told
    assert before == (logger.level, logger.propagate, list(logger.handlers))


@pytest.mark.usefixtures("folder")
def test_what_is_not_finite_is_null_in_json_and_a_warning_of_check(run: Run) -> None:
    for name, options in (
        ("large", "transform: {scale: 1e30, dtype: float16}"),
        ("sound", "transform: {scale: 1}"),
    ):
        Path(f"{name}.yaml").write_text(f"source: data/lmdb\nbatch_size: 2\n{options}\n")
    found = report(run, "check", "large.yaml")
    assert found["most"] is None
    (warning,) = found["warnings"]
    assert "no finite numbers: the records hold such, or float16 cannot hold" in warning
    assert report(run, "check", "sound.yaml")["warnings"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["check", "odd.yaml"],
        ["show", "odd.yaml", "a.png"],
        ["bench", "odd.yaml", "--rounds", "1", "--batches", "1", "--consumer-ms", "0.1"],
        ["check", "half.yaml"],
        ["show", "half.yaml", "a.png"],
        ["inspect", "odd", "--full", "--show", "a.png"],
        ["mean", "odd", "mean.npy"],
        ["mean", "odd", "mean.npy", "--exact"],
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_values_that_are_not_finite_are_told_in_words_of_ours_or_not_at_all(
    arguments: list[str], run: Run
) -> None:
    rows = [[np.inf, -np.inf, np.nan, 3e38], [3e38, -3e38, 0, 1], [3e38, -3e38, 1, 1]]
    records = [
        (b"%d" % number, encode_datum(channels=1, height=2, width=2, floats=row, label=0))
        for number, row in enumerate(rows)
    ]
    write_database(Path("odd"), records)
    Path("odd.yaml").write_text("source: odd\n")
    half = "transform: {dtype: float16, mean_value: 3, scale: 1e30}"
    Path("half.yaml").write_text(f"source: data/lmdb\n{half}\n")
    status, _, err = run(*arguments)  # a warning of NumPy's would be an error here
    assert 0 == status
    told = [line for line in err.splitlines() if "machine is busy" not in line]
    if arguments[0] == "mean":
        (warning,) = told
        assert warning.startswith("warning: of the mean's 4 values ")
    else:
        assert [] == told


@pytest.mark.parametrize("command", ["check", "from-prototxt"])
@pytest.mark.usefixtures("folder")
def test_a_choice_of_layers_is_told_in_options_of_the_command(command: str, run: Run) -> None:
    network = Path("net.prototxt").read_text()
    Path("two.prototxt").write_text(network + network)
    err = run(command, "two.prototxt")[2]
    assert "(--layer), or by the network's stages (--stage)" in err
    assert "=..." not in err


@pytest.mark.parametrize("command", ["check", "from-prototxt"])
@pytest.mark.usefixtures("folder")
def test_a_misspelt_block_of_a_network_ends_the_command(command: str, run: Run) -> None:
    network = Path("net.prototxt").read_text()
    Path("odd.prototxt").write_text(network.replace("data_param", "transform_parm { } data_param"))
    status, out, err = run(command, "odd.prototxt")
    assert (1, "") == (status, out)
    assert "did you mean transform_param?" in err


@pytest.mark.usefixtures("folder")
def test_the_guide_names_fields_that_reports_have(run: Run) -> None:
    guide = Path(__file__).parents[3] / "docs/guide/command-line.md"
    sentence = guide.read_text().partition("The fields of a report are")[2]
    of_inspect, _, of_check = sentence.partition("of `inspect`")
    inspected = report(run, "inspect", "data/lmdb")
    checked = report(run, "check", "feed.yaml")
    assert ["num_records", "shapes", "problems"] == [
        name for name in re.findall(r"`(\w+)`", of_inspect) if name in inspected
    ]
    for name in re.findall(r"`(\w+)`", of_check.partition("of `check`")[0]):
        assert name in checked
    assert "`records`" in of_check
    assert "records" in report(run, "mean", "data/lmdb")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mean", "data/lmdb", "--threads", "0"], ["--threads", "0"]),
        (["inspect", "data/lmdb", "--images", "x"], ["--images", "integer"]),
        (["show", "feed.yaml", "a.png", "--batches", "99"], ["--batches", "99"]),
        (
            ["inspect", "data/lmdb", "--channels", "abc"],
            ["'abc' is not one of 'auto', 'bgr', 'rgb'"],
        ),
        (["check", "feed.yaml", "--phase", "tset"], ["--phase", "'tset'"]),
        (["bench", "feed.yaml", "--seconds", "x"], ["--seconds", "x"]),
    ],
    ids=" ".join,
)
@pytest.mark.usefixtures("folder")
def test_a_value_that_an_option_refuses_is_told_in_our_words(
    arguments: list[str], words: list[str], run: Run
) -> None:
    status, _, err = run(*arguments)
    assert 2 == status
    assert "Input should be" not in err
    assert "Value error" not in err
    for word in words:
        assert word in err.splitlines()[-1]
