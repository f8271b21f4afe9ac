"""Write what fuzzing starts from into tests/fuzz/corpus: records of each kind, and a mapped file.

What fuzzing finds is added by hand, as a file of its own, and stays.
"""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from prefetch._record.wire import encode_datum

FOLDER = Path(__file__).parent / "corpus"


_PAGE_BYTES = 256
_LEAF, _LONG_VALUE = 2, 4


def _page(number: int, kind: int, *nodes: bytes, num_pages: int = 1) -> bytes:
    """Return a page as LMDB lays it out, or the first of a long value."""
    if kind == _LONG_VALUE:
        return struct.pack("<QHHI", number, 0, kind, num_pages)
    upper = _PAGE_BYTES
    offsets = []
    for node in nodes:
        upper -= len(node)
        offsets.append(upper)
    head = struct.pack("<QHHHH", number, 0, kind, 16 + 2 * len(nodes), upper)
    head += struct.pack(f"<{len(nodes)}H", *offsets)
    return head.ljust(upper, b"\0") + b"".join(reversed(nodes))


def mapped_file(record: bytes) -> bytes:
    """Return a leaf page with a short and a long value, and the pages of the long one."""
    short = struct.pack("<IHH", len(record), 0, 4) + b"key0" + record
    long = struct.pack("<IHHIQ", 300, 1, 4, 0x3179656B, 1)
    value = (_page(1, _LONG_VALUE, num_pages=2) + bytes(300)).ljust(2 * _PAGE_BYTES, b"\0")
    return _page(0, _LEAF, short, long) + value


def seeds() -> dict[str, bytes]:
    """Return the records by the names of their files."""
    rng = np.random.default_rng(1701)

    def sized(channels: int, height: int, width: int) -> bytes:
        return encode_datum(channels=channels, height=height, width=width)

    floats = rng.normal(size=60).astype(np.float32)
    special = np.array([0, 1 << 31, 0x7F800001, 0xFFC00000, 0x7F800000, 1], np.uint32)
    small = sized(3, 4, 5)
    raw = small + encode_datum(data=rng.bytes(60), label=7)
    packed = b"\x32\xf0\x01" + floats.tobytes()
    return {
        "raw": raw,
        "raw-wide": sized(1, 1, 40) + encode_datum(data=rng.bytes(40)),
        "raw-high": sized(4, 33, 17) + encode_datum(data=rng.bytes(4 * 33 * 17), label=-1),
        "raw-many-channels": sized(20, 2, 2) + encode_datum(data=rng.bytes(80)),
        "floats": small + encode_datum(floats=floats),
        "floats-packed": small + packed,
        "floats-mixed": small
        + b"".join(
            (encode_datum(floats=floats[:20]), b"\x32\x50", floats[20:40].tobytes(), b"\x28\x05")
        )
        + encode_datum(floats=floats[40:]),
        "floats-special": sized(1, 2, 3) + encode_datum(floats=special.view(np.float32)),
        "both": raw + packed,
        "encoded": encode_datum(data=b"\xff\xd8\xff", encoded=True, label=3),
        "encoded-empty": encode_datum(encoded=True),
        "fields-reversed": encode_datum(label=7, data=rng.bytes(60)) + small,
        "field-repeated": raw + encode_datum(data=rng.bytes(60), label=8),
        "unknown": raw + b"\x48\x96\x01\x49" + bytes(8) + b"\x4a\x03abc\x4d" + bytes(4),
        "groups": b"\x4b\x08\x07\x53\x22\x01z\x54\x4c" + raw,
        "groups-deep": b"\x4b" * 100 + b"\x4c" * 100,
        "groups-too-deep": b"\x4b" * 101 + b"\x4c" * 101,
        "group-unended": b"\x4b\x08\x01",
        "group-of-another": b"\x4b\x54",
        "group-unbegun": b"\x0c\x00",
        "group-cut-in-fixed": b"\x4b\x4d\x00",
        "group-field-0": raw + b"\x4b\x00\x05\x4c",
        "floats-packed-odd": small + b"\x32\x03abc",
        "floats-packed-empty": small + b"\x32\x00" + packed,
        "floats-cut": (small + encode_datum(floats=floats))[:-2],
        "long-integers": b"\xa8\x80\x80\x80\x00\x85\x80\x80\x80\x10" + raw,
        "long-bool": raw + b"\x38" + b"\x80" * 9 + b"\x02",
        "hwc": sized(17, 17, 3) + encode_datum(data=rng.bytes(867)),
        "sizes-huge": sized(2**31 - 1, 2**31 - 1, 2**31 - 1) + encode_datum(data=b"x"),
        "sizes-negative": sized(-3, -4, 5) + encode_datum(data=rng.bytes(60)),
        "integer-endless": b"\x28" + b"\xff" * 10 + b"\x01",
        "tag-endless": b"\x88\x80\x80\x80\x80\x80\x01",
        "tag-33-bits": b"\x88\x80\x80\x80\x10\x05",
        "tag-field-0": b"\x00\x05",
        "tag-wire-type-6": raw + b"\x0e\x01",
        "length-32-bits": small + b"\x22\xff\xff\xff\xff\x08",
        "length-huge": small + b"\x22\xff\xff\xff\xff\x07",
        "mapped-file": mapped_file(raw),
        "cut": raw[:40],
        "empty": b"",
    }


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, record in seeds().items():
        (FOLDER / name).write_bytes(record)
