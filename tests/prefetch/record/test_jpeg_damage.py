"""What libjpeg remarks on is a fault on every route, unless it leaves the pixels as they are."""

from __future__ import annotations

import struct
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg

from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError, Reason

_NOISE = np.random.default_rng(0).integers(0, 256, (30, 30, 3), dtype=np.uint8)
_IMAGE = np.asarray(cv2.resize(_NOISE, (300, 300)), np.uint8)
_WHOLE = cv2.imencode(".jpg", _IMAGE, [cv2.IMWRITE_JPEG_QUALITY, 95])[1].tobytes()
_MIDDLE = len(_WHOLE) // 2
_EXIF = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x06\0\0\0\0\0\0\0"


def segment(marker: int, payload: bytes) -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload


def with_middle(data: bytes) -> bytes:
    return _WHOLE[:_MIDDLE] + data + _WHOLE[_MIDDLE + len(data) :]


def with_adobe(transform: int) -> bytes:
    return _WHOLE[:2] + segment(0xEE, b"Adobe\0\x64\0\0\0\0" + bytes([transform])) + _WHOLE[20:]


def remark_of(data: bytes) -> str:
    with pytest.raises(ValueError, match=r".") as caught:
        simplejpeg.decode_jpeg(data, "BGR", strict=True)
    return str(caught.value)


DAMAGED = {
    "an erased block": with_middle(b"\xff" * 64),
    "a stray marker": with_middle(b"\xff\xa4"),
    "a second frame": with_middle(b"\xff\xc9"),
    "a second start": with_middle(b"\xff\xd8"),
    "a stray table": with_middle(b"\xff\xdb"),
    "line feeds made two bytes": _WHOLE.replace(b"\n", b"\r\n"),
    "a table that has moved": _WHOLE.replace(b"\xff\xc4", b"\x01\xff\xc4", 1),
    "damage behind a harmless remark": with_middle(b"\xff" * 64).replace(b"JFIF\0\1", b"JFIF\0\7"),
    "bytes before the end that may be pixels": _WHOLE[:-2] + b"ab" * 9 + _WHOLE[-2:],
    "zeros over the last pixels": _WHOLE[:-40] + bytes(38) + _WHOLE[-2:],
}

HARMLESS = {
    "bytes behind an APPn": _WHOLE[:20] + b"AA" + _WHOLE[20:],
    "zeros before the end": _WHOLE[:-2] + bytes(20) + _WHOLE[-2:],
    "a JFIF revision": _WHOLE.replace(b"JFIF\0\1", b"JFIF\0\7"),
    "two of them": (_WHOLE[:-2] + bytes(9) + _WHOLE[-2:]).replace(b"JFIF\0\1", b"JFIF\0\7"),
    "an Adobe transform": with_adobe(2),
}


@pytest.mark.parametrize("turn", [b"", segment(0xE1, _EXIF)])
@pytest.mark.parametrize("options", [{}, {"force_color": True}, {"force_gray": True}])
@pytest.mark.parametrize("kind", DAMAGED)
def test_what_libjpeg_remarks_on_is_a_fault(
    kind: str, options: dict[str, Any], turn: bytes
) -> None:
    data = DAMAGED[kind][:2] + turn + DAMAGED[kind][2:]
    remark_of(data)
    with pytest.raises(BadRecordError) as caught:
        ImageDecoder(**options).decode(memoryview(data))
    assert caught.value.reason is Reason.IMAGE_CORRUPT
    assert caught.value.numbers == (len(data),)
    assert "may be wrong" in caught.value.at(0).message()


@pytest.mark.parametrize("turn", [b"", segment(0xE1, _EXIF)])
@pytest.mark.parametrize(
    ("options", "flag"),
    [
        ({}, cv2.IMREAD_UNCHANGED),
        ({"force_color": True}, cv2.IMREAD_COLOR),
        ({"force_gray": True}, cv2.IMREAD_GRAYSCALE),
    ],
)
@pytest.mark.parametrize("kind", HARMLESS)
def test_what_leaves_the_pixels_as_they_are_is_served_with_libjpegs_remark(
    kind: str, options: dict[str, Any], flag: int, turn: bytes
) -> None:
    data = HARMLESS[kind][:2] + turn + HARMLESS[kind][2:]
    whole = _WHOLE[:2] + turn + _WHOLE[2:]
    expected = cv2.imdecode(np.frombuffer(whole, np.uint8), flag)
    assert expected is not None
    decoder = ImageDecoder(**options)
    assert np.array_equal(np.atleast_3d(expected), decoder.decode(memoryview(data)))
    assert decoder.remark == remark_of(data)
    decoder.decode(memoryview(whole))
    assert decoder.remark == ""


@pytest.mark.parametrize("marker", [0xC9, 0xA4, 0xD8])
def test_a_sampling_that_turbojpeg_does_not_know_is_judged_by_its_markers(marker: int) -> None:
    frame = _WHOLE.index(b"\xff\xc0")
    odd = bytearray(_WHOLE)
    odd[frame + 11] = 0x31  # three by one for the first component, one by one for the others
    assert "Could not determine" in remark_of(bytes(odd))
    assert ImageDecoder().decode(memoryview(bytes(odd))).shape == (300, 300, 3)
    damaged = bytearray(odd)
    damaged[_MIDDLE : _MIDDLE + 2] = bytes((0xFF, marker))
    for data, reason in ((damaged, Reason.IMAGE_CORRUPT), (odd[:-2], Reason.IMAGE_CUT)):
        with pytest.raises(BadRecordError) as caught:
            ImageDecoder().decode(memoryview(bytes(data)))
        assert caught.value.reason is reason


def test_an_end_that_was_written_over_is_not_said_to_cost_pixels() -> None:
    with pytest.raises(BadRecordError) as caught:
        ImageDecoder().decode(memoryview(_WHOLE[:-2] + bytes(2)))
    assert caught.value.reason is Reason.IMAGE_CUT
    assert "so that pixels may be missing" in caught.value.at(0).message()


_BODY = _WHOLE[4 + int.from_bytes(_WHOLE[4:6], "big") :]  # behind its JFIF segment
_SHORT_JFIF = segment(0xE0, b"JFIF\0")
_LATER_JFIF = segment(0xE0, b"JFIF\0\2\1\0\0\1\0\1\0\0")
_RGB = segment(0xEE, b"Adobe\0d\0\0\0\0\0")


@pytest.mark.parametrize("first", [b"", _SHORT_JFIF, _SHORT_JFIF + _SHORT_JFIF])
def test_a_segment_too_short_for_libjpeg_is_not_the_one_that_is_cured(first: bytes) -> None:
    data = _WHOLE[:2] + first + _LATER_JFIF + _RGB + _BODY
    expected = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert expected is not None
    decoder = ImageDecoder()
    assert np.array_equal(expected, decoder.decode(memoryview(data)))
    assert "unknown JFIF revision" in decoder.remark


def test_a_cure_does_not_write_behind_its_segment() -> None:
    frame = _BODY.index(b"\xff\xc0")
    rest = _BODY[:frame] + _BODY[frame + 19 :]
    short, unknown = segment(0xEE, b"Adobe"), segment(0xEE, b"Adobe\0d\0\0\0\0\3")
    interval = segment(0xDD, b"\0\0")
    # The frame's marker is where a whole Adobe segment would have its code.
    data = _WHOLE[:2] + short + interval + _BODY[frame : frame + 19] + unknown + rest
    expected = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    assert expected is not None
    assert np.array_equal(expected, ImageDecoder().decode(memoryview(data)))
