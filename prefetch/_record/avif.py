"""The sizes in an AVIF file: those of its boxes, and those of the AV1 pictures in it.

Both are asked, for they need not be equal: AV1 decoders make room for what the sequence header in
the coded data says, not the boxes around it, and libavif then scales the picture.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeAlias

    Size: TypeAlias = tuple[int, int]
    _Span: TypeAlias = tuple[int, int]

# Boxes that hold others, and how many bytes stand before these.
_INNER: Final = {
    **dict.fromkeys((b"iprp", b"ipco", b"moov", b"trak", b"mdia", b"minf", b"stbl"), 0),
    b"meta": 4,
    b"stsd": 8,
    b"av01": 78,
}
_SEQUENCE_HEADER: Final = 1


def avif_sizes(data: memoryview) -> Iterator[Size]:
    """Yield every (height, width) that an AVIF file says.

    Raises:
        ValueError, IndexError, struct.error: Its boxes end early.
    """
    spans: list[_Span] = []
    inner_data = 0
    for name, body, after in _all_boxes(data, 0, len(data)):
        if name == b"ispe":
            width, height = struct.unpack_from(">II", data, body + 4)
            yield height, width
        elif name == b"av01":
            width, height = struct.unpack_from(">HH", data, body + 24)
            yield height, width
        elif name == b"av1C":
            spans.append((body + 4, after))
        elif name == b"idat":
            inner_data = body
        elif name in (b"stco", b"co64"):
            spans.extend(_chunks(data, body, "I" if name == b"stco" else "Q"))
    for name, body, _ in _all_boxes(data, 0, len(data)):
        if name == b"iloc":
            spans.extend(_extents(data, body, inner_data))
    for start, end in spans:
        yield from _sequence_sizes(data, start, min(end, len(data)))


def boxes(data: memoryview, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    """Yield the boxes of an ISO file: the name, and where the content begins and ends."""
    while at + 8 <= end:
        (length,) = struct.unpack_from(">I", data, at)
        name = bytes(data[at + 4 : at + 8])
        body = at + 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", data, body)
            body += 8
        after = end if length == 0 else min(at + length, end)
        if after < body:
            return
        yield name, body, after
        at = after


def _all_boxes(data: memoryview, at: int, end: int) -> Iterator[tuple[bytes, int, int]]:
    for name, body, after in boxes(data, at, end):
        yield name, body, after
        if name in _INNER:
            yield from _all_boxes(data, body + _INNER[name], after)


def _chunks(data: memoryview, body: int, code: str) -> Iterator[_Span]:
    """Yield where the chunks of a track begin; how long they are is not asked."""
    (num,) = struct.unpack_from(">I", data, body + 4)
    for (start,) in struct.iter_unpack(
        f">{code}", data[body + 8 : body + 8 + num * struct.calcsize(code)]
    ):
        yield start, len(data)


def _extents(data: memoryview, body: int, inner_data: int) -> Iterator[_Span]:
    """Yield where the items of an item location box are."""
    version = data[body]
    sizes = struct.unpack_from(">H", data, body + 4)[0]
    offset_bytes, length_bytes, base_bytes = sizes >> 12, sizes >> 8 & 15, sizes >> 4 & 15
    index_bytes = sizes & 15 if version else 0
    wide = 4 if version == 2 else 2
    at = body + 6

    def take(num_bytes: int) -> int:
        nonlocal at
        at += num_bytes
        if at > len(data):
            raise ValueError("the item location box ends early")
        return int.from_bytes(data[at - num_bytes : at])

    for _ in range(take(wide)):
        take(wide)
        method = take(2) & 15 if version else 0
        take(2)
        base = take(base_bytes) + (inner_data if method == 1 else 0)
        for _ in range(take(2)):
            take(index_bytes)
            start = base + take(offset_bytes)
            length = take(length_bytes)
            yield start, start + length if length else len(data)


def _sequence_sizes(data: memoryview, at: int, end: int) -> Iterator[Size]:
    """Yield the sizes that the sequence headers in a run of OBUs say."""
    while at < end:
        header = data[at]
        at += 2 if header & 4 else 1
        length = end - at
        if header & 2:
            length = shift = 0
            while True:
                byte = data[at]
                at += 1
                length |= (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80 or shift == 56:
                    break
        if header >> 3 & 15 == _SEQUENCE_HEADER:
            yield _sequence_size(bytes(data[at : at + min(length, 256)]))
        at += length


def _sequence_size(header: bytes) -> Size:
    """Return the largest picture of a sequence header (AV1 specification, 5.5.1)."""
    bits = int.from_bytes(header)
    left = 8 * len(header)

    def take(num: int) -> int:
        nonlocal left
        left -= num
        if left < 0:
            raise ValueError("the sequence header ends early")
        return bits >> left & (1 << num) - 1

    take(4)
    if take(1):  # reduced_still_picture_header
        take(5)
    else:
        _skip_timing(take)
    width_bits, height_bits = take(4) + 1, take(4) + 1
    width = take(width_bits) + 1
    return take(height_bits) + 1, width


def _skip_timing(take: Callable[[int], int]) -> None:
    delay_bits = 0
    if take(1):  # timing_info_present_flag
        take(64)
        if take(1):  # equal_picture_interval, and then a number of unary length
            zeros = 0
            while not take(1):
                zeros += 1
            take(zeros)
        if take(1):  # decoder_model_info_present_flag
            delay_bits = take(5) + 1
            take(42)
    has_display_delay = take(1)
    for _ in range(take(5) + 1):
        take(12)
        if take(5) > 7:  # seq_level_idx; a tier follows
            take(1)
        if delay_bits and take(1):
            take(2 * delay_bits + 1)
        if has_display_delay and take(1):
            take(4)
