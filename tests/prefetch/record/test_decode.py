"""Decoding, against OpenCV with Caffe's flags; images are made here."""

from __future__ import annotations

import functools
import struct
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import pytest
import simplejpeg
from processes import run_code

from prefetch._record import decode
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError, Reason
from prefetch._record.jpeg_markers import read_jpeg_header

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUBSAMPLINGS = (
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
)
MODES: dict[str, tuple[dict[str, Any], int]] = {
    "native": ({}, cv2.IMREAD_UNCHANGED),
    "color": ({"force_color": True}, cv2.IMREAD_COLOR),
    "gray": ({"force_gray": True}, cv2.IMREAD_GRAYSCALE),
}


@functools.cache
def picture(height: int, width: int, channels: int = 3) -> NDArray[np.uint8]:
    """Return something smooth with noise on it, as photographs are."""
    draw = np.random.default_rng(height * 1000 + width)
    coarse = draw.integers(0, 256, (height // 8 + 1, width // 8 + 1, channels), dtype=np.uint8)
    smooth = np.asarray(cv2.resize(coarse, (width, height))).reshape(height, width, channels)
    noisy: NDArray[Any] = smooth + draw.integers(-20, 20, smooth.shape)
    pixels: NDArray[np.uint8] = noisy.clip(0, 255).astype(np.uint8)
    return pixels


def jpeg(image: NDArray[np.uint8], *options: int) -> bytes:
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def cmyk_jpeg() -> bytes:
    encoded: bytes = simplejpeg.encode_jpeg(picture(24, 40, 4), 90, "CMYK", "444")
    return encoded


def with_segment(data: bytes, marker: int, payload: bytes) -> bytes:
    """Put a marker segment behind the start of a JPEG."""
    return data[:2] + struct.pack(">BBH", 0xFF, marker, len(payload) + 2) + payload + data[2:]


def with_orientation(data: bytes, orientation: int, order: str = "<") -> bytes:
    """Put an EXIF orientation into a JPEG."""
    magic = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    directory = struct.pack(order + "IH", 8, 1) + entry + bytes(4)
    return with_segment(data, 0xE1, b"Exif\0\0" + magic + directory)


def opencv(data: bytes, flag: int) -> NDArray[Any]:
    """Return what OpenCV makes of it, always with an axis of channels."""
    image = cv2.imdecode(np.frombuffer(data, np.uint8), flag)
    assert image is not None
    pixels: NDArray[Any] = np.atleast_3d(np.asarray(image))
    return pixels


def fault_of(data: bytes, **options: Any) -> BadRecordError:
    with pytest.raises(BadRecordError) as caught:
        ImageDecoder(**options).decode(memoryview(data))
    return caught.value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("subsampling", SUBSAMPLINGS)
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (16, 16), (33, 17), (40, 60)])
def test_a_jpeg_has_opencvs_pixels(
    size: tuple[int, int], subsampling: int, progressive: int, mode: str
) -> None:
    options, flag = MODES[mode]
    decoder = ImageDecoder(**options)
    for quality in (40, 95):
        data = jpeg(
            picture(*size),
            cv2.IMWRITE_JPEG_SAMPLING_FACTOR,
            subsampling,
            cv2.IMWRITE_JPEG_PROGRESSIVE,
            progressive,
            cv2.IMWRITE_JPEG_QUALITY,
            quality,
            cv2.IMWRITE_JPEG_RST_INTERVAL,
            quality % 3,
        )
        image = decoder.decode(memoryview(data))
        assert np.array_equal(image, opencv(data, flag))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("progressive", [0, 1])
@pytest.mark.parametrize("size", [(1, 1), (7, 9), (33, 17)])
def test_a_grey_jpeg_has_opencvs_pixels(size: tuple[int, int], progressive: int, mode: str) -> None:
    options, flag = MODES[mode]
    data = jpeg(picture(*size, 1), cv2.IMWRITE_JPEG_PROGRESSIVE, progressive)
    image = ImageDecoder(**options).decode(memoryview(data))
    assert image.shape == (*size, 3 if mode == "color" else 1)
    assert np.array_equal(image, opencv(data, flag))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("orientation", range(10))
