"""Windows of images, decoded without the rest where that gives the same pixels."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
from jpegs import KINDS, draw_box, draw_picture, encode

from prefetch._kernels import _c
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError, Reason

if TYPE_CHECKING:
    from prefetch._record.jpeg_windows import Box, Window

HEIGHT, WIDTH = 90, 128
BOX = (20, 40, 30, 30)


def stamped(kind: str = "4:2:0", quality: int = 90) -> bytes:
    picture = draw_picture(np.random.default_rng(3), HEIGHT, WIDTH, kind)
    file = _c.add_restarts(encode(picture, kind, quality=quality), 2)
    assert isinstance(file, bytes)
    return file


def decoder(**options: Any) -> ImageDecoder:
    return ImageDecoder(splice=_c.splice_jpeg, **options)


def decode_window(file: bytes, box: Box = BOX, **options: Any) -> Window:
    return decoder(**options).decode_window(memoryview(file), lambda _, __: box)


def is_whole(window: Window) -> bool:
    return (*window.pixels.shape[:2],) == (window.height, window.width)


def verdict(file: bytes, box: Box, *, in_part: bool) -> tuple[Any, ...]:
    """Return a window's pixels, or what is wrong with the file."""
    top, left, rows, columns = box
    try:
        if in_part:
            window = decode_window(file, box)
            pixels, above, beside = window.pixels, window.top, window.left
        else:
            pixels, above, beside = ImageDecoder().decode(memoryview(file)), 0, 0
    except BadRecordError as bad:
        return bad.reason, bad.numbers, bad.detail
    return (pixels[top - above :, left - beside :][:rows, :columns].tobytes(),)


@pytest.mark.parametrize("options", [{}, {"force_color": True}, {"force_gray": True}])
@pytest.mark.parametrize("kind", KINDS)
def test_a_window_covers_what_was_chosen_with_the_pixels_of_the_whole(
    kind: str, options: dict[str, Any]
) -> None:
    rng = np.random.default_rng(1)
    file = memoryview(stamped(kind))
    whole = ImageDecoder(**options).decode(file).copy()
    one = decoder(**options)
    asked = []

    def choose(height: int, width: int) -> Box:
        asked.append((height, width))
        return box

    num_parts = 0
    for _ in range(50):
        top, left, rows, columns = box = draw_box(rng, HEIGHT, WIDTH)
        window = one.decode_window(file, choose)
        pixels = window.pixels[top - window.top :, left - window.left :][:rows, :columns]
        assert np.array_equal(pixels, whole[top : top + rows, left : left + columns])
        assert pixels.shape[:2] == (rows, columns)
        assert window.pixels.flags.c_contiguous
        assert (window.height, window.width) == (HEIGHT, WIDTH)
        num_parts += not is_whole(window)
    assert num_parts > 25
    assert asked == 50 * [(HEIGHT, WIDTH)]


def test_a_decoder_without_a_splice_decodes_the_whole() -> None:
    file = memoryview(stamped())
    window = ImageDecoder().decode_window(file, lambda _, __: BOX)
    assert is_whole(window)
    assert np.array_equal(window.pixels, ImageDecoder().decode(file))


def test_an_image_of_another_format_is_decoded_as_a_whole() -> None:
    picture = draw_picture(np.random.default_rng(3), HEIGHT, WIDTH, "4:4:4")
    window = decode_window(cv2.imencode(".png", picture)[1].tobytes())
    assert is_whole(window)
    assert np.array_equal(window.pixels, picture)


def with_orientation(file: bytes, orientation: int) -> bytes:
    exif = b"Exif\0\0II*\0\x08\0\0\0" + struct.pack("<HHHIIi", 1, 0x0112, 3, 1, orientation, 0)
    return file[:2] + struct.pack(">BBH", 0xFF, 0xE1, len(exif) + 2) + exif + file[2:]


def test_an_image_that_is_to_be_turned_is_decoded_as_a_whole() -> None:
    picture = draw_picture(np.random.default_rng(3), HEIGHT, WIDTH, "4:2:0")
    file = _c.add_restarts(with_orientation(encode(picture, "4:2:0"), 6), 2)
    assert isinstance(file, bytes)
    lying = decode_window(file)
    assert not is_whole(lying)
    upright = decode_window(file, force_color=True)
    assert is_whole(upright)
    assert upright.pixels.shape == (WIDTH, HEIGHT, 3)


@pytest.mark.parametrize("box", [(0, 0, HEIGHT + 1, 5), (-1, 0, 5, 5), (0, 0, 0, 0)])
def test_a_window_outside_of_the_image_gets_the_whole(box: Box) -> None:
    assert is_whole(decode_window(stamped(), box))


