"""Every format that is decoded says its size before room is made for it; the list is closed."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import cv2
import numpy as np
import pytest

from prefetch._config.feed_config import FeedConfig
from prefetch._record.decode import FREE_PIXELS, MAX_PIXELS_PER_BYTE, ImageDecoder
from prefetch._record.faults import BadRecordError, Reason
from prefetch._record.image_format import UnknownFormatError, canvas_of, format_of
from prefetch._record.wire import encode_datum
from prefetch._tools.convert.errors import UnreadableError
from prefetch._tools.convert.inputs.images import ImageExamples
from prefetch._tools.convert.inputs.listing import Entry, Listing
from prefetch._tools.convert.inputs.treatment import Treatment
from prefetch._tools.examine_record import Examiner

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_DRAW = np.random.default_rng(1)
_IMAGE = _DRAW.integers(0, 256, (40, 64, 3), dtype=np.uint8)
_LARGE = 60_000


def written(ending: str, *options: int) -> bytes:
    image = _IMAGE / np.float32(255) if ending in {"hdr", "pfm"} else _IMAGE
    return cv2.imencode(f".{ending}", image, options)[1].tobytes()


def chunk(name: bytes, content: bytes) -> bytes:
    checksum = struct.pack(">I", zlib.crc32(name + content))
    return struct.pack(">I", len(content)) + name + content + checksum


def put(data: bytes, at: int, code: str, *values: int) -> bytes:
    return data[:at] + struct.pack(code, *values) + data[at + struct.calcsize(code) :]


def with_tag(data: bytes, tag: int, value: int) -> bytes:
    """Replace the value of a tag of a little-endian TIFF."""
    (at,) = struct.unpack_from("<I", data, 4)
    (num,) = struct.unpack_from("<H", data, at)
    for entry in range(at + 2, at + 2 + 12 * num, 12):
        if struct.unpack_from("<H", data, entry)[0] == tag:
            return put(data, entry, "<HHII", tag, 4, 1, value)
    raise AssertionError


def apng(frame: tuple[int, int, int, int] = (64, 40, 0, 0)) -> bytes:
    """Return an animated PNG of one frame."""
    plain = written("png")
    control = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, *frame, 1, 1, 0, 0))
    return plain[:33] + chunk(b"acTL", struct.pack(">II", 1, 0)) + control + plain[33:]


def with_av1_size(_: bytes) -> bytes:
    """Return an AVIF file whose boxes say 64 x 40, and whose AV1 data a large size."""
    large = cv2.imencode(".avif", np.zeros((6000, 6000, 3), np.uint8), [cv2.IMWRITE_AVIF_SPEED, 10])
    lies = large[1].tobytes()
    return put(lies, lies.index(b"ispe") + 8, ">II", 64, 40)


WRITTEN = {
    "png": written("png"),
    "apng": apng(),
    "gif": written("gif"),
    "bmp": written("bmp"),
    "tiff": written("tiff"),
    "webp": written("webp", cv2.IMWRITE_WEBP_QUALITY, 90),
    "webp-lossless": written("webp", cv2.IMWRITE_WEBP_QUALITY, 101),
    "avif": written("avif"),
    "jpeg2000": written("jp2"),
    "pnm": written("ppm"),
    "pam": written("pam"),
    "pfm": written("pfm"),
    "hdr": written("hdr"),
    "sun": written("ras"),
}
WRITTEN["j2k"] = WRITTEN["jpeg2000"][WRITTEN["jpeg2000"].index(b"\xff\x4f\xff\x51") :]

CLAIMS: dict[str, Callable[[bytes], bytes]] = {
    "png": lambda data: put(data, 16, ">II", _LARGE, _LARGE),
    "apng": lambda data: put(data, 16, ">II", _LARGE, _LARGE),
    "gif": lambda data: put(data, 6, "<HH", _LARGE, _LARGE),
    "bmp": lambda data: put(data, 18, "<ii", _LARGE, -_LARGE),
    "tiff": lambda data: with_tag(with_tag(data, 256, _LARGE), 257, _LARGE),
    "webp": lambda data: put(data, 26, "<HH", 16_383, 16_383),
    "webp-lossless": lambda data: put(data, 21, "<I", 16_382 | 16_382 << 14),
    "avif": lambda data: put(data, data.index(b"ispe") + 8, ">II", _LARGE, _LARGE),
    "avif-inside": with_av1_size,
    "jpeg2000": lambda data: put(
        data, data.index(b"\xff\x4f\xff\x51") + 8, ">IIII", _LARGE, _LARGE, 0, 0
    ),
    "j2k": lambda data: put(data, 40, ">H", 16_384),
    "pnm": lambda data: data.replace(b"64 40", b"60000 #4\n 60000"),
    "pam": lambda data: data.replace(b"WIDTH 64", b"WIDTH 6000000"),
    "pfm": lambda data: data.replace(b"64 40", b"60000 60000"),
    "hdr": lambda data: data.replace(b"-Y 40 +X 64", b"-Y 60000 +X 60000"),
    "sun": lambda data: put(data, 4, ">II", _LARGE, _LARGE),
}


def fault_of(data: bytes) -> BadRecordError:
    with pytest.raises(BadRecordError) as caught:
        ImageDecoder().decode(memoryview(data))
    return caught.value


@pytest.mark.parametrize("kind", WRITTEN)
def test_the_size_in_the_header_is_that_of_the_pixels(kind: str) -> None:
    data = WRITTEN[kind]
    assert format_of(data[:16]) == {"apng": "png"}.get(kind, kind.partition("-")[0])
    canvas = canvas_of(memoryview(data))
    assert (canvas.height, canvas.width) == (40, 64)
    assert ImageDecoder(force_color=True).decode(memoryview(data)).shape == (40, 64, 3)


@pytest.mark.parametrize("kind", CLAIMS)
def test_a_size_without_bytes_is_refused_before_decoding(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = CLAIMS[kind](WRITTEN.get(kind, b""))
    monkeypatch.setattr(ImageDecoder, "_decode_with_opencv", None)
    error = fault_of(data)
    assert error.reason is Reason.IMAGE_TOO_LARGE
    assert error.numbers[2] <= max(FREE_PIXELS, 2048 * len(data))
    assert "raise max_pixels_per_byte" in error.at(0).message()


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_header_that_ends_early_is_a_fault(kind: str) -> None:
    data = WRITTEN[kind]
    for num_bytes in range(0, min(len(data), 120), 3):
        assert fault_of(data[:num_bytes]).reason is Reason.UNDECODABLE


def test_the_first_frame_of_a_gif_and_the_tiles_of_a_tiff_count_too() -> None:
    gif = WRITTEN["gif"]
    frame = gif.index(b"\x2c", 13 + (3 << (gif[10] & 7) + 1))
    wide = canvas_of(memoryview(put(gif, frame + 5, "<HH", _LARGE, _LARGE)))
    assert (wide.height, wide.width) == (_LARGE, _LARGE)
    tiff = struct.pack("<2sHIH", b"II", 42, 8, 4)
    for tag, value in ((256, 8), (257, 8), (322, _LARGE), (323, _LARGE)):
        tiff += struct.pack("<HHII", tag, 4, 1, value)
    assert canvas_of(memoryview(tiff))[:2] == (_LARGE, _LARGE)


def test_a_chunk_of_a_png_that_claims_more_than_there_is_is_refused_before_decoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenCV took 1.4 GB for one that says so."""
    data = WRITTEN["png"]
    monkeypatch.setattr(ImageDecoder, "_decode_with_opencv", None)
    error = fault_of(put(data, data.index(b"IDAT") - 4, ">I", 0x54002000))
    assert error.reason is Reason.UNDECODABLE