def test_exif_turns_an_image_only_where_caffe_does(orientation: int, order: str, mode: str) -> None:
    options, flag = MODES[mode]
    data = with_orientation(jpeg(picture(12, 20)), orientation, order)
    decoder = ImageDecoder(**options)
    image = decoder.decode(memoryview(data))
    turned = mode != "native" and orientation in (5, 6, 7, 8)
    assert image.shape[:2] == ((20, 12) if turned else (12, 20))
    assert np.array_equal(image, opencv(data, flag))
    assert decoder.shape(memoryview(data)) == image.shape


@pytest.mark.parametrize(
    "payload",
    [
        b"Exif\0\0",
        b"Exif\0\0II*\0\xff\xff\xff\xff",
        b"Exif\0\0XX*\0\x08\0\0\0\0\0",
        b"Exif\0\0II+\0\x08\0\0\0\0\0\0\0\0\0",
        b"Exif\0\0II*\0\x08\0\0\0\x09\0",
        b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x04\0\x01\0\0\0\x06\0\0\0\0\0\0\0",
        b"http://ns.adobe.com/xap/1.0/\0<x:xmpmeta/>",
    ],
)
def test_odd_exif_is_left_to_opencv(payload: bytes) -> None:
    data = with_segment(jpeg(picture(12, 20)), 0xE1, payload)
    image = ImageDecoder(force_color=True).decode(memoryview(data))
    assert np.array_equal(image, opencv(data, cv2.IMREAD_COLOR))


@pytest.mark.parametrize("mode", MODES)
def test_a_cmyk_jpeg_is_converted_by_opencv(mode: str) -> None:
    options, flag = MODES[mode]
    data = cmyk_jpeg()
    decoder = ImageDecoder(**options)
    image = decoder.decode(memoryview(data))
    assert image.shape == (24, 40, 1 if mode == "gray" else 3)
    assert np.array_equal(image, opencv(data, flag))
    assert decoder.shape(memoryview(data)) == image.shape


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("suffix", [".png", ".bmp", ".tiff", ".webp", ".ppm"])
def test_other_formats_are_opencvs(suffix: str, mode: str) -> None:
    options, flag = MODES[mode]
    data = cv2.imencode(suffix, picture(12, 20))[1].tobytes()
    decoder = ImageDecoder(**options)
    image = decoder.decode(memoryview(data))
    assert np.array_equal(image, opencv(data, flag))
    assert decoder.shape(memoryview(data)) == image.shape


@pytest.mark.parametrize(
    ("stored", "mode", "delivered"),
    [
        (1, "native", 1),
        (3, "native", 3),
        (4, "native", 4),
        (1, "color", 3),
        (4, "color", 3),
        (3, "gray", 1),
        (4, "gray", 1),
    ],
)
def test_a_png_keeps_its_channels_unless_forced(stored: int, mode: str, delivered: int) -> None:
    options, flag = MODES[mode]
    data = cv2.imencode(".png", picture(6, 7, stored))[1].tobytes()
    image = ImageDecoder(**options).decode(memoryview(data))
    assert image.shape == (6, 7, delivered)
    assert image.flags.c_contiguous
    assert np.array_equal(image, opencv(data, flag))


@pytest.mark.parametrize("mode", ["color", "gray"])
def test_16_bits_are_reduced_where_a_kind_is_forced(mode: str) -> None:
    options, flag = MODES[mode]
    deep = picture(6, 7).astype(np.uint16) * 257
    data = cv2.imencode(".png", deep)[1].tobytes()
    image = ImageDecoder(**options).decode(memoryview(data))
    assert image.dtype == np.uint8
    assert np.array_equal(image, opencv(data, flag))


def test_16_bits_are_a_fault_otherwise() -> None:
    data = cv2.imencode(".png", picture(6, 7).astype(np.uint16))[1].tobytes()
    error = fault_of(data)
    assert (error.reason, error.numbers) == (Reason.IMAGE_DEPTH, (16,))


