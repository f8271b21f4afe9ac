"""Surveys: what they count, what they find, what they do not read."""

from __future__ import annotations

import itertools
import os
from contextlib import closing
from typing import TYPE_CHECKING

import cv2
import lmdb
import numpy as np
import pytest

from prefetch import DatabaseNotFoundError
from prefetch._config.load import load_config
from prefetch._record.wire import encode_datum
from prefetch._source.lmdb.database import LmdbDatabase
from prefetch._tools import survey as inspecting
from prefetch._tools.check_config import check_config
from prefetch._tools.survey import Survey, survey_database
from prefetch.testing import encode_image, fingerprinted_images, write_database

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

GREY = np.full((1, 4, 5), 7, np.uint8)
COLOUR = np.full((3, 4, 5), 7, np.uint8)


def jpeg(shape: tuple[int, ...] = (6, 8, 3), *, suffix: str = ".jpg") -> bytes:
    image = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    return bytes(cv2.imencode(suffix, image)[1].tobytes())


def encoded(data: bytes, label: int = 0) -> bytes:
    return encode_datum(data=data, label=label, encoded=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "lmdb"


def survey(folder: Path, values: Iterable[bytes], *, full: bool = False) -> Survey:
    records = ((b"%08d" % number, value) for number, value in enumerate(values))
    return survey_database(write_database(folder, records), full=full)


def kinds_of(found: Survey) -> list[str]:
    return [problem.kind for problem in found.problems]


# --- what is counted -------------------------------------------------------------------------


@pytest.mark.parametrize("full", [False, True])
def test_every_kind_of_record_is_counted_with_its_shape(folder: Path, *, full: bool) -> None:
    values = [
        encode_image(COLOUR, label=2),
        encode_image(COLOUR, label=2),
        encode_datum(channels=2, height=1, width=3, floats=[0.5] * 6, label=5),
        encoded(jpeg()),
        encoded(jpeg((9, 7), suffix=".png"), label=-1),
        b"\xff\xff",
    ]
    found = survey(folder, values, full=full)
    assert {"raw": 2, "float": 1, "jpeg": 1, "png": 1, "damaged": 1} == found.kinds
    assert {(3, 4, 5): 2, (2, 1, 3): 1, (3, 6, 8): 1, (1, 9, 7): 1} == found.shapes
    assert {-1: 1, 0: 1, 2: 2, 5: 1} == found.labels
    assert [-1, 0, 2, 5] == list(found.labels)
    assert (6, 6, True) == (found.num_records, found.num_examined, found.is_complete)
    assert 2 == found.num_decoded
    sizes = [len(value) for value in values]
    assert (min(sizes), max(sizes)) == (found.smallest_bytes, found.largest_bytes)
    assert sum(sizes) / 6 == found.mean_bytes
    assert sum(sizes) + 6 * 8 == found.storage.content_bytes


def test_keys_come_first_and_last_and_from_between_in_their_order(folder: Path) -> None:
    found = survey_database(write_database(folder, fingerprinted_images(100, (1, 2, 2))))
    assert (b"00000000", b"00000099") == (found.keys[0], found.keys[-1])
    assert 6 == len(found.keys)
    assert sorted(found.keys) == list(found.keys)


def test_keys_and_labels_of_a_sample_are_looked_at_in_the_order_of_the_database(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "prefetch._source.lmdb.sample._LEAVES_A_CHUNK", 1
    )  # parts come in random order
    images = ((b"%04d" % number, encode_image(GREY, label=number // 100)) for number in range(1000))
    found = survey_database(write_database(folder, images))
    assert sorted(found.keys) == list(found.keys)
    assert ["sorted_by_label"] == kinds_of(found)


def test_the_key_of_a_single_record_stands_once(folder: Path) -> None:
    assert (b"00000000",) == survey(folder, [encode_image(GREY, label=0)]).keys


def test_a_full_survey_counts_the_same_in_parts(folder: Path) -> None:
    write_database(folder, fingerprinted_images(1000, (1, 4, 4)))
    reports: list[tuple[str, int, int]] = []
    full = survey_database(folder, full=True, progress=lambda *how: reports.append(how))
    assert survey_database(folder).labels == full.labels
    assert full.is_complete
    assert all(what == "reading" and 0 < done <= total == 1000 for what, done, total in reports)


def test_a_full_survey_is_no_sample(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspecting, "MOST_SAMPLED", 20)
    monkeypatch.setattr(inspecting, "MOST_DECODED", 5)
    files = [encoded(jpeg(), label=number) for number in range(500)]
    assert not survey(folder, files).is_complete
    found = survey_database(folder, full=True)
    assert (500, 500, 500) == (found.num_records, found.num_examined, found.num_decoded)
    assert dict.fromkeys(range(500), 1) == found.labels


def test_a_missing_database_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DatabaseNotFoundError):
        survey_database(tmp_path / "none")


# --- the sample ------------------------------------------------------------------------------


def sampled(folder: Path, num: int, seed: int = 0) -> list[tuple[bytes, bytes]]:
    with closing(LmdbDatabase.open(folder)) as database:
        records = sorted(
            (order, key, bytes(value)) for order, key, value in database.sample(num, seed=seed)
        )
    return [(key, value) for _, key, value in records]


def test_a_sample_as_large_as_the_database_is_the_database(folder: Path) -> None:
    records = list(fingerprinted_images(3000, (1, 4, 4)))
    write_database(folder, records)
    assert records == sampled(folder, 3000)


def test_a_sample_has_about_the_size_asked_for_and_every_record_the_same_chance(
    folder: Path,
) -> None:
    write_database(folder, fingerprinted_images(3000, (1, 4, 4)))
    hits = np.zeros(3000, int)
    for seed in range(30):
        keys = [int(key) for key, _ in sampled(folder, 300, seed)]
        assert len(keys) == len(set(keys))
        assert 300 == pytest.approx(len(keys), rel=0.3)
        hits[keys] += 1
    thirds = hits.reshape(3, -1).sum(axis=1) / hits.sum()
    assert [1 / 3] * 3 == pytest.approx(thirds.tolist(), abs=0.03)


def test_a_sample_beneath_some_branches_only_still_has_its_size(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("prefetch._source.lmdb.sample._MOST_BRANCHES", 1)
    write_database(folder, fingerprinted_images(20_000, (1, 4, 4)))
    with closing(LmdbDatabase.open(folder)) as database:
        assert database.snapshot.meta.branch_pages > 2
    assert 200 == pytest.approx(len(sampled(folder, 200)), rel=0.4)


def test_looking_ends_when_the_time_is_up_and_the_survey_says_how_far_it_came(
    folder: Path,
) -> None:
    write_database(folder, fingerprinted_images(2000, (1, 2, 2)))
    ticks = itertools.count()
    step_s = inspecting.SAMPLING_S / 50
    found = survey_database(folder, clock=lambda: step_s * next(ticks))
    assert 1 <= found.num_examined < 2000
    assert not found.is_complete
    assert 2000 == found.num_records


def test_no_image_is_decoded_in_the_second_half_of_the_time(folder: Path) -> None:
    write_database(folder, ((b"%04d" % number, encoded(jpeg())) for number in range(60)))
    ticks = itertools.count()
    step_s = inspecting.SAMPLING_S / 20
    found = survey_database(folder, clock=lambda: step_s * next(ticks))
    assert 0 < found.num_decoded <= 11
    assert found.num_examined > found.num_decoded
    assert {(3, 6, 8): found.num_examined} == found.shapes  # a header tells without decoding


def test_what_is_not_sampled_is_not_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_database(folder, fingerprinted_images(500, (1, 64, 64)))
    monkeypatch.setattr(inspecting, "MOST_SAMPLED", 20)

    def no_index(_: LmdbDatabase) -> None:
        raise AssertionError("the index reads every leaf of the tree")

    monkeypatch.setattr(LmdbDatabase, "index", no_index)
    found = survey_database(folder)
    assert 5 <= found.num_examined <= 50
    assert 500 * 4119 == pytest.approx(found.storage.content_bytes, rel=0.01)


# --- what is found ---------------------------------------------------------------------------


def test_nothing_is_found_in_a_sound_database(folder: Path) -> None:
    found = survey(folder, [encode_image(COLOUR, label=number % 3) for number in range(30)])
    assert () == found.problems
    assert found.is_sound


def test_sizes_of_height_width_channels_are_an_error_with_the_key(folder: Path) -> None:
    wrong = np.zeros((24, 32, 3), np.uint8)
    found = survey(folder, [encode_image(COLOUR, label=0), encode_image(wrong, label=1)])
    (problem,) = found.problems
    assert ("error", "looks_hwc", 1) == (problem.severity, problem.kind, problem.num_records)
    assert (b"00000001",) == problem.keys
    assert "24 x 32 x 3" in problem.message
    assert not found.is_sound


def test_bad_records_are_listed_by_reason_the_most_frequent_first(folder: Path) -> None:
    short = encode_datum(channels=1, height=2, width=2, data=b"abc", label=0)
    values = [b"\xff", short, short, encoded(jpeg()[:-20]), encode_image(COLOUR, label=1)]
    found = survey(folder, values, full=True)
    bad = [problem for problem in found.problems if problem.kind == "bad_records"]
    assert [2, 1, 1] == [problem.num_records for problem in bad]
    assert (b"00000001", b"00000002") == bad[0].keys
    assert "3 bytes" in bad[0].message
    assert "end marker" in bad[2].message


def test_values_that_are_no_finite_numbers_are_a_warning_with_keys(folder: Path) -> None:
    def floats(*values: float) -> bytes:
        return encode_datum(channels=1, height=1, width=3, floats=values, label=0)

    sound = floats(0.5, 1, 3e38)
    values = [sound, floats(0, float("nan"), 1), *600 * [sound], floats(0, 1, float("-inf"))]
    found = survey(folder, values, full=True)
    (problem,) = [problem for problem in found.problems if problem.kind == "not_finite"]
    assert ("warning", 2) == (problem.severity, problem.num_records)
    assert (b"00000001", b"00000602") == problem.keys
    assert "no finite numbers" in problem.message
    assert found.is_sound


def test_no_more_than_five_keys_are_kept_of_a_problem(folder: Path) -> None:
    (problem, *_) = survey(folder, [b"\xff"] * 600, full=True).problems
    assert 600 == problem.num_records
    assert tuple(b"%08d" % number for number in range(5)) == problem.keys


def test_mixed_shapes_and_channels_are_warnings_with_examples(folder: Path) -> None:
    values = [encode_image(COLOUR, label=0)] * 3 + [encode_image(GREY, label=1)]
    values.append(encode_image(np.zeros((3, 4, 4), np.uint8), label=1))
    channels, shapes = survey(folder, values).problems[:2]
    assert ("mixed_channels", 1, (b"00000003",)) == (
        channels.kind,
        channels.num_records,
        channels.keys,
    )
    assert "1 and 3 channels" in channels.message
    assert "of encoded records only, and these are raw" in channels.message
    assert "force_color" not in channels.message
    assert ("mixed_shapes", 2) == (shapes.kind, shapes.num_records)
    assert shapes.message.startswith(
        "of the records 3 are 3 x 4 x 5 (channels x height x width), but 1 is 1 x 4 x 5 and 1 is "
        "3 x 4 x 4; a batch takes records of one size only: set crop_size, resize or random"
    )


def test_of_many_sizes_the_commonest_are_named(folder: Path) -> None:
    shapes = [(3, 4, 5)] * 3 + [(3, side, side) for side in range(6, 14)]
    values = [encode_image(np.zeros(shape, np.uint8), label=1) for shape in shapes]
    (problem,) = (found for found in survey(folder, values).problems if "shapes" in found.kind)
    assert problem.num_records == 8
    assert "1 is 3 x 10 x 10 and 3 are of other sizes; a batch takes" in problem.message


def test_the_cure_for_several_channels_is_one_that_works_on_the_records(folder: Path) -> None:
    grey = cv2.imencode(".png", np.zeros((4, 5), np.uint8))[1].tobytes()
    files = [encoded(jpeg(), label=0), encoded(grey, label=1)]
    (problem, *_) = survey(folder.with_name("encoded"), files, full=True).problems
    assert problem.message.endswith("set force_color or force_gray")
    raw = [encode_image(COLOUR, label=0)]
    (problem, *_) = survey(
        folder.with_name("mixed"), [encoded(grey, label=1), *raw], full=True
    ).problems
    assert "set force_color or force_gray for the encoded ones" in problem.message


def test_errors_come_before_warnings_and_warnings_before_notes(folder: Path) -> None:
    values = [encode_image(GREY, label=-1), encoded(jpeg(), label=-1), b"\xff"]
    severities = [problem.severity for problem in survey(folder, values).problems]
    assert ["error", "warning", "warning", "warning", "note", "note"] == severities


def test_raw_and_encoded_records_together_are_noted(folder: Path) -> None:
    found = survey(folder, [encode_image(np.zeros((3, 6, 8), np.uint8), label=0), encoded(jpeg())])
    assert "mixed_kinds" in kinds_of(found)


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([0] * 20 + [1] * 20, ["sorted_by_label"]),
        ([0, 1] * 20, []),
        ([3] * 40, ["one_label"]),
        ([0, -1] * 20, ["negative_labels"]),
        (list(range(40)), []),
    ],
    ids=["sorted", "mixed", "one", "negative", "all differ"],
)
def test_labels_that_a_training_would_trip_over_are_said(
    folder: Path, labels: list[int], expected: list[str]
) -> None:
    found = survey(folder, [encode_image(GREY, label=label) for label in labels])
    assert expected == kinds_of(found)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ([b"8", b"9", b"10", b"11"], ["key_order"]),
        ([b"08", b"09", b"10", b"11"], []),
        ([b"1_a", b"10_b", b"9_c"], ["key_order"]),
        ([b"3f", b"1a", b"22"], []),
    ],
)
def test_numbers_that_are_sorted_as_text_are_said(
    folder: Path, keys: list[bytes], expected: list[str]
) -> None:
    labels = itertools.count()
    records = [(key, encode_image(GREY, label=next(labels))) for key in keys]
    assert expected == kinds_of(survey_database(write_database(folder, records)))


