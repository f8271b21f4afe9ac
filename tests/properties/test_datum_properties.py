"""The Datum parser and encoder agree with protobuf on every message and on every mutation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from google.protobuf import __version__ as protobuf_version
from google.protobuf.message import DecodeError
from hypothesis import example, given
from hypothesis import strategies as st

from prefetch._record.wire import DatumError, encode_datum, parse_datum
from prefetch.caffe import Datum

if TYPE_CHECKING:
    import numpy.typing as npt

as_protobuf_7 = pytest.mark.skipif(
    int(protobuf_version.partition(".")[0]) < 7,
    reason="before 7, protobuf takes lengths of more than 5 bytes and no field 0 inside of groups",
)

int32s = st.integers(-(2**31), 2**31 - 1)
float32s = st.floats(width=32, allow_nan=False)


@st.composite
def messages(draw: st.DrawFn) -> Datum:
    datum = Datum()
    for name in ("channels", "height", "width", "label"):
        if draw(st.booleans()):
            setattr(datum, name, draw(int32s))
    if draw(st.booleans()):
        datum.data = draw(st.binary(max_size=300))
    if draw(st.booleans()):
        datum.encoded = draw(st.booleans())
    datum.float_data.extend(draw(st.lists(float32s, max_size=20)))
    return datum


@st.composite
def wire_fields(draw: st.DrawFn) -> bytes:
    """Draw a field as wire bytes: known or not, of a fitting wire type or not, sound or not."""
    number = draw(st.one_of(st.integers(0, 9), st.just(300)))
    wire_type = draw(st.integers(0, 7))
    tag = number << 3 | wire_type
    head = bytearray()
    while tag >= 0x80:
        head.append(tag & 0x7F | 0x80)
        tag >>= 7
    head.append(tag)
    body = draw(
        st.one_of(
            st.binary(max_size=12),
            st.binary(max_size=12).map(lambda payload: bytes((len(payload),)) + payload),
            st.integers(0, 2**64 - 1).map(lambda value: value.to_bytes(8, "little")),
            st.lists(st.integers(0x80, 0xFF), max_size=10).map(lambda high: bytes((*high, 0x01))),
            st.just(b"\x00\x00\x80\x3f"),
        )
    )
    return bytes(head) + body


@st.composite
def mutations(draw: st.DrawFn) -> bytes:
    record = bytearray(draw(messages()).SerializeToString())
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(record)))
        match draw(st.sampled_from(["cut", "put", "drop", "change"])):
            case "cut":
                del record[at:]
            case "put":
                record[at:at] = draw(wire_fields())
            case "drop":
                del record[at : at + 1]
            case _:
                record[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
    return bytes(record)


def assert_read_alike(record: bytes) -> None:
    """Assert that protobuf and the parser take a record alike: both refuse it, or read the same."""
    expected = Datum()
    try:
        expected.ParseFromString(record)
    except DecodeError:
        expected_fields = None
    else:
        expected_fields = _fields(expected)
    try:
        datum = parse_datum(memoryview(record))
    except DatumError:
        fields = None
    else:
        fields = (
            *(datum.channels, datum.height, datum.width, datum.label, datum.encoded),
            None if datum.data is None else bytes(datum.data),
            _bytes_of(datum.floats),
        )
    assert fields == expected_fields


def _fields(datum: Datum) -> tuple[object, ...]:
    return (
        *(datum.channels, datum.height, datum.width, datum.label, datum.encoded),
        datum.data if datum.HasField("data") else None,
        _bytes_of(np.array(datum.float_data, "<f4")),
    )


def _bytes_of(floats: npt.NDArray[np.float32]) -> bytes:
    """Return the bits of floats, with one NaN for all: Python's floats do not keep its payload."""
    return np.where(np.isnan(floats), np.float32(np.nan), floats).tobytes()


@given(messages())
def test_what_protobuf_writes_is_read_as_protobuf_reads_it(datum: Datum) -> None:
    assert_read_alike(datum.SerializeToString())


@given(messages())
def test_what_is_written_is_what_protobuf_writes(datum: Datum) -> None:
    written = encode_datum(
        channels=datum.channels if datum.HasField("channels") else None,
        height=datum.height if datum.HasField("height") else None,
        width=datum.width if datum.HasField("width") else None,
        data=datum.data if datum.HasField("data") else None,
        label=datum.label if datum.HasField("label") else None,
        floats=list(datum.float_data),
        encoded=datum.encoded if datum.HasField("encoded") else None,
    )
    assert written == datum.SerializeToString(deterministic=True)


@as_protobuf_7
@given(st.lists(wire_fields(), max_size=6).map(b"".join))
@example(b"\x4b\x00\x05\x4c")  # field 0 inside of an unknown group
@example(b"\x38" + b"\x80" * 9 + b"\x02")  # a bool of 65 bits
@example(b"\x35\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")  # a float that looks like a varint
def test_any_fields_are_taken_as_protobuf_takes_them(record: bytes) -> None:
    assert_read_alike(record)


@as_protobuf_7
@given(mutations())
def test_a_mutated_record_is_taken_as_protobuf_takes_it(record: bytes) -> None:
    assert_read_alike(record)


@as_protobuf_7
@given(st.binary(max_size=60))
def test_any_bytes_are_taken_as_protobuf_takes_them(record: bytes) -> None:
    assert_read_alike(record)