def test_a_jpeg_is_decoded_into_the_decoders_own_buffer() -> None:
    decoder = ImageDecoder()
    large = decoder.decode(memoryview(jpeg(picture(40, 60))))
    small = decoder.decode(memoryview(jpeg(picture(7, 9))))
    assert np.shares_memory(large, small)


def test_a_buffer_of_extraordinary_size_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "_KEPT_BYTES", 1000)
    decoder = ImageDecoder()
    large = decoder.decode(memoryview(jpeg(picture(40, 60))))
    small = decoder.decode(memoryview(jpeg(picture(7, 9))))
    assert not np.shares_memory(large, small)


@pytest.mark.parametrize("mode", MODES)
def test_the_shape_of_a_jpeg_is_read_from_its_header(mode: str) -> None:
    options, _ = MODES[mode]
    data = jpeg(picture(12, 20))
    header_only = data[: data.index(b"\xff\xda") + 4]
    channels = 1 if mode == "gray" else 3
    assert ImageDecoder(**options).shape(memoryview(header_only)) == (12, 20, channels)


def test_an_image_whose_shape_was_asked_for_is_taken_for_no_other() -> None:
    """Bitmaps of one size are files of one length."""
    first, second = (
        cv2.imencode(".bmp", np.full((6, 5, 3), value, np.uint8))[1].tobytes() for value in (1, 2)
    )
    longer = first + b"\0"
    photograph = jpeg(picture(6, 5))
    assert len(first) == len(second)
    decoder = ImageDecoder()
    for other in (second, longer, photograph):
        for data in (other, first):
            assert decoder.shape(memoryview(first)) == (6, 5, 3)
            for again in (data, first, other):
                expected = opencv(again, cv2.IMREAD_UNCHANGED)
                assert np.array_equal(decoder.decode(memoryview(again)), expected)


def test_an_image_whose_shape_was_asked_for_is_decoded_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    data = memoryview(cv2.imencode(".png", picture(6, 5))[1].tobytes())
    decoder = ImageDecoder()
    assert decoder.shape(data) == (6, 5, 3)
    with monkeypatch.context() as patch:
        patch.setattr(cv2, "imdecode", None)
        assert np.array_equal(decoder.decode(data), picture(6, 5))


@pytest.mark.parametrize("axis", [0, 1])
def test_a_jpeg_that_leaves_its_size_open_is_a_fault_for_its_shape_too(axis: int) -> None:
    data = bytearray(jpeg(picture(12, 20)))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 + 2 * axis : frame + 7 + 2 * axis] = bytes(2)
    assert fault_of(bytes(data)).reason is Reason.UNDECODABLE
    with pytest.raises(BadRecordError):
        ImageDecoder().shape(memoryview(bytes(data)))


# Damage.

KINDS: dict[str, tuple[bytes, dict[str, Any]]] = {
    "baseline": (jpeg(picture(40, 60)), {}),
    "progressive": (jpeg(picture(40, 60), cv2.IMWRITE_JPEG_PROGRESSIVE, 1), {}),
    "restarts": (jpeg(picture(40, 60), cv2.IMWRITE_JPEG_RST_INTERVAL, 1), {}),
    "grey": (jpeg(picture(40, 60, 1)), {}),
    "forced": (jpeg(picture(40, 60)), {"force_gray": True}),
    "turned": (with_orientation(jpeg(picture(40, 60)), 6), {"force_color": True}),
    "cmyk": (cmyk_jpeg(), {}),
}


@pytest.mark.parametrize("share", [0.5, 0.9])
@pytest.mark.parametrize("kind", KINDS)
def test_a_jpeg_cut_in_its_scan_is_a_fault(kind: str, share: float) -> None:
    whole, options = KINDS[kind]
    start = whole.rindex(b"\xff\xda")
    cut = whole[: start + int((len(whole) - start) * share)]
    error = fault_of(cut, **options)
    assert (error.reason, error.numbers) == (Reason.IMAGE_CUT, (len(cut),))


@pytest.mark.parametrize("kind", KINDS)
def test_a_jpeg_without_its_end_marker_is_a_fault(kind: str) -> None:
    whole, options = KINDS[kind]
    assert fault_of(whole[:-2], **options).reason is Reason.IMAGE_CUT


