"""Animated PNGs: OpenCV looks at no checksum of theirs, and fills missing pixels up.

It hands out the first frame of the animation, or the image that viewers without animation show. So
these are made PNGs of their own, and libpng judges them as it judges plain files. The checksums of
all other chunks are looked at here.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


def still_images(data: memoryview) -> list[bytes]:
    """Return the first frame of an animated PNG, and its default image if that is another.

    Returns:
        PNGs; none where the file is not animated.

    Raises:
        ValueError: The file ends early, the animation has no frame, or a checksum is wrong.
    """
    if not _is_animated(data):
        return []
    chunks: list[tuple[bytes, bytes]] = []
    for name, content, checksum in _chunks(data):
        if checksum != _checksum(name, content):
            raise ValueError(f"the checksum of its chunk {name!r} is wrong")
        chunks.append((name, content))
    if not chunks or chunks[-1][0] != b"IEND":
        raise ValueError("it ends before its end chunk")
    controls = [place for place, (name, _) in enumerate(chunks) if name == b"fcTL"]
    if not controls:
        raise ValueError("it is an animation without frames")
    shared = b"".join(_chunk(*one) for one in chunks if one[0] in (b"PLTE", b"tRNS"))
    header = chunks[0][1]
    default = b"".join(content for name, content in chunks if name == b"IDAT")
    stills = [_still(header, shared, default)]
    first = chunks[slice(*[*controls, None][:2])]
    frame = b"".join(content[4:] for name, content in first if name == b"fdAT")
    if frame:
        size = first[0][1][4:12]
        stills.append(_still(size + header[8:], shared, frame))
    return stills


def _still(header: bytes, shared: bytes, pixels: bytes) -> bytes:
    ends = _chunk(b"IDAT", pixels) + _chunk(b"IEND", b"")
    return _SIGNATURE + _chunk(b"IHDR", header) + shared + ends


def _is_animated(data: memoryview) -> bool:
    at = len(_SIGNATURE)
    while at + 8 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        if name in (b"acTL", b"IDAT"):
            return bool(name == b"acTL")
        at += 12 + length
    return False


def _chunks(data: memoryview) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield the chunks up to the end chunk: the name, the content and the checksum."""
    at = len(_SIGNATURE)
    name = b""
    while name != b"IEND" and at + 12 <= len(data):
        length, name = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        if end + 4 > len(data):
            return
        yield name, bytes(data[at + 8 : end]), bytes(data[end : end + 4])
        at = end + 4


def _chunk(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + name + content + _checksum(name, content)


def _checksum(name: bytes, content: bytes) -> bytes:
    return struct.pack(">I", zlib.crc32(name + content))
