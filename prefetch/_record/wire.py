"""Datum records, read in place and written, without protobuf.

Protobuf copies every payload and holds the GIL meanwhile: 45 to 145 us for a record of 196 kB,
where copying its pixels to their destination takes 12. ``parse_datum`` walks the wire format over
the database's own memory instead and hands out views of it: 2 to 3 us for any size.

Invariants:

- Nothing outside of the record is read, even if it is damaged or hostile.
- What protobuf 7 accepts is accepted with equal values, what it refuses is refused: fields in any
  order, packed and unpacked floats, the last of a repeated scalar, unknown fields and groups,
  integers of more than 32 bits cut to 32, a known field of another wire type taken as unknown.
  (Protobuf 5 and 6 differ in that they take lengths written in more than 5 bytes, and refuse a
  field number 0 inside of an unknown group. Nothing writes either.)
- Every view ends with the record's own memory. No view is valid after its transaction.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from prefetch._record.datum_view import DatumView

if TYPE_CHECKING:
    from collections.abc import Sequence

_VARINT: Final = 0
_FIXED64: Final = 1
_DELIMITED: Final = 2
_GROUP: Final = 3
_END_GROUP: Final = 4
_FIXED32: Final = 5

# Protobuf gives up on deeper nesting, so that a hostile message cannot exhaust the stack.
_MAX_GROUPS: Final = 100

_DATA_TAG: Final = 0x22
_FLOAT_TAG: Final = 0x35
_PACKED_TAG: Final = 0x32
_ENCODED_TAG: Final = 0x38
# The tags that an integer follows: a field's value, or the length of `data`.
_INTEGER_TAGS: Final = frozenset((0x08, 0x10, 0x18, _DATA_TAG, 0x28, _ENCODED_TAG))

_ABSENT: Final = 1 << 40  # no int32, which is what a label is

_FLOAT: Final = np.dtype("<f4")
_NO_FLOATS: Final = np.empty(0, _FLOAT)
_NO_FLOATS.flags.writeable = False


class DatumReason(enum.IntEnum):
    """Why bytes are no Datum. The numbers are stable.

    What ``DatumError.numbers`` holds stands behind each.
    """

    TRUNCATED = 1  # (offset of the field that does not end, bytes of the record)
    VARINT_TOO_LONG = 2  # (offset of the integer)
    BAD_TAG = 3  # (offset of the tag, its first byte)
    LENGTH_PAST_END = 4  # (offset of the length, the length, bytes that are left)
    BAD_PACKED_FLOATS = 5  # (offset of the first float, length in bytes)
    BAD_GROUP = 6  # (offset of the end-group tag that matches no group)
    GROUPS_TOO_DEEP = 7  # (offset of the start-group tag)


_MESSAGES: Final = {
    DatumReason.TRUNCATED: "the field at byte {0} is cut off by the end of the record ({1} bytes)",
    DatumReason.VARINT_TOO_LONG: "the integer at byte {0} has more bytes than any integer",
    DatumReason.BAD_TAG: "byte {0} (value {1}) starts no field",
    DatumReason.LENGTH_PAST_END: (
        "the length at byte {0} says {1} bytes, and {2} bytes of the record are left"
    ),
    DatumReason.BAD_PACKED_FLOATS: (
        "the packed floats at byte {0} take {1} bytes, which is no multiple of 4"
    ),
    DatumReason.BAD_GROUP: "the tag at byte {0} ends a group that was not begun",
    DatumReason.GROUPS_TOO_DEEP: "groups are nested more than 100 deep at byte {0}",
}


class DatumError(ValueError):
    """Raised for bytes that are no Datum: truncated, damaged, or something else altogether.

    Attributes:
        reason: What is wrong.
        numbers: Where, and with what; what they mean stands at each member of DatumReason.
    """

    def __init__(self, reason: DatumReason, *numbers: int) -> None:
        self.reason = reason
        self.numbers = numbers
        super().__init__(_MESSAGES[reason].format(*numbers))


def parse_datum(record: memoryview) -> DatumView:
    """Read a Datum in place.

    Thread-safe; never blocks; holds the GIL for 2 to 3 us.

    Args:
        record: (n,) bytes, format ``B``, C-contiguous.

    Returns:
        The record's fields; ``data`` and ``floats`` are valid as long as the memory of ``record``.

    Raises:
        DatumError: The bytes are no Datum.
    """
    integers = [0, 0, 0, 0, 0, _ABSENT, 0, 0]
    data: memoryview | None = None
    floats: list[npt.NDArray[np.float32]] = []
    end = len(record)
    pos = start = 0
    try:
        while pos < end:
            start = pos
            tag = record[pos]
            pos += 1
            if tag >= 0x80:
                tag, pos = _long_tag(record, start)
            if tag in _INTEGER_TAGS:
                value = record[pos]
                pos += 1
                if value >= 0x80:
                    value, pos = _long_integer(record, pos - 1, tag)
                if tag != _DATA_TAG:
                    integers[tag >> 3] = value
                elif value > end - pos:
                    raise DatumError(DatumReason.LENGTH_PAST_END, start, value, end - pos)
                else:
                    data = record[pos : pos + value]
                    pos += value
            elif tag == _FLOAT_TAG:
                run = _unpacked_floats(record, start, pos)
                floats.append(run)
                pos += 5 * run.size - 1
            elif tag == _PACKED_TAG:
                packed, pos = _packed_floats(record, pos)
                floats.append(packed)
            else:
                pos = _skip_field(record, start, tag, pos)
    except IndexError:
        raise DatumError(DatumReason.TRUNCATED, start, end) from None
    _, channels, height, width, _, label, _, encoded = integers
    has_label = label != _ABSENT
    label *= has_label  # 0 where it is absent
    return DatumView(channels, height, width, label, encoded != 0, data, _join(floats), has_label)


def encode_datum(
    *,
    channels: int | None = None,
    height: int | None = None,
    width: int | None = None,
    data: bytes | bytearray | memoryview | None = None,
    label: int | None = None,
    floats: npt.NDArray[np.float32] | Sequence[float] | None = None,
    encoded: bool | None = None,
) -> bytes:
    """Return the bytes that protobuf writes for the same Datum.

    Args:
        channels: int32; None leaves the field out, as for all of them.
        height: int32.
        width: int32.
        data: The payload, C-contiguous; for raw pixels uint8 in the order channel, row, column.
        label: int32.
        floats: Values of float_data, (n,), stored as float32 and unpacked.
        encoded: Whether ``data`` is an image file.

    Raises:
        ValueError: An integer does not fit int32, or ``floats`` has not one dimension.
    """
    parts: list[bytes | memoryview] = []
    for tag, name, value in ((0x08, "channels", channels), (0x10, "height", height)):
        _write_int32(parts, tag, name, value)
    _write_int32(parts, 0x18, "width", width)
    if data is not None:
        payload = memoryview(data).cast("B")
        parts += (bytes((_DATA_TAG,)), _varint(payload.nbytes), payload)
    _write_int32(parts, 0x28, "label", label)
    if floats is not None:
        values = np.asarray(floats, _FLOAT)
        if values.ndim != 1:
            raise ValueError(f"floats must have one dimension, not shape {values.shape}")
        wire = np.empty(values.size, np.dtype([("tag", np.uint8), ("value", _FLOAT)]))
        wire["tag"] = _FLOAT_TAG
        wire["value"] = values
        parts.append(wire.tobytes())
    if encoded is not None:
        parts.append(b"\x38\x01" if encoded else b"\x38\x00")
    return b"".join(parts)


def _write_int32(parts: list[bytes | memoryview], tag: int, name: str, value: int | None) -> None:
    if value is None:
        return
    if not -(2**31) <= value < 2**31:
        raise ValueError(f"{name} must fit int32, got {value}")
    # A negative number takes ten bytes: protobuf extends its sign to 64 bits.
    parts += (bytes((tag,)), _varint(value & 0xFFFF_FFFF_FFFF_FFFF))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _join(runs: list[npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
    if not runs:
        return _NO_FLOATS
    return runs[0] if len(runs) == 1 else np.concatenate(runs)


def _long_integer(record: memoryview, start: int, tag: int) -> tuple[int, int]:
    """Return the value or length at ``start`` that ``tag`` announces, and the position behind it.

    For an integer that takes more than one byte. Values are cut to int32, as protobuf does, save
    that of the bool, which is true where any of 64 bits is set.
    """
    second = record[start + 1]
    if second < 0x80:
        return record[start] + (second << 7) - 0x80, start + 2
    if tag == _DATA_TAG:
        return _length(record, start)
    value, pos = _varint64(record, start)
    if tag != _ENCODED_TAG:
        value = ((value + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000
    return value, pos


def _varint64(record: memoryview, start: int) -> tuple[int, int]:
    """Return the integer at ``start``, cut to 64 bits, and the position behind it."""
    value = 0
    for count in range(10):
        byte = record[start + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, start + count + 1
    raise DatumError(DatumReason.VARINT_TOO_LONG, start)


def _long_tag(record: memoryview, start: int) -> tuple[int, int]:
    """Return the tag at ``start``, at most 5 bytes and 32 bits, and the position behind it."""
    value, pos = _varint35(record, start)
    if value > 0xFFFF_FFFF:
        raise DatumError(DatumReason.BAD_TAG, start, record[start])
    return value, pos


def _length(record: memoryview, start: int) -> tuple[int, int]:
    """Return the length at ``start``, at most 5 bytes and 31 bits, and the position behind it."""
    value, pos = _varint35(record, start)
    if value > 0x7FFF_FFFF:
        raise DatumError(DatumReason.LENGTH_PAST_END, start, value, len(record) - pos)
    return value, pos


def _varint35(record: memoryview, start: int) -> tuple[int, int]:
    """Return the integer at ``start``, of 5 bytes at most, and the position behind it."""
    value = 0
    for count in range(5):
        byte = record[start + count]
        value |= (byte & 0x7F) << (7 * count)
        if byte < 0x80:
            return value, start + count + 1
    raise DatumError(DatumReason.VARINT_TOO_LONG, start)


def _read_delimited(record: memoryview, start: int) -> tuple[int, int]:
    """Return where the payload whose length stands at ``start`` begins and ends."""
    length, begin = _length(record, start)
    if length > len(record) - begin:
        raise DatumError(DatumReason.LENGTH_PAST_END, start, length, len(record) - begin)
    return begin, begin + length


def _packed_floats(record: memoryview, start: int) -> tuple[npt.NDArray[np.float32], int]:
    """Return the floats whose length in bytes stands at ``start``, and the position behind them."""
    begin, end = _read_delimited(record, start)
    if (end - begin) % 4:
        raise DatumError(DatumReason.BAD_PACKED_FLOATS, begin, end - begin)
    return np.frombuffer(record[begin:end], _FLOAT), end


def _unpacked_floats(record: memoryview, start: int, pos: int) -> npt.NDArray[np.float32]:
    """Return the run of single floats whose first tag is at ``start`` and ends at ``pos``.

    All of the run but its first may only have the tag in its one-byte form.
    """
    most = (len(record) - pos + 1) // 5
    if most == 0:
        raise DatumError(DatumReason.TRUNCATED, start, len(record))
    tags = np.frombuffer(record, np.uint8, 5 * most, pos - 1)[::5]
    count = 1
    window = 256
    # Windows that grow keep many short runs linear in the record's size.
    while count < most:
        others = tags[count : count + window] != _FLOAT_TAG
        if others.any():
            count += int(others.argmax())
            break
        count += others.size
        window *= 16
    return np.ndarray((count,), _FLOAT, record, offset=pos, strides=(5,))


def _skip_field(record: memoryview, start: int, tag: int, pos: int) -> int:
    """Return the position behind an unknown field whose tag, at ``start``, ends at ``pos``."""
    if tag < 8:
        raise DatumError(DatumReason.BAD_TAG, start, record[start])
    if tag & 7 == _GROUP:
        return _skip_group(record, start, tag, pos)
    if tag & 7 == _END_GROUP:
        raise DatumError(DatumReason.BAD_GROUP, start)
    return _skip_value(record, start, tag, pos)


def _skip_value(record: memoryview, start: int, tag: int, pos: int) -> int:
    """Return the position behind the value of a field that is no group."""
    wire_type = tag & 7
    if wire_type == _VARINT:
        return _varint64(record, pos)[1]
    if wire_type == _DELIMITED:
        return _read_delimited(record, pos)[1]
    if wire_type not in (_FIXED32, _FIXED64):
        raise DatumError(DatumReason.BAD_TAG, start, record[start])
    pos += 4 if wire_type == _FIXED32 else 8
    if pos > len(record):
        raise DatumError(DatumReason.TRUNCATED, start, len(record))
    return pos


def _skip_group(record: memoryview, start: int, tag: int, pos: int) -> int:
    """Return the position behind the group that ``tag`` begins, with all that is nested in it."""
    open_groups = [tag]
    while open_groups:
        start = pos
        tag, pos = _long_tag(record, pos)
        wire_type = tag & 7
        if wire_type == _GROUP:
            if len(open_groups) == _MAX_GROUPS:
                raise DatumError(DatumReason.GROUPS_TOO_DEEP, start)
            open_groups.append(tag)
        elif wire_type == _END_GROUP:
            if tag != open_groups.pop() + 1:
                raise DatumError(DatumReason.BAD_GROUP, start)
        else:
            pos = _skip_value(record, start, tag, pos)
    return pos
