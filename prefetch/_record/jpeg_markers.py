"""What a JPEG says of itself before its first scan, and which of libjpeg's remarks are harmless.

Marker segments are found as libjpeg finds them: bytes between two of them are skipped.

Libjpeg reports only the first of its remarks. So what a harmless one is about is taken out of a
copy, and libjpeg checks that copy: damage behind a harmless remark is not missed. The list:

==================================  ==============================================================
remark                              harmless where
==================================  ==============================================================
extraneous bytes, before the end    they are zeros, and what is left ends with all of its pixels;
                                    other bytes may be the rest of a picture whose codes have moved
extraneous bytes, in the header     they follow the start, an APPn or a comment; behind a table they
                                    may be the rest of a table that has moved
unknown JFIF revision               always: nothing depends on it
unknown Adobe color transform code  always: all decoders take it for that of the usual colours
invalid SOS parameters              in a sequential file, where they say nothing
==================================  ==============================================================
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

JPEG_SIGNATURE: Final = b"\xff\xd8\xff"

_START: Final = 0xD8
_START_OF_SCAN: Final = 0xDA
_APP0: Final = 0xE0
_APP1: Final = 0xE1
_APP14: Final = 0xEE
_COMMENT: Final = 0xFE
_END: Final = b"\xff\xd9"
_SCAN_PAIR: Final = 0xDAFF
# Baseline, extended and progressive frames; Huffman-coded all three.
_HUFFMAN_FRAMES: Final = (0xC0, 0xC1, 0xC2)
_ONE_SCAN_FRAMES: Final = (0xC0, 0xC1)
# C4, C8 and CC lie in the range of the frame markers and are none.
_FRAMES: Final = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_SKIPPED: Final = frozenset((0x00, 0x01, *range(0xD0, 0xD8)))  # without a length
_ENDS: Final = frozenset((0xD8, 0xD9))
_TABLES: Final = frozenset((0xC4, 0xDB, 0xDD, _APP0, _COMMENT))  # of no interest in a header
_NO_SAY: Final = frozenset((_START, _COMMENT, *range(0xE0, 0xF0)))  # in what the pixels are
_ORIENTATION_TAG: Final = 0x0112
_SHORT: Final = 3

# A byte of the coded pixels that is 0xFF is followed by 0x00, or starts a restart marker.
_MARKER_IN_SCAN: Final = re.compile(rb"\xff+([^\x00\xff\xd0-\xd7])", re.DOTALL)
_AFTER_SCAN: Final = frozenset((0xC4, 0xCC, 0xDA, 0xDB, 0xDC, 0xDD, _COMMENT, *range(0xE0, 0xF0)))

_LEAD: Final = struct.Struct(">BBH").unpack_from
_FRAME: Final = struct.Struct(">BHHB").unpack_from

_Segment: TypeAlias = tuple[int, int, int]  # its marker, where it begins, where it ends


class JpegHeader(NamedTuple):
    """What a JPEG says of itself before its first scan.

    Attributes:
        height: In pixels, as stored; 0 where the file leaves it open.
        width: In pixels, as stored.
        components: 1 grey, 3 colour, 4 CMYK.
        common: Whether it is 8-bit and Huffman-coded, as nearly all files are.
        orientation: What EXIF asks for: 1 for no turning, 2 to 8 for one; any other in doubt.
        one_scan: Whether libjpeg stops after its first scan.
        scan: Where that begins, in bytes.
    """

    height: int
    width: int
    components: int
    common: bool
    orientation: int
    one_scan: bool
    scan: int

    @property
    def is_upright(self) -> bool:
        """Whether it is sure that EXIF asks for no turning."""
        return self.orientation == 1

    @property
    def is_turned(self) -> bool:
        """Whether EXIF asks for a turning or mirroring."""
        return 1 < self.orientation <= 8


def read_jpeg_header(data: memoryview) -> JpegHeader | None:
    """Read the marker segments of a JPEG up to its first scan.

    Args:
        data: The whole file, bytes.

    Returns:
        The header; None where it has no scan, or none of a single frame, which libjpeg refuses.
    """
    frame: tuple[int, int, int, int] | None = None
    common = one_scan = False
    orientation = 1
    for marker, start, end in _segments(data, _TABLES):
        if marker in _FRAMES:
            if frame is not None or min(end, len(data)) - start < 10:
                return None
            frame = _FRAME(data, start + 4)
            common = marker in _HUFFMAN_FRAMES and frame[0] == 8
            one_scan = marker in _ONE_SCAN_FRAMES
        elif marker == _APP1:
            if orientation == 1:
                orientation = _orientation(data[start + 4 : end])
        elif marker == _START_OF_SCAN and frame is not None:
            _, height, width, components = frame
            one_scan = one_scan and len(data) > start + 4 and data[start + 4] == components
            return JpegHeader(height, width, components, common, orientation, one_scan, start)
    return None


def num_scans(data: memoryview, header: JpegHeader) -> int:
    """Return how many scans a JPEG has, or a few more; each takes a pass over all pixels."""
    if header.one_scan:
        return 1
    starts = header.scan, header.scan + 1
    # In pairs of bytes from either: a tenth of the time that bytes.count() takes.
    pairs = (np.frombuffer(data, "<u2", (len(data) - at) // 2, at) for at in starts)
    return sum(int(np.count_nonzero(part == _SCAN_PAIR)) for part in pairs)


def lacks_end(data: memoryview) -> bool:
    """Return whether a JPEG ends before its end marker.

    Coded pixels never contain a marker (a 0xFF among them is followed by 0x00), so the last start
    of a scan is the real one, and an end marker that comes after it is too.
    """
    whole = bytes(data)
    return whole.rfind(_END) <= whole.rfind(b"\xff\xda")


def odd_marker(data: memoryview, header: JpegHeader) -> int | None:
    """Return a marker that has no place among the coded pixels; None where there is none."""
    for found in _MARKER_IN_SCAN.finditer(bytes(data[header.scan + 2 :])):
        marker = found[1][0]
        if marker == _END[1]:
            return None
        if marker not in _AFTER_SCAN:
            return marker
    return None


def without_harmless(data: bytes, header: JpegHeader, remark: str) -> bytes | None:
    """Return a copy of a JPEG without what a remark of libjpeg's is about.

    Args:
        data: The whole file.
        header: Its header.
        remark: What libjpeg says of it.

    Returns:
        The copy, which has the same pixels; None where the remark is none of the harmless ones.
    """
    for words, cure in _HARMLESS.items():
        if words in remark:
            cured = cure(data, header)
            return None if cured == data else cured
    return None


def _segments(data: memoryview, passed: frozenset[int] = frozenset()) -> Iterator[_Segment]:
    """Yield the segments before the first scan but for some passed over, and that of the scan."""
    at = 2
    last = len(data) - 4
    while at <= last:
        lead, marker, length = _LEAD(data, at)
        if marker in passed and lead == 0xFF and length > 1:
            at += 2 + length
        elif lead != 0xFF or marker == 0xFF:
            at += 1  # any number of 0xFF may stand before a marker; the rest libjpeg skips too
        elif marker in _SKIPPED:
            at += 2
        elif marker in _ENDS:
            return
        else:
            end = at + 2 + max(2, length)
            yield marker, at, end
            if marker == _START_OF_SCAN:
                return
            at = end


def _orientation(segment: memoryview) -> int:
    """Return the orientation that an APP1 segment asks for; 0 where in doubt."""
    if bytes(segment[:6]) != b"Exif\0\0":
        return 1
    tiff = segment[6:]
    order = {b"II": "<", b"MM": ">"}.get(bytes(tiff[:2]))
    if order is None:
        return 0
    try:
        (first,) = struct.unpack_from(order + "I", tiff, 4)
        (num_entries,) = struct.unpack_from(order + "H", tiff, first)
        for entry in range(num_entries):
            tag, kind, num, value = struct.unpack_from(order + "HHIH", tiff, first + 2 + 12 * entry)
            if tag == _ORIENTATION_TAG:
                return int(value) if (kind, num) == (_SHORT, 1) else 0
    except struct.error:
        return 0
    return 1


def _without_zeros(data: bytes, header: JpegHeader) -> bytes:
    end = data.find(_END, header.scan)
    return data if end < 0 else data[:end].rstrip(b"\0") + data[end:]


def _without_junk(data: bytes, _: JpegHeader) -> bytes:
    kept = [data[:2]]
    before, ended = _START, 2
    for marker, start, end in _segments(memoryview(data)):
        if before not in _NO_SAY:
            kept.append(data[ended:start])
        kept.append(data[start:end])
        before, ended = marker, end
    return b"".join((*kept, data[ended:]))


def _with_bytes(
    data: bytes, marker: int, name: bytes, offset: int, new: bytes, *, least_bytes: int
) -> bytes:
    """Return a JPEG with some bytes of a segment that begins with a name replaced.

    A shorter one than libjpeg looks into, of ``least_bytes`` behind its length, is none of these.
    """
    for found, start, end in _segments(memoryview(data)):
        is_long_enough = end - (start + 4) >= least_bytes
        if found == marker and is_long_enough and data.startswith(name, start + 4):
            at = start + 4 + offset
            return data[:at] + new + data[at + len(new) :]
    return data


def _with_known_jfif(data: bytes, _: JpegHeader) -> bytes:
    return _with_bytes(data, _APP0, b"JFIF\0", 5, b"\x01", least_bytes=14)


def _with_known_adobe(data: bytes, header: JpegHeader) -> bytes:
    code = b"\x02" if header.components == 4 else b"\x01"
    return _with_bytes(data, _APP14, b"Adobe", 11, code, least_bytes=12)


def _with_sequential_scan(data: bytes, header: JpegHeader) -> bytes:
    at = header.scan + 5 + 2 * data[header.scan + 4]
    return data[:at] + b"\x00\x3f\x00" + data[at + 3 :]


_HARMLESS: Final = {
    "extraneous bytes before marker 0xd9": _without_zeros,
    "extraneous bytes before marker": _without_junk,
    "unknown JFIF revision": _with_known_jfif,
    "Unknown Adobe color transform code": _with_known_adobe,
    "Invalid SOS parameters for sequential": _with_sequential_scan,
}
