"""convert --roi and reencode --roi: restart markers without a loss, and what is told of them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg
from databases import records_of
from jpegs import GREY, draw_picture, encode

from prefetch._kernels import _c
from prefetch._record.decode import ImageDecoder
from prefetch._record.wire import encode_datum
from prefetch._tools.convert import restart_markers
from prefetch._tools.convert.errors import OptionsError
from prefetch._tools.convert.inputs import treatment as treatment_module
from prefetch._tools.convert.inputs.treatment import Treatment
from prefetch._tools.convert.restart_markers import MARKED, add_restart_markers
from prefetch._tools.survey import survey_database
from prefetch.caffe import Datum
from prefetch.cli import main
from prefetch.testing import write_database

RNG = np.random.default_rng(8)
COLOR = draw_picture(RNG, 120, 160, "4:2:0")
BASELINE = encode(COLOR, "4:2:0")
PROGRESSIVE = encode(COLOR, "4:2:0", progressive=True)
GREY_FILE = encode(draw_picture(RNG, 90, 100, GREY), GREY)
PNG = b"\x89PNG\r\n\x1a\nand so on"


def pixels(file: bytes) -> bytes:
    return ImageDecoder().decode(memoryview(file)).tobytes()


def interval_of(file: bytes) -> int | None:
    found = _c.find_restarts(file)
    return None if found is None else found[0]


@pytest.mark.parametrize("file", [BASELINE, PROGRESSIVE, GREY_FILE])
def test_a_jpeg_gets_markers_and_keeps_its_pixels(file: bytes) -> None:
    marked = add_restart_markers(file)
    assert marked.why_not == MARKED
    assert interval_of(marked.file) is not None
    assert pixels(marked.file) == pixels(file)
    assert add_restart_markers(marked.file) == marked


def test_markers_stand_closer_in_small_images_than_in_large_ones() -> None:
    intervals = []
    for height, width in ((64, 16 * 32), (1024, 16 * 64), (64, 16 * 31), (64, 16 * 30)):
        file = encode(draw_picture(RNG, height, width, "4:2:0"), "4:2:0")
        intervals.append(interval_of(add_restart_markers(file).file))
    assert intervals == [2, 4, 1, 2]


def test_a_coarse_image_whose_rows_have_a_prime_number_of_mcus_is_cut_in_rows() -> None:
    flat = np.full((64, 16 * 31, 3), 100, np.uint8)
    options = (cv2.IMWRITE_JPEG_QUALITY, 30, cv2.IMWRITE_JPEG_OPTIMIZE, 1)
    file = cv2.imencode(".jpg", flat, options)[1].tobytes()
    assert interval_of(add_restart_markers(file).file) == 31


def cmyk() -> bytes:
    file: bytes = simplejpeg.encode_jpeg(np.zeros((16, 16, 4), np.uint8), 90, "CMYK", "444")
    return file


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (PNG, "no JPEG"),
        (cmyk(), "not Huffman-coded, or not of 8 bits and 1 or 3 channels"),
        (BASELINE + b"\0", "it goes on behind its end marker"),
        (BASELINE[:-40], "damaged, or built as few are"),
        (BASELINE.replace(b"JFIF\0\1", b"JFIF\0\7"), "libjpeg remarks on it"),
    ],
)
def test_a_file_that_gets_none_stays_as_it_is_and_says_why(file: bytes, why: str) -> None:
    marked = add_restart_markers(file)
    assert marked.file == file
    assert marked.why_not == why


def test_a_file_whose_pixels_would_differ_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherCoefficients:
        find_restarts = staticmethod(_c.find_restarts)

        @staticmethod
        def add_restarts(_: bytes, most: int) -> bytes | int:
            return _c.add_restarts(encode(255 - COLOR, "4:2:0"), most)

    monkeypatch.setattr(restart_markers, "native", OtherCoefficients)
    marked = add_restart_markers(BASELINE)
    assert marked == (BASELINE, "its pixels would differ")


def test_options_that_contradict_roi_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionsError, match="give --encoded"):
        Treatment(roi=True)
    with pytest.raises(OptionsError, match="--encode-type is 'png'"):
        Treatment(roi=True, encode_type="png")
    monkeypatch.setattr(treatment_module, "native", None)
    with pytest.raises(OptionsError, match="C kernels"):
        Treatment(roi=True, encoded=True)


def with_orientation(file: bytes) -> bytes:
    exif = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<HHHIIi", 1, 0x0112, 3, 1, 6, 0)
    return file[:2] + struct.pack(">BBH", 0xFF, 0xE1, len(exif) + 2) + exif + file[2:]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a folder of images and their list."""
    monkeypatch.chdir(tmp_path)
    files = {
        "a.jpg": BASELINE,
        "b.jpg": PROGRESSIVE,
        "c.jpg": with_orientation(BASELINE),
        "d.jpg": BASELINE + b"\1\2",
    }
    Path("photos").mkdir()
    for name, file in files.items():
        Path("photos", name).write_bytes(file)
    Path("list.txt").write_text("".join(f"{name} {i}\n" for i, name in enumerate(files)))
    return tmp_path


