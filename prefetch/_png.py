"""Animated PNGs: OpenCV looks at no checksum of theirs, and fills missing pixels up.

So the first frame, which is what OpenCV hands out, is made a PNG of its own, and libpng judges that
as it judges plain files. The chunks that only an animation has are checked here.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"


def first_frame(data: memoryview) -> bytes | None:
    """Return the first frame of an animated PNG as a PNG; None where the file is not animated.

    Raises:
        ValueError: The file ends early, the animation has no frame, or a checksum is wrong.
    """
    if not _is_animated(data):
        return None
    before: list[bytes] = []
    pixels: list[bytes] = []
    header = size = b""
    num_frames = 0
    name = b""
    for name, content, checksum in _chunks(data):
        if checksum != _checksum(name, content):
            raise ValueError(f"the checksum of its chunk {name!r} is wrong")
        if name == b"IHDR":
            header = content
        elif name == b"fcTL":
            num_frames += 1
            size = size or content[4:12]
        elif name in (b"PLTE", b"tRNS"):
            before.append(_chunk(name, content))
        elif num_frames == 1 and name in (b"IDAT", b"fdAT"):
            pixels.append(content if name == b"IDAT" else content[4:])
    if name != b"IEND":
        raise ValueError("it ends before its end chunk")
    if not pixels:
        raise ValueError("it is an animation without frames")
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", size + header[8:]),
            *before,
            _chunk(b"IDAT", b"".join(pixels)),
            _chunk(b"IEND", b""),
        )
    )


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