@pytest.mark.parametrize("num_bytes", [3, 20, 200])
def test_a_jpeg_cut_in_its_header_is_a_fault(num_bytes: int) -> None:
    assert fault_of(jpeg(picture(40, 60))[:num_bytes]).reason is Reason.IMAGE_CUT


@pytest.mark.parametrize("kind", ["baseline", "turned", "cmyk", "restarts"])
def test_a_jpeg_damaged_inside_its_scan_is_a_fault(kind: str) -> None:
    whole, options = KINDS[kind]
    damaged = bytearray(whole)
    middle = (whole.rindex(b"\xff\xda") + len(whole)) // 2
    damaged[middle : middle + 40] = bytes(40)
    error = fault_of(bytes(damaged), **options)
    assert error.reason is Reason.IMAGE_CORRUPT
    assert error.detail.startswith("Corrupt JPEG data")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tail", [b"\0" * 16, b"a thumbnail, or what a camera adds"])
def test_bytes_behind_the_end_of_a_jpeg_are_no_fault(kind: str, tail: bytes) -> None:
    whole, options = KINDS[kind]
    expected = ImageDecoder(**options).decode(memoryview(whole))
    assert np.array_equal(ImageDecoder(**options).decode(memoryview(whole + tail)), expected)


def with_harmless_remark() -> bytes:
    """Return a JPEG of which libjpeg says "Invalid SOS parameters for sequential JPEG"."""
    data = bytearray(jpeg(picture(40, 60)))
    start = data.rindex(b"\xff\xda")
    length = data[start + 3]
    assert data[start + length] == 63
    data[start + length] = 0
    return bytes(data)


def test_what_does_not_touch_the_pixels_is_no_fault() -> None:
    data = with_harmless_remark()
    with pytest.raises(ValueError, match="Invalid SOS"):
        simplejpeg.decode_jpeg(data, "BGR")
    image = ImageDecoder().decode(memoryview(data))
    assert np.array_equal(image, opencv(jpeg(picture(40, 60)), cv2.IMREAD_UNCHANGED))


def test_a_cut_is_found_behind_a_harmless_remark_of_a_lenient_opencv(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lenient(_: ImageDecoder, __: memoryview) -> NDArray[np.uint8]:
        return np.zeros((40, 60, 3), np.uint8)  # OpenCV 4 makes an image of what there is

    monkeypatch.setattr(ImageDecoder, "_decode_with_opencv", lenient)
    data = with_harmless_remark()
    ImageDecoder().decode(memoryview(data))
    assert fault_of(data[: len(data) * 9 // 10]).reason is Reason.IMAGE_CUT


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"x",
        b"garbage" * 100,
        b"\x89PNG\r\n\x1a\n",
        cv2.imencode(".png", picture(9, 9))[1].tobytes()[:60],
    ],
)
def test_what_is_no_image_is_a_fault(data: bytes) -> None:
    error = fault_of(data)
    assert (error.reason, error.numbers) == (Reason.UNDECODABLE, (len(data),))


def test_a_fault_has_opencvs_words() -> None:
    error = fault_of(b"PF\n4 0\n-1.0\n")
    assert error.reason is Reason.UNDECODABLE
    assert error.detail.startswith("OpenCV says: ")


def huge_jpeg() -> bytes:
    data = bytearray(jpeg(picture(8, 8)))
    frame = data.index(b"\xff\xc0")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 65535, 65534)
    return bytes(data)


def huge_png() -> bytes:
    data = bytearray(cv2.imencode(".png", picture(8, 8))[1].tobytes())
    data[16:24] = struct.pack(">II", 65534, 65535)
    return bytes(data)


@pytest.mark.parametrize("data", [huge_jpeg(), huge_png()])
def test_an_image_that_claims_a_huge_size_is_refused_before_decoding(
    data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ImageDecoder, "_room", None)
    monkeypatch.setattr(ImageDecoder, "_decode_with_opencv", None)
    error = fault_of(data)
    assert error.reason is Reason.IMAGE_TOO_LARGE
    assert error.numbers == (65535, 65534, 2**24, len(data))