def images_of(database: str) -> list[bytes]:
    return [Datum.FromString(value).data for value in records_of(Path(database)).values()]


def report_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    assert 0 == main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


def test_converting_reports_how_many_have_markers_and_why_others_have_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = report_of(capsys, "convert", "photos", "list.txt", "db", "--encoded", "--roi")
    assert report["num_with_restarts"] == 3
    assert report["num_without_restarts"] == {"it goes on behind its end marker": 1}
    assert report["num_unchanged"] == 1
    before = [(folder / "photos" / name).read_bytes() for name in ("a.jpg", "b.jpg", "c.jpg")]
    images = images_of("db")
    assert report["restart_bytes_added"] == sum(map(len, images[:3])) - sum(map(len, before))
    assert [interval_of(image) is not None for image in images] == [True, True, True, False]
    assert list(map(pixels, images[:3])) == list(map(pixels, before))
    assert b"Exif" in images[2]

    assert 0 == main(["convert", "photos", "list.txt", "db", "--encoded", "--roi", "--force"])
    out = capsys.readouterr().out
    assert "roi       3 JPEGs with restart markers, " in out
    assert "1 decoded as a whole: it goes on behind its end marker" in out


def test_images_that_are_encoded_anew_get_markers_too(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--encoded", "--resize-shorter", "64"]
    main(["convert", "photos", "list.txt", "plain", *options])
    report = report_of(capsys, "convert", "photos", "list.txt", "db", *options, "--roi")
    assert report["num_with_restarts"] == 4
    assert all(interval_of(image) for image in images_of("db"))
    assert list(map(pixels, images_of("db"))) == list(map(pixels, images_of("plain")))
    assert report["num_unchanged"] == 0


def test_a_stored_database_gets_the_records_that_converting_would_have_stored(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["convert", "photos", "list.txt", "plain", "--encoded"])
    main(["convert", "photos", "list.txt", "marked", "--encoded", "--roi"])
    report = report_of(capsys, "reencode", "plain", "new", "--roi")
    assert report["num_with_restarts"] == 3
    assert report["num_unchanged"] == 1
    assert records_of(Path("new")) == records_of(Path("marked"))
    again = report_of(capsys, "reencode", "new", "again", "--roi")
    assert again["num_unchanged"] == 4
    assert records_of(Path("again")) == records_of(Path("new"))


def test_records_that_get_no_markers_stay_bit_for_bit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [
        encode_datum(channels=1, height=1, width=2, data=b"ab", label=3),
        encode_datum(data=PNG, label=3, encoded=True),
        encode_datum(data=BASELINE[:300], label=3, encoded=True),
        encode_datum(data=BASELINE[:-300], label=3, encoded=True),
        encode_datum(data=BASELINE, encoded=True) + b"\x48\x07",
    ]
    kept = encode_datum(channels=3, height=120, width=160, data=BASELINE, label=3, encoded=True)
    values = [*odd, kept]
    write_database(Path("odd"), ((b"%d" % i, value) for i, value in enumerate(values)))
    report = report_of(capsys, "reencode", "odd", "new", "--roi")
    assert report["num_with_restarts"] == 1
    assert report["num_without_restarts"] == {
        "no JPEG": 2,
        "damaged, or built as few are": 2,
        "its record has fields of its own": 1,
    }
    *same, marked = records_of(Path("new")).values()
    assert same == odd
    datum = Datum.FromString(marked)
    assert (datum.channels, datum.height, datum.width, datum.label) == (3, 120, 160, 3)
    assert pixels(datum.data) == pixels(BASELINE)


@pytest.mark.parametrize("form", ["raw", "png"])
def test_other_forms_than_jpeg_are_refused_with_roi(
    folder: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["convert", "photos", "list.txt", "plain", "--encoded"])
    capsys.readouterr()
    assert 2 == main(["reencode", "plain", "new", "--roi", "--to", form])
    assert "--roi is about JPEGs" in capsys.readouterr().err


def test_a_survey_counts_the_jpegs_with_markers_among_those_decoded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["convert", "photos", "list.txt", "db", "--encoded", "--roi"])
    survey = survey_database("db", full=True)
    assert (survey.num_with_restarts, survey.num_without_restarts) == (3, 1)
    capsys.readouterr()
    assert 0 == main(["inspect", "db"])
    assert "roi       3 of 4 JPEGs decoded have restart markers" in capsys.readouterr().out
