"""JPEG files cut by restart markers: what is decoded of a part is what the whole decodes to."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
import simplejpeg
from jpegs import GREY, KINDS, draw_box, draw_interval, draw_picture, encode

from prefetch._kernels import _c
from prefetch._kernels.contract import Recoding

if TYPE_CHECKING:
    from numpy.typing import NDArray

STAMP = b"ringfeed crc32c\0"
HEIGHT, WIDTH = 70, 96
BOX = (20, 30, 16, 16)


def pixels(file: bytes | memoryview, kind: str) -> NDArray[np.uint8]:
    colorspace = "GRAY" if kind == GREY else "BGR"
    image: NDArray[np.uint8] = simplejpeg.decode_jpeg(file, colorspace, strict=True)
    return image


def marked(kind: str = "4:2:0", interval: int = 2) -> bytes:
    """Return a file with restart markers and without a stamp."""
    image = draw_picture(np.random.default_rng(5), HEIGHT, WIDTH, kind)
    return encode(image, kind, interval=interval)


def stamped(kind: str = "4:2:0", most: int = 2) -> bytes:
    file = _c.add_restarts(marked(kind, 0), most)
    assert isinstance(file, bytes)
    return file


def splice(file: bytes, box: tuple[int, int, int, int] = BOX) -> bytes | None:
    to = np.zeros(len(file), np.uint8)
    found = _c.splice_jpeg(file, *box, to)
    return None if found is None else to[: found[0]].tobytes()


def check_windows(rng: np.random.Generator, kind: str, num_files: int, num_windows: int) -> int:
    """Compare windows of drawn files; return how many were spliced."""
    num_spliced = 0
    for _ in range(num_files):
        height, width = map(int, rng.integers(1, 150, 2))
        file = encode(
            draw_picture(rng, height, width, kind),
            kind,
            quality=int(rng.integers(30, 99)),
            interval=draw_interval(rng, width, kind),
        )
        whole = pixels(file, kind)
        to = np.empty(len(file), np.uint8)
        for _ in range(num_windows):
            top, left, rows, columns = box = draw_box(rng, height, width)
            found = _c.splice_jpeg(file, *box, to)
            if found is None:
                continue
            num_bytes, above, beside, *size = found
            part = pixels(to.data[:num_bytes], kind)
            assert list(part.shape[:2]) == size
            window = part[top - above :, left - beside :][:rows, :columns]
            expected = whole[top : top + rows, left : left + columns]
            assert np.array_equal(window, expected), (height, width, box)
            num_spliced += 1
    return num_spliced


@pytest.mark.parametrize("kind", KINDS)
def test_a_window_of_a_spliced_file_has_the_pixels_of_the_whole(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    assert check_windows(rng, kind, 60, 10) > 250


@pytest.mark.slow
@pytest.mark.timeout(600)  # a minute of CPU time for each kind; the machine may be busy
@pytest.mark.parametrize("kind", KINDS)
def test_no_pixel_of_a_hundred_thousand_windows_differs(kind: str) -> None:
    rng = np.random.default_rng(1000 + KINDS.index(kind))
    assert check_windows(rng, kind, 1400, 20) > 17_000


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("progressive", [False, True])
def test_a_file_with_new_markers_has_the_pixels_of_the_old_one(
    kind: str, *, progressive: bool
) -> None:
    rng = np.random.default_rng(KINDS.index(kind) + 100)
    for _ in range(30):
        height, width = map(int, rng.integers(1, 150, 2))
        picture = draw_picture(rng, height, width, kind)
        interval = int(rng.choice([0, 1, 5]))
        quality = int(rng.integers(1, 101))
        file = encode(picture, kind, quality=quality, interval=interval, progressive=progressive)
        new = _c.add_restarts(file, 4)
        assert isinstance(new, bytes)
        assert np.array_equal(pixels(new, kind), pixels(file, kind))
        assert np.array_equal(pixels(new, GREY), pixels(file, GREY))
        found = _c.find_restarts(new)
        assert found is not None
        assert found[1]
        assert _c.add_restarts(new, 4) == new


def test_the_interval_is_the_largest_divisor_of_a_row_up_to_the_most() -> None:
    rng = np.random.default_rng(0)
    intervals = []
    for width, most in ((96, 4), (96, 8), (112, 4), (112, 8), (112, 6), (1, 8)):
        file = _c.add_restarts(encode(draw_picture(rng, 20, width, "4:2:0"), "4:2:0"), most)
        assert isinstance(file, bytes)
        intervals.append(_c.find_restarts(file))
    assert intervals == [(3, True), (6, True), (1, True), (7, True), (1, True), (1, True)]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@pytest.mark.parametrize("width", [8, 9, 17, 33, 40, 41, 64])
def test_the_stamp_holds_the_checksums_of_all_else(width: int) -> None:
    image = draw_picture(np.random.default_rng(width), 11, width, GREY)
    file = _c.add_restarts(encode(image, GREY, quality=70), 1)
    assert isinstance(file, bytes)
    at = file.index(STAMP) - 4
    assert file[at : at + 4] == b"\xff\xfe\0\x22"
    behind = file[at + 36 :]
    assert behind.startswith(b"\xff\xda")
    assert crc32c(b"123456789") == 0xE3069283
    step = len(behind) // 4
    parts = file[:at] + behind[:step], behind[step : 2 * step], behind[2 * step : 3 * step]
    expected = [crc32c(part) for part in (*parts, behind[3 * step :])]
    assert list(struct.unpack(">4I", file[at + 20 : at + 36])) == expected


def with_segment(file: bytes, marker: int, payload: bytes) -> bytes:
    return file[:2] + struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload + file[2:]


def test_a_file_with_new_markers_keeps_its_other_segments_in_their_order() -> None:
    payloads = {0xE1: b"Exif\0\0MM\0*", 0xE2: b"ICC_PROFILE\0\1\1abc", 0xFE: b"by hand"}
    file = marked(interval=0)
    for marker, payload in payloads.items():
        file = with_segment(file, marker, payload)
    new = _c.add_restarts(file, 4)
    assert isinstance(new, bytes)
    begin = file.index(b"\xff\xc0")
    assert new[: begin + 19] == file[: begin + 19]


def test_a_spliced_file_lacks_what_has_no_say_in_its_pixels() -> None:
    file = with_segment(with_segment(stamped(), 0xE1, bytes(5000)), 0xFE, bytes(5000))
    at = file.index(STAMP) + 16
    assert splice(file) is None  # the stamp is of another file
    part = splice(file[: at - 20] + file[at + 16 :])
    assert part is not None
    assert len(part) < 5000
    assert b"JFIF" in part


def _rst(file: bytes, number: int) -> int:
    """Return where the first restart marker of a number is."""
    return file.index(bytes((0xFF, 0xD0 + number)))


def _moved(file: bytes, number: int, by: int) -> bytes:
    at = _rst(file, number) + 1
    return file[:at] + bytes((file[at] + by,)) + file[at + 1 :]


def _without(file: bytes, number: int) -> bytes:
    at = _rst(file, number)
    return file[:at] + file[at + 2 :]


def _patched(file: bytes, marker: int, offset: int, new: bytes) -> bytes:
    """Replace bytes of the first segment of a marker, from behind its length."""
    at = file.index(bytes((0xFF, marker))) + 4 + offset
    return file[:at] + new + file[at + len(new) :]


FILE = marked()
NOT_USABLE = {
    "no markers": marked(interval=0),
    "an interval that cuts across rows": marked(interval=5),
    "a progressive file": encode(
        draw_picture(np.random.default_rng(5), HEIGHT, WIDTH, "4:2:0"),
        "4:2:0",
        interval=2,
        progressive=True,
    ),
    "a marker out of order": _moved(FILE, 3, 1),
    "a marker that is missing": _without(FILE, 2),
    "two markers that are one after the other": FILE.replace(b"\xff\xd1", b"\xff\xd1\xff\xd1", 1),
    "another marker": FILE.replace(b"\xff\xd1", b"\xff\xfe", 1),
    "bytes behind the end": FILE + b"\0",
    "no end": FILE[:-2],
    "half an end": FILE[:-1],
    "another end before": FILE[:-2] + b"\xff\xd9\xff\xd9",
    "an end in the place of a marker": FILE.replace(b"\xff\xd1", b"\xff\xd9", 1),
    "fill bytes": FILE.replace(b"\xff\xd1", b"\xff\xff\xd1", 1),
    "a table between markers": FILE.replace(b"\xff\xd1", b"\xff\xc4\0\2\xff\xd1", 1),
    "no interval": _patched(FILE, 0xDD, 0, b"\0\0"),
    "another interval": _patched(FILE, 0xDD, 0, b"\0\3"),
    "12 bits": _patched(FILE, 0xC0, 0, b"\x0c"),
    "no height": _patched(FILE, 0xC0, 1, b"\0\0"),
    "a larger height": _patched(FILE, 0xC0, 1, b"\xff\xff"),
    "a larger width": _patched(FILE, 0xC0, 3, b"\1\0"),
    "two components": _patched(FILE, 0xC0, 5, b"\2"),
    "a factor of 0": _patched(FILE, 0xC0, 7, b"\x02"),
    "a factor of 5": _patched(FILE, 0xC0, 7, b"\x52"),
    "a component twice": _patched(FILE, 0xC0, 9, b"\1"),
    "arithmetic coding": FILE.replace(b"\xff\xc0", b"\xff\xc9", 1),
    "two frames": FILE.replace(b"\xff\xda", FILE[FILE.index(b"\xff\xc0") :][:19] + b"\xff\xda", 1),
    "a scan of one of three": _patched(FILE, 0xDA, 0, b"\1"),
    "part of a spectrum": _patched(FILE, 0xDA, 8, b"\x3e"),
    "junk in the header": FILE[:2] + b"\0" + FILE[2:],
    "a start and no more": FILE[:4],
    "nothing": b"",
}


@pytest.mark.parametrize("what", NOT_USABLE)
def test_a_file_that_is_not_whole_and_in_order_is_not_spliced(what: str) -> None:
    assert splice(FILE) is not None
    assert splice(NOT_USABLE[what]) is None
    assert _c.find_restarts(NOT_USABLE[what]) is None


def test_each_byte_of_a_stamped_file_is_under_its_checksum() -> None:
    file = stamped("4:2:0")
    assert _c.find_restarts(file) == (2, True)
    at = file.index(STAMP)
    for place in (*range(0, at, 7), *range(at + 16, len(file), 13)):
        damaged = bytearray(file)
        damaged[place] ^= 16
        assert splice(bytes(damaged)) is None, place


@pytest.mark.parametrize(
    "box",
    [
        (0, 0, HEIGHT, WIDTH),
        (0, 0, HEIGHT + 1, 10),
        (-1, 0, 10, 10),
        (0, -1, 10, 10),
        (0, 0, 0, 10),
        (0, 0, 10, 0),
        (HEIGHT, 0, 1, 1),
        (0, 90, 10, 10),
        (2**62, 2**62, 2**62, 2**62),
    ],
)
def test_a_window_that_needs_all_or_is_not_in_the_image_is_not_spliced(
    box: tuple[int, int, int, int],
) -> None:
    assert splice(FILE, box) is None


def test_a_grey_file_is_cut_by_blocks_whatever_sampling_it_states() -> None:
    image = draw_picture(np.random.default_rng(5), HEIGHT, WIDTH, GREY)
    file = _patched(encode(image, GREY, interval=3), 0xC0, 7, b"\x22")
    whole = pixels(file, GREY)
    to = np.empty(len(file), np.uint8)
    found = _c.splice_jpeg(file, 17, 33, 9, 20, to)
    assert found is not None
    assert found[1:] == (16, 24, 16, 48)
    assert np.array_equal(pixels(to.data[: found[0]], GREY), whole[16:32, 24:72])
    assert isinstance(_c.add_restarts(file, 4), bytes)


def test_memory_for_a_small_file_has_to_be_that_of_the_large_one() -> None:
    with pytest.raises(ValueError, match="as many bytes as data"):
        _c.splice_jpeg(FILE, *BOX, np.empty(len(FILE) - 1, np.uint8))


def test_files_that_cannot_have_markers_say_why() -> None:
    cmyk = simplejpeg.encode_jpeg(np.zeros((16, 16, 4), np.uint8), 90, "CMYK", "444")
    assert _c.add_restarts(cmyk, 4) == Recoding.NO_HUFFMAN_FRAME
    assert _c.add_restarts(NOT_USABLE["arithmetic coding"], 4) == Recoding.NO_HUFFMAN_FRAME
    assert _c.add_restarts(FILE + b"\0", 4) == Recoding.BYTES_BEHIND_END
    for what in ("a marker out of order", "no end", "nothing", "a larger height", "two frames"):
        assert _c.add_restarts(NOT_USABLE[what], 4) == Recoding.UNUSUAL_FILE
    damaged = bytearray(stamped())
    damaged[-10] ^= 1
    assert _c.add_restarts(bytes(damaged), 4) == Recoding.UNUSUAL_FILE