def test_a_big_tiff_says_its_size() -> None:
    big = struct.pack(">2sHHHQQ", b"MM", 43, 8, 0, 16, 3)
    for tag, kind, value in ((256, 3, 500), (257, 4, 400), (277, 3, 200)):
        content = struct.pack(">H6x" if kind == 3 else ">I4x", value)
        big += struct.pack(">HHQ", tag, kind, 1) + content
    assert canvas_of(memoryview(big)) == (400, 500, 6)


@pytest.mark.parametrize(
    "data", [b"", b"\x76\x2f\x31\x01" + bytes(100), b"\0\0\0\x0cJXL \r\n\x87\n"]
)
def test_what_is_not_on_the_list_is_not_decoded(data: bytes) -> None:
    assert format_of(data[:16]) == ""
    with pytest.raises(UnknownFormatError):
        canvas_of(memoryview(data))
    assert fault_of(data).reason is Reason.UNDECODABLE


def test_the_limit_is_in_proportion_to_the_bytes_and_can_be_set() -> None:
    side = 4200  # just above the pixels that are free
    data = cv2.imencode(".png", np.zeros((side, side), np.uint8))[1].tobytes()
    assert side * side > FREE_PIXELS
    assert ImageDecoder().decode(memoryview(data)).shape == (side, side, 1)
    with pytest.raises(BadRecordError) as caught:
        ImageDecoder(max_pixels_per_byte=100).decode(memoryview(data))
    assert caught.value.numbers == (side, side, FREE_PIXELS, len(data))


