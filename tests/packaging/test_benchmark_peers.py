"""The comparison with other loaders: its report, its checks, and what is left out."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest

import benchmark_peers
from peers import (
    bare,
    comparison,
    contest,
    databases,
    feed,
    process_tree,
    roster,
    verification,
    works,
)
from peers.contestant import Contestant, ContestantError
from peers.filling import Filler
from peers.resizing import crops, kernel_loop, loops, photographs

if TYPE_CHECKING:
    from pathlib import Path

_WORKS = {work.name: work for work in works.WORKS}
_SMALL = _WORKS["3x32x32"]

needs_pillow = pytest.mark.skipif(
    importlib.util.find_spec("PIL") is None, reason="Pillow is not installed: make test-peers does"
)


def _result(name: str, *elapsed_s: float, cpu_s: float = 1.0) -> contest.Result:
    rounds = [
        contest.Round(
            images=100,
            label_sum=0,
            elapsed_s=elapsed,
            cpu_s=cpu_s,
            ready_next_s=1e-5,
            ready_arrays_s=2e-5,
            anonymous_bytes=0,
            shared_bytes=0,
        )
        for elapsed in elapsed_s
    ]
    (entry,) = (one for one in roster.ROSTER if one.name == name)
    return contest.Result(entry=entry, settings={}, rounds={"touch": rounds, "read": rounds})


def test_the_report_has_the_documented_fields(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--quick", "--small-records", "256", "--rounds", "2", "--data", str(tmp_path)]
    assert 0 == benchmark_peers.main([*small, "--work", "3x32x32", "--peer", "--json", "-"])
    report = json.loads(capsys.readouterr().out)
    fields = "format machine effort works goals left_out failed"
    assert fields.split() == list(report)
    assert ([], []) == (report["left_out"], report["failed"])
    (work,) = report["works"]
    fields = "work num_records prefetch database_bytes loaders ratios"
    assert fields.split() == list(work)
    names = ["ringfeed, 1 thread", "ringfeed, 2 threads"]
    assert names == [loader["name"] for loader in work["loaders"]]
    for loader in work["loaders"]:
        assert loader["delivered"]
        assert loader["verdict"]["identical"]
        assert loader["description"]["kernels"] in {"C", "NumPy"}
        for rounds in (loader["rounds"]["touch"], loader["rounds"]["read"]):
            assert 2 == len(rounds)
            for one in rounds:
                epochs, rest = divmod(one["images"], 256)
                assert (0, epochs * sum(range(256))) == (rest, one["label_sum"])
                assert 0 < one["cpu_s"]
                assert 0 < one["anonymous_bytes"]
    assert [1.0, 1.0] == [work["ratios"]["touch"][0][key] for key in ("images_per_s", "cpu")]


def test_peers_that_are_not_installed_are_left_out_by_name(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = roster.Entry(name="DALI", module="peers.dali_pipeline", imports=("no_such.package",))
    monkeypatch.setattr(benchmark_peers, "ROSTER", (absent,))
    file = tmp_path / "report.json"
    options = ["--quick", "--small-records", "256", "--work", "1x28x28", "--json", str(file)]
    assert 0 == benchmark_peers.main(options)
    report = json.loads(file.read_text())
    assert [{"name": "DALI", "missing": "no_such.package"}] == report["left_out"]
    assert "DALI is left out: no_such.package is not installed" in capsys.readouterr().out


def test_a_loader_that_breaks_down_is_named_and_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = roster.Entry(name="broken", module="peers.feed", settings={"threads": -1})
    monkeypatch.setattr(benchmark_peers, "ROSTER", (broken, roster.ROSTER[0]))
    file = tmp_path / "report.json"
    options = ["--quick", "--small-records", "256", "--work", "1x28x28", "--json", str(file)]
    assert 1 == benchmark_peers.main(options)
    report = json.loads(file.read_text())
    assert ["broken"] == [one["name"] for one in report["failed"]]
    assert "ConfigError" in report["failed"][0]["problem"]
    assert ["ringfeed, 1 thread"] == [one["name"] for one in report["works"][0]["loaders"]]


@pytest.mark.timeout(600)  # each setting of each peer starts a process that imports it
def test_every_installed_loader_delivers_the_work(tmp_path: Path) -> None:
    effort = contest.Effort(rounds=1, seconds=0.01)
    database = databases.make_database(tmp_path, _SMALL, 256)
    task = contest.Task(work=_SMALL, database=database, num_records=256)
    present = [one for one in roster.ROSTER if one.takes_part(_SMALL) and one.missing() is None]
    results, failures = contest.hold(task, present, effort, lambda _: None)
    assert [] == failures
    assert [one.name for one in present] == [result.entry.name for result in results]
    for result in results:
        assert result.delivered, result.entry.name
        assert comparison.is_same_work(result), result.entry.name


def test_a_process_that_ends_is_an_error_with_its_last_words() -> None:
    entry = roster.Entry(name="nobody", module="peers.no_such_module")
    with Contestant(entry) as contestant, pytest.raises(ContestantError) as raised:
        contestant.ask("open")
    assert "nobody" in str(raised.value)
    assert "No module named 'peers.no_such_module'" in raised.value.output


@pytest.mark.parametrize("name", ["uint8", "float", "jpeg", "1x28x28", "3x32x32"])
def test_what_peers_fill_with_numpy_is_the_work(name: str, tmp_path: Path) -> None:
    work = dataclasses.replace(_WORKS[name], batch_size=4)
    database = databases.make_database(tmp_path, work, 8)
    filler = Filler(work, database)
    data, labels = np.zeros(filler.shape, work.dtype), np.zeros(4, np.int64)
    filler.fill(3, np.random.default_rng(0), data, labels)
    filler.close()
    assert [4, 5, 6, 7] == labels.tolist()
    verdict = verification.verify(work, database, data, [4, 5, 6, 7])
    assert verdict.identical
    assert (work.sample_shape != work.shape) == (verdict.places > 1)


def test_another_record_or_a_wrong_mean_is_found_out(tmp_path: Path) -> None:
    work = dataclasses.replace(_WORKS["float"], batch_size=2)
    database = databases.make_database(tmp_path, work, 2)
    filler = Filler(work, database)
    data, labels = np.zeros(filler.shape, np.float32), np.zeros(2, np.int64)
    filler.fill(0, np.random.default_rng(0), data, labels)
    filler.close()
    swapped = verification.verify(work, database, data, [1, 0])
    shifted = verification.verify(work, database, data + 10 * np.float32(work.scale), [0, 1])
    result = _result("DALI", 1.0)
    for verdict in (swapped, shifted):
        assert not verdict.identical
        result.verdict = verdict
        assert not comparison.is_same_work(result)


def test_ratios_are_of_rounds_measured_next_to_each_other() -> None:
    # The machine was four times as slow in the second round, and the feed twice as fast in each.
    ours, theirs = _result("ringfeed, 1 thread", 1, 4, 1), _result("DALI", 2, 8, 2)
    assert 2.0 == comparison.ratio(ours, theirs, lambda one: one.images_per_s)
    assert (2.0, 2.0) == comparison.spread(ours, theirs, lambda one: one.images_per_s)
    found = comparison.goals(_WORKS["float"], [ours, theirs])
    assert ("images/s, to DALI's", 2.0, False) in [(g.what, g.value, g.reached) for g in found]


def test_a_goal_beside_dali_is_set_against_the_faster_of_its_decoders() -> None:
    ours = _result(comparison.MARKED, 1, 1, 2, cpu_s=1)
    crop = _result("DALI, the crop, 1 thread", 2, 3, 4, cpu_s=3)
    whole = _result("DALI, the whole, 1 thread", 4, 4, 4, cpu_s=2)
    found = comparison.goals(_WORKS["rrc"], [ours, crop, whole])
    assert [
        ("images/s with markers, to DALI's best", 2.0, (2.0, 3.0), True),
        ("CPU time with markers, to DALI's least", 0.5, (0.5, 0.5), True),
    ] == [(goal.what, goal.value, goal.spread, goal.reached) for goal in found]


def test_rectangles_have_the_areas_and_ratios_of_imagenets_recipe() -> None:
    rng = np.random.default_rng(0)
    drawn = [crops.draw(rng, 375, 500) for _ in range(2000)]
    for top, left, height, width in drawn:
        assert 0 <= top <= 375 - height
        assert 0 <= left <= 500 - width
    areas, ratios = np.array([(h * w / (375 * 500), w / h) for _, _, h, w in drawn]).T
    assert 0.079 < areas.min() < 0.1
    assert 0.9 < areas.max() <= 1
    assert 0.74 < ratios.min() < 0.76
    assert 1.32 < ratios.max() < 1.35


def test_where_no_rectangle_fits_the_middle_is_taken_with_the_nearest_ratio() -> None:
    rng = np.random.default_rng(0)
    assert (0, 495, 10, 13) in {crops.draw(rng, 10, 1003) for _ in range(50)}
    assert (495, 0, 13, 10) in {crops.draw(rng, 1003, 10) for _ in range(50)}


@needs_pillow
@pytest.mark.parametrize("mirrored", [False, True])
def test_the_rectangle_that_an_image_was_made_of_is_found(*, mirrored: bool) -> None:
    from peers.resizing import rectangles  # noqa: PLC0415 - Pillow is there only now

    rng = np.random.default_rng(int(mirrored))
    picture = photographs.take(rng, 375, 500).transpose(2, 0, 1)
    made_of = rectangles.Rectangle(*crops.draw(rng, 375, 500), mirrored)
    image = rectangles.resized(picture, made_of, 224)
    assert made_of == rectangles.find(image.astype(np.float64), picture)


@needs_pillow
@pytest.mark.parametrize(("method", "most"), [("Pillow", 0.01), ("FFCV's", 2.0)])
def test_bare_loops_resize_rectangles_of_the_records_in_turn(
    method: str, most: float, tmp_path: Path
) -> None:
    work = dataclasses.replace(_WORKS["rrc"], batch_size=2)
    database = databases.make_database(tmp_path / "looped", work, 4)
    with loops.open_stream(work, database, {"method": method}) as stream:
        next(stream)
        data, labels = next(stream)
        assert [2, 3] == labels.tolist()
        # Of the same content: the loop keeps its own open until its process ends.
        again = databases.make_database(tmp_path / "again", work, 4)
        right = verification.verify(work, again, data, [2, 3])
        wrong = verification.verify(work, again, data[:1], [3])
    assert right.mean_levels < most
    assert 20 < wrong.mean_levels


@needs_pillow
@pytest.mark.parametrize("has_markers", [False, True])
def test_the_feeds_resized_crops_are_what_pillow_makes_of_the_records(
    *, has_markers: bool, tmp_path: Path
) -> None:
    work = dataclasses.replace(_WORKS["rrc"], batch_size=2)
    database = databases.make_database(tmp_path, work, 4)
    if has_markers:
        database = databases.with_restart_markers(database)
    with feed.open_stream(work, database, {"threads": 1}) as stream:
        next(stream)
        data, labels = feed.arrays(next(stream))
        data = data.copy()
        assert [2, 3] == labels.tolist()
    assert verification.verify(work, database, data, [2, 3]).identical


@needs_pillow
def test_the_bare_loop_over_the_kernels_resizes_the_records_in_turn(tmp_path: Path) -> None:
    work = dataclasses.replace(_WORKS["rrc"], batch_size=2)
    database = databases.make_database(tmp_path, work, 4)
    with kernel_loop.open_stream(work, databases.with_restart_markers(database), {}) as stream:
        next(stream)
        data, labels = next(stream)
        assert [2, 3] == labels.tolist()
        assert verification.verify(work, database, data, [2, 3]).identical


def test_resized_images_that_nothing_could_check_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "PIL" else find_spec(name)
    )
    file = tmp_path / "report.json"
    assert 0 == benchmark_peers.main(["--work", "rrc", "--peer", "--json", str(file)])
    report = json.loads(file.read_text())
    assert [{"name": "rrc", "missing": "PIL"}] == report["left_out"]
    assert [] == report["works"]


@pytest.mark.skipif(
    importlib.util.find_spec("torchvision") is None, reason="make test-peers installs the peers"
)
@pytest.mark.timeout(600)  # as above, and images are large
def test_every_peer_resizes_crops(tmp_path: Path) -> None:
    work = _WORKS["rrc"]
    database = databases.make_database(tmp_path, work, 64)
    task = contest.Task(work=work, database=database, num_records=64)
    present = [
        one
        for one in roster.ROSTER
        if one.loader in {"DALI", "torchvision", "SPDL"}
        and one.takes_part(work)
        and 1 in (one.settings or {}).values()  # one thread, or one worker
    ]
    effort = contest.Effort(rounds=1, seconds=0.01)
    results, failures = contest.hold(task, present, effort, lambda _: None)
    assert [] == failures
    assert [one.name for one in present] == [result.entry.name for result in results]
    for result in results:
        assert result.delivered, result.entry.name
        assert comparison.is_same_work(result), result.entry.name


def test_cpu_time_and_memory_of_children_count() -> None:
    code = (
        "import time; held = bytearray(b'1' * 50_000_000); end = time.process_time() + 0.1\n"
        "while time.process_time() < end: pass\n"
        "print(flush=True); input()"
    )
    cpu_s, before = process_tree.cpu_s(os.getpid()), process_tree.memory(os.getpid())
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        assert child.pid in process_tree.family(os.getpid())
        assert 0.1 <= process_tree.cpu_s(os.getpid()) - cpu_s
        after = process_tree.memory(os.getpid())
        assert 50_000_000 <= after.anonymous_bytes - before.anonymous_bytes
        child.communicate(b"\n")
    assert 0.1 <= process_tree.cpu_s(os.getpid()) - cpu_s


def test_the_bare_loop_cuts_and_normalises_the_records_in_turn(tmp_path: Path) -> None:
    work = dataclasses.replace(_WORKS["float"], shape=(3, 40, 40), crop=33, batch_size=8)
    database = databases.make_database(tmp_path, work, 16)
    stored = [np.random.default_rng(i).integers(0, 256, work.shape, np.uint8) for i in range(16)]
    with bare.open_stream(work, database, {"threads": 1}) as stream:
        for batch in (stored[:8], stored[8:], stored[:8]):
            data, labels = next(stream)
            assert labels.shape == (8,)
            mean = np.array(work.mean, np.float32).reshape(3, 1, 1)
            pixels = np.rint(data / work.scale + mean).astype(np.uint8)
            for image, whole in zip(pixels, batch, strict=True):
                windows = np.lib.stride_tricks.sliding_window_view(whole, image.shape)
                places = windows.reshape(-1, *image.shape)
                either = (places == image).all((1, 2, 3)) | (places == image[:, :, ::-1]).all(
                    (1, 2, 3)
                )
                assert either.sum() == 1


def test_caffes_figures_are_scaled_by_what_memcpy_does_here() -> None:
    ours = _result("ringfeed, 1 thread", 100 / 839_000)
    memcpy = _result("memcpy alone", 100 / 24_800, 100 / 24_800)
    small = (_WORKS["1x28x28"], [ours])
    assert [] == comparison.caffe_goals([small])
    (goal,) = comparison.caffe_goals([(_WORKS["uint8"], [ours, memcpy]), small])
    assert ("1x28x28", True) == (goal.work, goal.reached)
    assert goal.value == pytest.approx(2.0)


def test_what_has_to_be_built_is_left_out_where_there_is_no_compiler(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (entry,) = (one for one in roster.ROSTER if one.is_built)
    assert entry.missing() is None
    monkeypatch.setattr(roster, "find_compiler", lambda: None)
    assert "a C compiler" == entry.missing()