def test_an_image_that_is_too_large_is_refused_as_a_whole_is() -> None:
    with pytest.raises(BadRecordError) as caught:
        decode_window(stamped(), max_pixels=HEIGHT * WIDTH - 1)
    assert caught.value.reason is Reason.IMAGE_TOO_LARGE


def test_pixels_of_one_window_are_overwritten_by_the_next() -> None:
    one, file = decoder(), memoryview(stamped())
    first = one.decode_window(file, lambda _, __: BOX)
    second = one.decode_window(file, lambda _, __: (60, 90, 20, 20))
    assert np.shares_memory(first.pixels, second.pixels)
    assert (second.top, second.left) != (first.top, first.left)


def test_an_image_whose_shape_was_asked_is_not_served_from_a_windows_memory() -> None:
    one = decoder(force_color=True)
    picture = draw_picture(np.random.default_rng(3), HEIGHT, WIDTH, "4:2:0")
    png = memoryview(cv2.imencode(".png", picture)[1].tobytes())
    assert one.shape(png) == picture.shape
    one.decode_window(memoryview(stamped()), lambda _, __: BOX)
    assert np.array_equal(one.decode(png), picture)


def test_what_libjpeg_remarks_on_is_decoded_as_a_whole_and_said() -> None:
    file = bytearray(encode(draw_picture(np.random.default_rng(3), 64, 64, "4:2:0"), "4:2:0"))
    at = file.index(b"JFIF\0") + 5
    file[at] = 7
    new = _c.add_restarts(bytes(file), 2)
    assert isinstance(new, bytes)
    assert _c.find_restarts(new) is not None
    one = decoder()
    assert is_whole(one.decode_window(memoryview(new), lambda _, __: BOX))
    assert "JFIF revision" in one.remark
    one.decode_window(memoryview(stamped()), lambda _, __: BOX)
    assert not one.remark


def mutate(rng: np.random.Generator, file: bytes) -> bytes:
    """Return a file with some bytes changed, taken out, doubled or cut off."""
    at = int(rng.integers(2, len(file)))
    num = int(rng.integers(1, 40))
    kind = rng.integers(5)
    if kind == 0:
        return file[:at] + bytes((file[at] ^ 1 << int(rng.integers(8)),)) + file[at + 1 :]
    if kind == 1:
        return file[:at] + rng.bytes(num) + file[at + num :]
    if kind == 2:
        return file[:at] + file[at + num :]
    if kind == 3:
        return file[:at] + file[at : at + num] + file[at:]
    markers = [place for place in range(len(file) - 1) if file[place] == 0xFF and file[place + 1]]
    place = markers[int(rng.integers(len(markers)))] + 1
    return file[:place] + bytes((int(rng.integers(0xC0, 256)),)) + file[place + 1 :]


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_with_a_stamp_has_the_pixels_or_the_verdict_of_the_whole(kind: str) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    file = stamped(kind, quality=60)
    num_bad = 0
    for _ in range(200):
        damaged, box = mutate(rng, file), draw_box(rng, HEIGHT, WIDTH)
        expected = verdict(damaged, box, in_part=False)
        assert verdict(damaged, box, in_part=True) == expected
        num_bad += len(expected) > 1
    assert num_bad > 50


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_without_a_stamp_has_the_pixels_of_the_whole_where_that_is_sound(
    kind: str,
) -> None:
    rng = np.random.default_rng(KINDS.index(kind))
    file = encode(draw_picture(rng, HEIGHT, WIDTH, kind), kind, quality=60, interval=2)
    num_sound = 0
    for _ in range(200):
        damaged, box = mutate(rng, file), draw_box(rng, HEIGHT, WIDTH)
        expected = verdict(damaged, box, in_part=False)
        found = verdict(damaged, box, in_part=True)
        if len(expected) == 1:  # else damage may lie in what is not decoded
            assert found == expected
        num_sound += len(expected) == 1
    assert num_sound > 10


def test_damage_in_the_window_of_a_file_without_a_stamp_gets_the_verdict_of_the_whole() -> None:
    file = encode(
        draw_picture(np.random.default_rng(3), HEIGHT, WIDTH, "4:2:0"), "4:2:0", interval=2
    )
    at = file.index(b"\xff\xd3")  # the fifth segment begins behind it, at row 16
    assert not is_whole(decode_window(file, (16, 1, 10, 10)))
    damaged = file[: at + 6] + file[file.index(b"\xff\xd4") :]
    expected = verdict(damaged, (16, 1, 10, 10), in_part=False)
    assert expected[0] is Reason.IMAGE_CORRUPT
    assert verdict(damaged, (16, 1, 10, 10), in_part=True) == expected