def test_the_default_of_the_option_is_the_decoders() -> None:
    assert FeedConfig(source=".").transform.max_pixels_per_byte == MAX_PIXELS_PER_BYTE
    assert Treatment().max_pixels_per_byte == MAX_PIXELS_PER_BYTE


def test_scans_are_paid_for_with_bytes() -> None:
    """Each takes a pass over all pixels, whatever its bytes."""
    data = cv2.imencode(".jpg", _IMAGE, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1].tobytes()
    frame = data.index(b"\xff\xc2")
    large = put(data, frame + 5, ">HH", 4000, 4000)
    scan = b"\xff\xda\0\x08\x01\x01\x00\x01\x3f\x00"
    assert fault_of(large).reason is not Reason.IMAGE_TOO_LARGE
    error = fault_of(large[:-2] + 40 * scan + large[-2:])
    assert error.reason is Reason.IMAGE_TOO_LARGE


def test_what_claims_too_much_is_refused_by_convert_inspect_and_show_too(tmp_path: Path) -> None:
    """A GIF of 35 bytes took 8 GB in each of them."""
    small = b"\0\0\0\xff\xff\xff\x2c" + struct.pack("<HHHHB", 0, 0, _LARGE, _LARGE, 0)
    head = b"GIF89a" + struct.pack("<HHBBB", _LARGE, _LARGE, 0x80, 0, 0)
    bomb = head + small + b"\x02\x02\x4c\x01\0\x3b"
    (tmp_path / "a.gif").write_bytes(bomb)
    listing = Listing(f"{tmp_path}/", (Entry("a.gif", 0),))
    for treatment in (Treatment(), Treatment(encoded=True)):
        with pytest.raises(UnreadableError, match="made to exhaust memory"):
            ImageExamples(listing, treatment).read(0)
    value = memoryview(encode_datum(data=bomb, encoded=True))
    fault = Examiner().examine(value, decode=True).fault
    assert fault is not None
    assert fault.reason is Reason.IMAGE_TOO_LARGE
    with pytest.raises(BadRecordError):
        Examiner().pixels(value, 144)


# Animated PNGs.


def test_an_animated_png_keeps_the_pixels_that_opencv_gives_it() -> None:
    assert np.array_equal(_IMAGE, ImageDecoder().decode(memoryview(apng())))


@pytest.mark.parametrize("num_frames", [1, 2])
def test_a_frame_apart_from_the_default_image_is_looked_at_as_well(num_frames: int) -> None:
    plain = written("png")
    pixels = plain[plain.index(b"IDAT") + 4 : -16]
    control = chunk(b"fcTL", struct.pack(">IIIIIHHBB", 0, 64, 40, 0, 0, 1, 1, 0, 0))
    frame = chunk(b"fdAT", struct.pack(">I", 1) + pixels)
    cut = chunk(b"fdAT", struct.pack(">I", 1) + pixels[:-2000])
    head = plain[:33] + chunk(b"acTL", struct.pack(">II", num_frames, 0))
    data = head + plain[33:-12] + control + frame + plain[-12:]
    assert np.array_equal(_IMAGE, ImageDecoder().decode(memoryview(data)))
    assert fault_of(data.replace(frame, cut)).reason is Reason.UNDECODABLE
    damaged = bytearray(data)
    damaged[data.index(b"fdAT") + 900] ^= 1
    assert "checksum" in fault_of(bytes(damaged)).detail


@pytest.mark.parametrize("place", range(60, 2900, 171))
def test_a_changed_byte_of_an_animated_png_is_a_fault(place: int) -> None:
    damaged = bytearray(apng())
    damaged[place] ^= 0x40
    assert fault_of(bytes(damaged)).reason is Reason.UNDECODABLE


@pytest.mark.parametrize(
    "data",
    [
        apng()[:33] + chunk(b"acTL", struct.pack(">II", 1, 0)) + written("png")[33:],
        apng()[: apng().index(b"IDAT") - 4]
        + chunk(b"IDAT", zlib.compress(bytes(1000)))
        + apng()[-12:],
        apng()[:-12],
        apng()[:1500],
    ],
)
def test_an_animated_png_that_lacks_pixels_is_a_fault(data: bytes) -> None:
    assert fault_of(data).reason is Reason.UNDECODABLE
