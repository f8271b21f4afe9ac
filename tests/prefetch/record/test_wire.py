"""Datum records are read in place, and written, as protobuf reads and writes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from prefetch._record.wire import DatumError, DatumReason, encode_datum, parse_datum
from prefetch.caffe import Datum

if TYPE_CHECKING:
    from collections.abc import Callable

    from prefetch._record.datum_view import DatumView

MINUS_ONE = b"\xff" * 9 + b"\x01"


def parse(record: bytes) -> DatumView:
    return parse_datum(memoryview(record))


def payload(record: bytes) -> bytes | None:
    data = parse(record).data
    return None if data is None else bytes(data)


def reason(record: bytes) -> tuple[DatumReason, tuple[int, ...]]:
    with pytest.raises(DatumError) as caught:
        parse(record)
    return caught.value.reason, caught.value.numbers


def test_a_raw_image_is_read_whole() -> None:
    record = encode_datum(channels=3, height=4, width=5, data=bytes(60), label=7)
    datum = parse(record)
    assert (datum.channels, datum.height, datum.width) == (3, 4, 5)
    assert (datum.label, datum.encoded) == (7, False)
    assert payload(record) == bytes(60)
    assert datum.floats.shape == (0,)


def test_an_empty_record_is_a_datum_without_fields() -> None:
    datum = parse(b"")
    assert (datum.channels, datum.height, datum.width, datum.label) == (0, 0, 0, 0)
    assert datum.data is None


def test_empty_data_is_not_absent_data() -> None:
    assert payload(b"\x22\x00") == b""
    assert payload(b"\x08\x01") is None


def test_the_payload_is_the_records_own_memory() -> None:
    record = bytearray(encode_datum(channels=1, height=1, width=3, data=b"abc", label=0))
    datum = parse_datum(memoryview(record))
    record[record.index(b"abc")] = ord("x")
    assert datum.data is not None
    assert bytes(datum.data) == b"xbc"


def test_single_floats_in_one_run_are_the_records_own_memory() -> None:
    record = bytearray(encode_datum(floats=[1.0, 2.0, 3.0]))
    datum = parse_datum(memoryview(record))
    record[1:5] = np.float32(8).tobytes()
    assert datum.floats.tolist() == [8.0, 2.0, 3.0]


def test_packed_floats_are_the_records_own_memory() -> None:
    record = bytearray(b"\x32\x08" + np.array([1, 2], "<f4").tobytes())
    datum = parse_datum(memoryview(record))
    record[2:6] = np.float32(8).tobytes()
    assert datum.floats.tolist() == [8.0, 2.0]


@pytest.mark.parametrize("num_floats", [1, 2, 255, 256, 257, 258, 4352, 4353, 4354, 9000])
def test_a_run_of_single_floats_is_read_to_its_end(num_floats: int) -> None:
    values = np.arange(num_floats, dtype=np.float32)
    datum = parse(encode_datum(floats=values, label=5) + b"\x28\x06")
    np.testing.assert_array_equal(datum.floats, values)
    assert datum.label == 6


def test_packed_and_single_floats_are_joined_in_their_order() -> None:
    one, two, three, four = (np.float32(number).tobytes() for number in (1, 2, 3, 4))
    record = b"\x35" + one + b"\x32\x08" + two + three + b"\x28\x09\x35" + four
    assert parse(record).floats.tolist() == [1.0, 2.0, 3.0, 4.0]


def test_the_last_of_a_repeated_field_wins() -> None:
    record = b"\x22\x02ab\x28\x01\x22\x01c\x28\x02"
    assert payload(record) == b"c"
    assert parse(record).label == 2


def test_fields_may_come_in_any_order() -> None:
    record = b"\x38\x01\x28\x05\x22\x01a\x18\x03\x10\x02\x08\x01"
    datum = parse(record)
    assert (datum.channels, datum.height, datum.width) == (1, 2, 3)
    assert (datum.label, datum.encoded, payload(record)) == (5, True, b"a")


def test_a_negative_label_takes_ten_bytes() -> None:
    assert parse(b"\x28" + MINUS_ONE).label == -1


@pytest.mark.parametrize("label", [127, 128, 16383, 16384, 2**31 - 1, -(2**31), -2])
def test_a_label_of_any_length_is_read(label: int) -> None:
    assert parse(Datum(label=label).SerializeToString()).label == label


def test_integers_are_cut_to_32_bits() -> None:
    assert parse(b"\x28\x85\x80\x80\x80\x10").label == 5
    assert parse(b"\x28\x80\x80\x80\x80\x08").label == -(2**31)


def test_encoded_is_true_where_any_of_64_bits_is_set() -> None:
    assert parse(b"\x38\x80\x80\x80\x80\x80\x40").encoded
    assert not parse(b"\x38\x80\x00").encoded
    assert not parse(b"\x38" + b"\x80" * 9 + b"\x02").encoded


def test_a_tag_may_be_written_longer_than_it_need_be() -> None:
    assert parse(b"\xa8\x80\x80\x80\x00\x05").label == 5
    assert payload(b"\xa2\x80\x00\x01a") == b"a"


def test_unknown_fields_of_every_kind_are_skipped() -> None:
    unknown = b"\x48\x96\x01" + b"\x49" + bytes(8) + b"\x4a\x03abc" + b"\x4d" + bytes(4)
    group = b"\x4b\x08\x07\x53\x22\x01z\x54\x4c"
    record = unknown + b"\x28\x05" + group + b"\x22\x01a" + unknown
    assert payload(record) == b"a"
    assert (parse(record).label, parse(record).channels) == (5, 0)


def test_a_known_field_of_another_wire_type_is_unknown() -> None:
    datum = parse(b"\x28\x05" + b"\x2a\x01z" + b"\x20\x07" + b"\x31" + bytes(8) + b"\x0b\x0c")
    assert (datum.label, datum.data, datum.floats.size) == (5, None, 0)


def test_groups_nest_a_hundred_deep() -> None:
    assert parse(b"\x4b" * 100 + b"\x4c" * 100 + b"\x28\x05").label == 5
    assert reason(b"\x4b" * 101 + b"\x4c" * 101) == (DatumReason.GROUPS_TOO_DEEP, (100,))


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        pytest.param(b"\x28", (DatumReason.TRUNCATED, (0, 1)), id="tag without value"),
        pytest.param(b"\x08\x01\x28\x80", (DatumReason.TRUNCATED, (2, 4)), id="integer"),
        pytest.param(b"\x88", (DatumReason.TRUNCATED, (0, 1)), id="tag"),
        pytest.param(b"\x35\x00\x00", (DatumReason.TRUNCATED, (0, 3)), id="float"),
        pytest.param(
            b"\x35" + bytes(4) + b"\x35\x00", (DatumReason.TRUNCATED, (5, 7)), id="last float"
        ),
        pytest.param(b"\x4d\x00\x00", (DatumReason.TRUNCATED, (0, 3)), id="unknown fixed32"),
        pytest.param(b"\x4b\x08\x01", (DatumReason.TRUNCATED, (0, 3)), id="group"),
        pytest.param(b"\x22\x05abc", (DatumReason.LENGTH_PAST_END, (0, 5, 3)), id="data"),
        pytest.param(b"\x4a\x05abc", (DatumReason.LENGTH_PAST_END, (1, 5, 3)), id="unknown"),
        pytest.param(b"\x32\x08abcd", (DatumReason.LENGTH_PAST_END, (1, 8, 4)), id="packed"),
        pytest.param(b"\x32\x03abc", (DatumReason.BAD_PACKED_FLOATS, (2, 3)), id="packed size"),
        pytest.param(
            b"\x28" + b"\xff" * 10 + b"\x01", (DatumReason.VARINT_TOO_LONG, (1,)), id="varint"
        ),
        pytest.param(
            b"\x22\x81\x80\x80\x80\x80\x00a", (DatumReason.VARINT_TOO_LONG, (1,)), id="length"
        ),
        pytest.param(b"\x00\x05", (DatumReason.BAD_TAG, (0, 0)), id="field 0"),
        pytest.param(b"\x28\x05\x0e\x01", (DatumReason.BAD_TAG, (2, 14)), id="wire type 6"),
        pytest.param(b"\x88\x80\x80\x80\x10\x05", (DatumReason.BAD_TAG, (0, 0x88)), id="33 bits"),
        pytest.param(b"\x0c\x00", (DatumReason.BAD_GROUP, (0,)), id="end of no group"),
        pytest.param(b"\x4b\x54", (DatumReason.BAD_GROUP, (1,)), id="end of another group"),
        pytest.param(b"\x89PNG\r\n\x1a\n", (DatumReason.TRUNCATED, (0, 8)), id="a PNG file"),
        pytest.param(b"\xff\xd8\xff\xe0\x00", (DatumReason.BAD_TAG, (0, 0xFF)), id="a JPEG file"),
    ],
)
def test_bytes_that_are_no_datum_are_refused_with_a_reason(
    record: bytes, expected: tuple[DatumReason, tuple[int, ...]]
) -> None:
    assert reason(record) == expected


def test_a_record_cut_anywhere_is_refused_or_is_the_part_before_the_cut() -> None:
    record = encode_datum(channels=3, height=300, width=2, data=b"pixels", label=-3, floats=[1.5])
    fields = [2, 5, 7, 15, 26, 31]
    for cut in range(len(record)):
        if cut in (0, *fields):
            parse(record[:cut])
        else:
            assert reason(record[:cut])[0] in (DatumReason.TRUNCATED, DatumReason.LENGTH_PAST_END)


def test_nothing_past_the_view_is_read() -> None:
    record = encode_datum(data=b"abcdef", label=3)
    with pytest.raises(DatumError):
        parse_datum(memoryview(record)[:5])


def test_the_message_says_where_and_what() -> None:
    with pytest.raises(DatumError, match=r"at byte 0 says 5 bytes, and 3 bytes .* are left"):
        parse(b"\x22\x05abc")


def test_reasons_keep_their_numbers() -> None:
    assert {member.name: member.value for member in DatumReason} == {
        "TRUNCATED": 1,
        "VARINT_TOO_LONG": 2,
        "BAD_TAG": 3,
        "LENGTH_PAST_END": 4,
        "BAD_PACKED_FLOATS": 5,
        "BAD_GROUP": 6,
        "GROUPS_TOO_DEEP": 7,
    }


def test_a_field_that_is_not_given_is_not_written() -> None:
    assert encode_datum() == b""
    assert encode_datum(label=0) == b"\x28\x00"
    assert encode_datum(data=b"", encoded=False) == b"\x22\x00\x38\x00"


def test_any_contiguous_buffer_is_written_as_its_bytes() -> None:
    pixels = np.arange(6, dtype=np.uint8).reshape(1, 2, 3)
    assert encode_datum(data=pixels.data) == encode_datum(data=pixels.tobytes())


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_an_integer_that_does_not_fit_is_refused(value: int) -> None:
    encoders: dict[str, Callable[[], bytes]] = {
        "channels": lambda: encode_datum(channels=value),
        "height": lambda: encode_datum(height=value),
        "width": lambda: encode_datum(width=value),
        "label": lambda: encode_datum(label=value),
    }
    for name, encode in encoders.items():
        with pytest.raises(ValueError, match=f"{name} must fit int32, got {value}"):
            encode()


def test_floats_of_two_dimensions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"not shape \(2, 3\)"):
        encode_datum(floats=np.zeros((2, 3), np.float32))