def test_a_sparse_file_takes_less_of_the_disk_than_it_is_long(folder: Path) -> None:
    write_database(folder, fingerprinted_images(20))
    length = (folder / "data.mdb").stat().st_size + (1 << 26)
    os.truncate(folder / "data.mdb", length)
    storage = survey_database(folder).storage
    assert (length, True) == (storage.file_bytes, storage.disk_bytes < 1 << 20)
    assert storage.content_bytes < storage.used_bytes <= storage.disk_bytes


def test_a_file_that_is_mostly_empty_is_noted(folder: Path) -> None:
    value = encode_image(np.zeros((1, 100, 100), np.uint8), label=0)
    with lmdb.open(str(folder), map_size=1 << 26, lock=False) as database:
        with database.begin(write=True) as transaction:
            for number in range(500):
                transaction.put(b"%08d" % number, value)
        with database.begin(write=True) as transaction:
            for number in range(1, 500):
                transaction.delete(b"%08d" % number)
    found = survey_database(folder)
    assert ["unused_pages"] == kinds_of(found)
    assert found.is_sound
    assert found.storage.used_bytes < found.storage.file_bytes / 100


def test_turned_and_remarked_jpegs_are_noted(folder: Path) -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    file = jpeg()
    turned = file[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2) + exif + file[2:]
    remarked = file[:-2] + bytes(20) + file[-2:]
    found = survey(folder, [encoded(file), encoded(turned), encoded(remarked)], full=True)
    notes = {problem.kind: problem for problem in found.problems if problem.severity == "note"}
    assert notes["turned_images"].num_records == notes["libjpeg_remarks"].num_records == 1
    assert "extraneous bytes before marker 0xd9" in notes["libjpeg_remarks"].message
    assert found.is_sound


@pytest.mark.parametrize(("suffix", "name"), [(".jpg", "JPEG"), (".png", "PNG")])
def test_a_value_that_is_an_image_file_is_said_to_be_one(
    suffix: str, name: str, folder: Path
) -> None:
    (problem, *_) = survey(folder, [jpeg(suffix=suffix)]).problems
    assert problem.severity == "error"
    assert f"the value is a {name} file itself" in problem.message


def test_a_check_says_that_images_are_served_lying(folder: Path) -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"
    file = jpeg()
    turned = file[:2] + b"\xff\xe1" + (len(exif) + 2).to_bytes(2) + exif + file[2:]
    write_database(folder, [(b"%d" % number, encoded(turned)) for number in range(3)])
    config = load_config({"source": folder, "device": "cpu"})
    (warning,) = (one for one in check_config(config).warnings if "EXIF" in one)
    assert warning.startswith("3 of 3 records looked at are JPEGs that EXIF asks to turn (0, 1, 2)")
    upright = load_config(config, transform={"force_color": True})
    assert not any("EXIF" in one for one in check_config(upright).warnings)