def test_the_largest_image_allowed_is_decoded() -> None:
    data = jpeg(picture(10, 10))
    assert ImageDecoder(max_pixels=100).decode(memoryview(data)).shape == (10, 10, 3)
    assert fault_of(data, max_pixels=99).reason is Reason.IMAGE_TOO_LARGE
    with pytest.raises(BadRecordError):
        ImageDecoder(max_pixels=99).shape(memoryview(data))


# The header.


def test_the_header_of_a_jpeg_is_read() -> None:
    header = read_jpeg_header(memoryview(jpeg(picture(12, 20))))
    assert header is not None
    assert (header.height, header.width, header.components) == (12, 20, 3)
    assert header.common
    assert header.is_upright


def test_fill_bytes_before_a_marker_are_skipped() -> None:
    data = jpeg(picture(12, 20))
    filled = data[:2] + b"\xff\xff\xff" + data[2:]
    header = read_jpeg_header(memoryview(data))
    assert header is not None
    assert read_jpeg_header(memoryview(filled)) == header._replace(scan=header.scan + 3)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xd8",
        b"\xff\xd8\xff",
        b"\xff\xd8\xff\xd9\0\0",
        b"\xff\xd8\xff\xd0\0\0",
        b"\xff\xd8xx\0\0",
        b"\xff\xd8\xff\xe0\0\0",
        b"\xff\xd8\xff\xe0\xff\xff",
        b"\xff\xd8\xff\xc0\0\x04\0\0",
        b"\xff\xd8\xff\xda\0\x04\0\0",
        jpeg(picture(12, 20))[:100],
        *(
            jpeg(picture(12, 20))[: jpeg(picture(12, 20)).index(b"\xff\xc0") + more]
            for more in (5, 9, 11)
        ),
    ],
)
def test_an_odd_header_is_none(data: bytes) -> None:
    assert read_jpeg_header(memoryview(data)) is None


def test_an_arithmetic_or_12_bit_frame_is_not_common() -> None:
    data = bytearray(jpeg(picture(12, 20)))
    frame = data.index(b"\xff\xc0")
    for offset, value in ((1, 0xC9), (4, 12)):
        odd = bytearray(data)
        odd[frame + offset] = value
        header = read_jpeg_header(memoryview(bytes(odd)))
        assert header is not None
        assert not header.common


@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_want_of_memory_is_no_fault_of_the_record(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record that is skipped for it would be missing from the training, and nobody would know."""

    def refuse_cv2(*_: object) -> None:
        error = cv2.error("OpenCV: Failed to allocate 108000000 bytes")
        error.code, error.err = cv2.Error.StsNoMem, "Failed to allocate 108000000 bytes"
        raise error

    def refuse_jpeg(*_: object, **__: object) -> None:
        raise ValueError("Insufficient memory (case 4)")  # in libjpeg's words

    image = picture(12, 20)
    data = jpeg(image) if kind == "jpeg" else cv2.imencode(".png", image)[1].tobytes()
    monkeypatch.setattr(cv2, "imdecode", refuse_cv2)
    monkeypatch.setattr(simplejpeg, "decode_jpeg", refuse_jpeg)
    with pytest.raises(MemoryError, match=r"Failed to allocate|Insufficient memory"):
        ImageDecoder().decode(memoryview(data))


@pytest.mark.parametrize("silence", ["", "cv2.utils.logging.setLogLevel(0)"])
def test_how_much_opencv_writes_is_left_to_the_program(silence: str) -> None:
    ended = run_code(
        f"""
        import cv2, numpy as np
        from prefetch._record.decode import ImageDecoder
        from prefetch._record.faults import BadRecordError

        png = cv2.imencode(".png", np.zeros((64, 64, 3), np.uint8))[1].tobytes()
        {silence}
        level = cv2.utils.logging.getLogLevel()
        try:
            ImageDecoder().decode(memoryview(png[:100]))
        except BadRecordError:
            print("refused", cv2.utils.logging.getLogLevel() == level)
        """
    )
    assert ended.stdout == "refused True\n", ended.stderr
    assert not silence or "global" not in ended.stderr  # libpng may have written besides
