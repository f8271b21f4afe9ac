"""The image formats that are decoded, and how large each says that its image is.

The list is closed: what begins otherwise is no image here, whatever OpenCV was built with. Sizes
are read before OpenCV sees the file, for its decoders make room for an image before they look
whether its bytes are there: 8 GB for a GIF of 35 bytes. Everything is counted that they make room
for: the canvas of an animation, its first frames, the tiles of a TIFF, the components of a JPEG
2000 file, the sequence of an AVIF file.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from prefetch._record.avif import avif_sizes, boxes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    Size: TypeAlias = tuple[int, int]

_TEXT_BYTES: Final = 1 << 16
"""A header of text that is longer is none."""

_SPACE: Final = rb"(?:\s|#[^\n\r]*[\n\r])+"
_PNM: Final = re.compile(rb"\AP[1-6](?=[\s#])%b([0-9]+)%b([0-9]+)" % (_SPACE, _SPACE))
_PFM: Final = re.compile(rb"\AP[Ff]\s+([0-9]+)\s+([0-9]+)")
_PAM_WIDTH: Final = re.compile(rb"WIDTH\s+([0-9]+)")
_PAM_HEIGHT: Final = re.compile(rb"HEIGHT\s+([0-9]+)")
_HDR: Final = re.compile(rb"-Y\s*([0-9]+)\s*\+X\s*([0-9]+)")
_MOST_DIGITS: Final = 20

# Of TIFF: tags, and the struct codes of the types that a size may have.
_WIDTH_TAG, _HEIGHT_TAG, _BITS_TAG, _SAMPLES_TAG = 256, 257, 258, 277
_TILE_WIDTH_TAG, _TILE_HEIGHT_TAG = 322, 323
_INTEGERS: Final = {1: "B", 3: "H", 4: "I", 16: "Q"}


class Canvas(NamedTuple):
    """How much memory decoding an image takes.

    Attributes:
        height: In pixels.
        width: In pixels.
        weight: How many times four bytes a decoder takes for a pixel, 1 or more.
    """

    height: int
    width: int
    weight: int = 1


class UnknownFormatError(ValueError):
    """Raised for bytes that are no image of a format on the list, or whose header ends early."""


def format_of(head: bytes) -> str:
    """Return the format of an image by its first 16 bytes; empty where it is none on the list."""
    return next((name for name, (pattern, _) in _FORMATS.items() if pattern.match(head)), "")


def canvas_of(data: memoryview) -> Canvas:
    """Return how large an image that is no JPEG says it is.

    Raises:
        UnknownFormatError: It is of no format on the list, or says no size.
    """
    name = format_of(bytes(data[:16]))
    if not name or name == "jpeg":
        raise UnknownFormatError
    try:
        return _FORMATS[name][1](data)
    except (struct.error, LookupError, ValueError):
        raise UnknownFormatError from None


def _png(data: memoryview) -> Canvas:
    width, height, depth = struct.unpack_from(">IIB", data, 16)
    at, name = 8, b""
    while name != b"IEND":  # OpenCV makes room for a chunk by what its length says
        length, name = struct.unpack_from(">I4s", data, at)
        at += 12 + length
    return Canvas(height, width, 2 if depth == 16 else 1)


def _gif(data: memoryview) -> Canvas:
    width, height, flags = struct.unpack_from("<HHB", data, 6)
    at = 13 + _gif_colours(flags)
    while data[at] == 0x21:  # extensions before the first frame
        at += 2
        while data[at]:
            at += 1 + data[at]
        at += 1
    if data[at] == 0x2C:
        left, top, frame_width, frame_height = struct.unpack_from("<HHHH", data, at + 1)
        width, height = max(width, left + frame_width), max(height, top + frame_height)
    return Canvas(height, width, 2)  # OpenCV keeps the canvas, and a background for it


def _gif_colours(flags: int) -> int:
    """Return how many bytes the table takes that flags announce."""
    return 3 << (flags & 7) + 1 if flags & 0x80 else 0


def _bmp(data: memoryview) -> Canvas:
    (header_bytes,) = struct.unpack_from("<I", data, 14)
    width, height = struct.unpack_from("<HH" if header_bytes == 12 else "<ii", data, 18)
    return Canvas(abs(height), abs(width))


def _tiff(data: memoryview) -> Canvas:
    order = "<" if bytes(data[:2]) == b"II" else ">"
    is_big = struct.unpack_from(order + "H", data, 2)[0] == 43
    (at,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, 8 if is_big else 4)
    (num_entries,) = struct.unpack_from(order + ("Q" if is_big else "H"), data, at)
    at += 8 if is_big else 2
    entry_bytes, inline_at, inline_bytes = (20, 12, 8) if is_big else (12, 8, 4)
    tags: dict[int, int] = {}
    for entry in range(at, min(at + num_entries * entry_bytes, len(data)), entry_bytes):
        tag, kind, num = struct.unpack_from(order + ("HHQ" if is_big else "HHI"), data, entry)
        code = _INTEGERS.get(kind)
        if code is not None and num and _WIDTH_TAG <= tag <= _TILE_HEIGHT_TAG:
            where = entry + inline_at
            if num * struct.calcsize(code) > inline_bytes:
                (where,) = struct.unpack_from(order + ("Q" if is_big else "I"), data, where)
            if tag not in tags:  # libtiff takes the first of several
                (tags[tag],) = struct.unpack_from(order + code, data, where)
    width = max(tags[_WIDTH_TAG], tags.get(_TILE_WIDTH_TAG, 0))
    height = max(tags[_HEIGHT_TAG], tags.get(_TILE_HEIGHT_TAG, 0))
    bits = tags.get(_BITS_TAG, 1) * tags.get(_SAMPLES_TAG, 1)
    return Canvas(height, width, max(1, bits // 32))


def _webp(data: memoryview) -> Canvas:
    sizes = list(_webp_sizes(data, 12, len(data)))
    return Canvas(*_largest(sizes), 2)  # of an animation, the canvas and the frame before


def _webp_sizes(data: memoryview, at: int, end: int) -> Iterator[Size]:
    while at + 8 <= end:
        name = bytes(data[at : at + 4])
        (length,) = struct.unpack_from("<I", data, at + 4)
        body = at + 8
        if name == b"VP8X":
            yield _uint24(data, body + 7) + 1, _uint24(data, body + 4) + 1
        elif name == b"ANMF":
            yield _uint24(data, body + 9) + 1, _uint24(data, body + 6) + 1
            yield from _webp_sizes(data, body + 16, min(body + length, end))
        elif name == b"VP8 ":
            width, height = struct.unpack_from("<HH", data, body + 6)
            yield height & 0x3FFF, width & 0x3FFF
        elif name == b"VP8L":
            (packed,) = struct.unpack_from("<I", data, body + 1)
            yield (packed >> 14 & 0x3FFF) + 1, (packed & 0x3FFF) + 1
        at = body + length + (length & 1)


def _uint24(data: memoryview, at: int) -> int:
    return data[at] | data[at + 1] << 8 | data[at + 2] << 16


def _avif(data: memoryview) -> Canvas:
    return Canvas(*_largest(list(avif_sizes(data))), 3)  # planes of 16 bits, and RGB


def _jp2(data: memoryview) -> Canvas:
    for name, body, after in boxes(data, 0, len(data)):
        if name == b"jp2c":
            return _j2k(data[body:after])
    raise UnknownFormatError


def _j2k(data: memoryview) -> Canvas:
    if bytes(data[:4]) != b"\xff\x4f\xff\x51":
        raise UnknownFormatError
    right, bottom, left, top = struct.unpack_from(">IIII", data, 8)
    (num_components,) = struct.unpack_from(">H", data, 40)
    # OpenJPEG keeps 32 bits of each component, in the image and in the tile.
    return Canvas(max(0, bottom - top), max(0, right - left), max(1, num_components // 2))


def _pnm(data: memoryview) -> Canvas:
    return _text(data, _PNM, rows_first=False)


def _pfm(data: memoryview) -> Canvas:
    return _text(data, _PFM, rows_first=False)._replace(weight=3)


def _hdr(data: memoryview) -> Canvas:
    return _text(data, _HDR, rows_first=True)._replace(weight=3)


def _text(data: memoryview, pattern: re.Pattern[bytes], *, rows_first: bool) -> Canvas:
    """Return the largest of the sizes that a header of text says."""
    head = bytes(data[:_TEXT_BYTES])
    sizes = [(_number(one), _number(two)) for one, two in pattern.findall(head)]
    return Canvas(*_largest(sizes if rows_first else [size[::-1] for size in sizes]))


def _pam(data: memoryview) -> Canvas:
    head = bytes(data[:_TEXT_BYTES])
    height = max(map(_number, _PAM_HEIGHT.findall(head)))
    return Canvas(height, max(map(_number, _PAM_WIDTH.findall(head))))


def _number(digits: bytes) -> int:
    return int(digits[:_MOST_DIGITS])


def _sun(data: memoryview) -> Canvas:
    width, height = struct.unpack_from(">II", data, 4)
    return Canvas(height, width)


def _largest(sizes: list[Size]) -> Size:
    return max(sizes, key=lambda size: size[0] * size[1])


def _no_canvas(_: memoryview) -> Canvas:
    raise UnknownFormatError  # a JPEG's header is read by _jpeg


_FORMATS: Final[dict[str, tuple[re.Pattern[bytes], Callable[[memoryview], Canvas]]]] = {
    name: (re.compile(signature, re.DOTALL), look_up)
    for name, signature, look_up in (
        ("jpeg", rb"\xff\xd8\xff", _no_canvas),
        ("png", rb"\x89PNG\r\n\x1a\n", _png),
        ("gif", rb"GIF8[79]a", _gif),
        ("bmp", rb"BM", _bmp),
        ("tiff", rb"II[*+]\0|MM\0[*+]", _tiff),
        ("webp", rb"RIFF....WEBP", _webp),
        ("avif", rb"....ftyp", _avif),
        ("jpeg2000", rb"\0\0\0\x0cjP  \r\n\x87\n", _jp2),
        ("j2k", rb"\xff\x4f\xff\x51", _j2k),
        ("pnm", rb"P[1-6]", _pnm),
        ("pam", rb"P7", _pam),
        ("pfm", rb"P[Ff]", _pfm),
        ("hdr", rb"#\?R(ADIANCE|GBE)", _hdr),
        ("sun", rb"\x59\xa6\x6a\x95", _sun),
    )
}
