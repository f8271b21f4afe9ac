from __future__ import annotations

import pytest

from prefetch._record.faults import BadRecordError, Fault, Reason
from prefetch._record.wire import DatumReason

MESSAGES = {
    Reason.TRUNCATED: (
        (12, 40),
        (
            "the field at byte 12 is cut off by the end of the record (40 bytes): the record is "
            "damaged, or no Datum"
        ),
    ),
    Reason.VARINT_TOO_LONG: (
        (3,),
        "the integer at byte 3 has more bytes than any integer: the record is damaged, or no Datum",
    ),
    Reason.BAD_TAG: (
        (0, 255),
        "byte 0 (value 255) starts no field: the record is damaged, or no Datum",
    ),
    Reason.LENGTH_PAST_END: (
        (7, 700000, 16),
        (
            "the length at byte 7 says 700000 bytes, and 16 bytes of the record are left: the "
            "record was cut, is damaged, or is no Datum"
        ),
    ),
    Reason.BAD_PACKED_FLOATS: (
        (9, 7),
        (
            "the packed float_data at byte 9 takes 7 bytes, which is no multiple of 4: the "
            "record is damaged"
        ),
    ),
    Reason.BAD_GROUP: (
        (5,),
        "the tag at byte 5 ends a group that was not begun: the record is damaged, or no Datum",
    ),
    Reason.GROUPS_TOO_DEEP: (
        (100,),
        "groups are nested more than 100 deep at byte 100: the record is damaged, or no Datum",
    ),
    Reason.NO_PIXELS: (
        (),
        (
            "neither data nor float_data holds anything, and a record needs one of them; an "
            "AnnotatedDatum, as SSD writes them, has its Datum inside: store that by itself"
        ),
    ),
    Reason.BAD_DIMENSIONS: (
        (0, -1, 5),
        (
            "channels x height x width is 0 x -1 x 5, and each must be at least 1; a record "
            "that holds an encoded image needs encoded: true instead"
        ),
    ),
    Reason.DATA_SHORT: (
        (768, 3, 16, 32),
        (
            "the data has 768 bytes, but 3 x 16 x 32 (channels x height x width) needs 1536 "
            "bytes: the record was cut, or its sizes are not those of its data"
        ),
    ),
    Reason.DATA_LONG: (
        (2000, 3, 16, 32),
        (
            "the data has 2000 bytes, but 3 x 16 x 32 (channels x height x width) takes only "
            "1536 bytes: the sizes are not those of the data"
        ),
    ),
    Reason.FLOATS_SHORT: (
        (768, 3, 16, 32),
        (
            "float_data has 768 values, but 3 x 16 x 32 (channels x height x width) needs 1536 "
            "values: the record was cut, or its sizes are not those of its data"
        ),
    ),
    Reason.FLOATS_LONG: (
        (2000, 3, 16, 32),
        (
            "float_data has 2000 values, but 3 x 16 x 32 (channels x height x width) takes only "
            "1536 values: the sizes are not those of the data"
        ),
    ),
    Reason.LOOKS_HWC: (
        (240, 320, 3),
        (
            "channels x height x width is 240 x 320 x 3, which looks like height x width x "
            "channels (HWC): transpose the pixels to channels x height x width and write the "
            "record again"
        ),
    ),
    Reason.CHANNELS_DIFFER: (
        (1, 20, 30, 3),
        (
            "the record is 1 x 20 x 30 (channels x height x width), but the number of channels "
            "of its batch is 3; force_color or force_gray makes encoded images of both kinds alike"
        ),
    ),
    Reason.SIZE_DIFFERS: (
        (3, 20, 30, 3, 40, 50),
        (
            "the record is 3 x 20 x 30 (channels x height x width), but its batch is of "
            "3 x 40 x 50; set crop_size, resize or random_resized_crop, or resize the images when "
            "the database is made"
        ),
    ),
    Reason.LABEL_OUTSIDE: (
        (10, 10, 9),
        (
            "the label is 10, and with num_classes 10 labels one_hot takes 0 to 9; raise "
            "num_classes, or give the record another label"
        ),
    ),
    Reason.ENCODED_EMPTY: (
        (),
        "encoded is true, but the data is empty; write the image file's bytes there",
    ),
    Reason.UNDECODABLE: (
        (700000,),
        (
            "the data (700000 bytes) cannot be decoded as an image; it is damaged, of no known "
            "format, or not encoded at all"
        ),
    ),
    Reason.IMAGE_CUT: (
        (1234,),
        (
            "the JPEG ends before its end marker, after 1234 bytes: it was cut, or its end was "
            "written over, so that pixels may be missing; write the whole file"
        ),
    ),
    Reason.IMAGE_CORRUPT: (
        (1234,),
        (
            "the JPEG (1234 bytes) is damaged or malformed, so that pixels of it may be wrong; "
            "write it again from the original"
        ),
    ),
    Reason.IMAGE_DEPTH: (
        (16,),
        (
            "the image has 16 bits a channel, and 8 are expected; force_color or force_gray "
            "reduces it, or convert it to 8 bits"
        ),
    ),
    Reason.IMAGE_TOO_LARGE: (
        (65535, 65535, 1000000, 35),
        (
            "the image says that it is 65535 x 65535 pixels (height x width), and at most "
            "1000000 pixels are decoded of its 35 bytes: it is damaged, or made to exhaust memory; "
            "where it is sound, raise max_pixels_per_byte"
        ),
    ),
    Reason.RESIZED_TOO_LARGE: (
        (1, 50000, 256, 268435456),
        (
            "the image is 1 x 50000 pixels (height x width), and would have more than 268435456 "
            "with its shorter side made 256 pixels long; use a smaller cache.decoded.shorter, or "
            "leave the record out"
        ),
    ),
    Reason.SMALLER_THAN_CROP: (
        (20, 30, 24, 32),
        (
            "the record is 20 x 30 pixels (height x width), smaller than the crop of 24 x 32; "
            "use a smaller crop_size, or larger images"
        ),
    ),
    Reason.MEAN_VALUES_DIFFER: (
        (1, 3),
        (
            "mean_value has 3 values, but the number of channels of the record is 1; give one "
            "for all channels, or exactly one a channel"
        ),
    ),
    Reason.SCALES_DIFFER: (
        (1, 3),
        (
            "scale has 3 values, but the number of channels of the record is 1; give one for "
            "all channels, or exactly one a channel"
        ),
    ),
    Reason.MEAN_IMAGE_DIFFERS: (
        (3, 32, 32, 3, 28, 28),
        (
            "the record is 3 x 32 x 32 (channels x height x width), but the mean image is 3 x "
            "28 x 28; both must be equal, before any crop"
        ),
    ),
    Reason.FLOATS_AS_UINT8: (
        (),
        (
            "the record holds float_data, which dtype uint8 cannot carry; "
            "use float32, float16 or bfloat16"
        ),
    ),
    Reason.FLOATS_FOR_JITTER: (
        (),
        (
            "the record holds float_data, and color_jitter changes images of uint8 only; leave "
            "color_jitter out"
        ),
    ),
    Reason.CHANNELS_FOR_JITTER: (
        (4,),
        (
            "the number of channels of the record is 4, and color_jitter takes images of 3 "
            "(colour) or 1 (grey); force_color or force_gray makes encoded images so, or leave "
            "color_jitter out"
        ),
    ),
    Reason.FLOATS_FOR_RESIZE: (
        (),
        (
            "the record holds float_data, and only images of uint8 are resized; leave resize and "
            "random_resized_crop out"
        ),
    ),
    Reason.FUNCTION_RAISED: ((), "per_record raised an exception for the record"),
    Reason.FUNCTION_RETURNED: (
        (),
        (
            "per_record returned something else than an image of the type and shape that it was "
            "given, or (image, label)"
        ),
    ),
    Reason.FLOATS_FOR_FUNCTION: (
        (),
        (
            "the record holds float_data, and per_record takes uint8 images; leave per_record out, "
            "or change the floats in per_batch"
        ),
    ),
}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_its_sentence(reason: Reason) -> None:
    numbers, message = MESSAGES[reason]
    assert Fault(0, reason, numbers).message() == message


def test_the_numbers_of_reasons_never_change() -> None:
    assert {reason.name: int(reason) for reason in Reason} == {
        "TRUNCATED": 1,
        "VARINT_TOO_LONG": 2,
        "BAD_TAG": 3,
        "LENGTH_PAST_END": 4,
        "BAD_PACKED_FLOATS": 5,
        "BAD_GROUP": 6,
        "GROUPS_TOO_DEEP": 7,
        "NO_PIXELS": 20,
        "BAD_DIMENSIONS": 21,
        "DATA_SHORT": 22,
        "DATA_LONG": 23,
        "FLOATS_SHORT": 24,
        "FLOATS_LONG": 25,
        "LOOKS_HWC": 26,
        "CHANNELS_DIFFER": 27,
        "SIZE_DIFFERS": 28,
        "LABEL_OUTSIDE": 36,
        "ENCODED_EMPTY": 40,
        "UNDECODABLE": 41,
        "IMAGE_CUT": 42,
        "IMAGE_CORRUPT": 43,
        "IMAGE_DEPTH": 44,
        "IMAGE_TOO_LARGE": 45,
        "RESIZED_TOO_LARGE": 46,
        "SMALLER_THAN_CROP": 60,
        "MEAN_VALUES_DIFFER": 61,
        "SCALES_DIFFER": 62,
        "MEAN_IMAGE_DIFFERS": 63,
        "FLOATS_AS_UINT8": 64,
        "FLOATS_FOR_RESIZE": 65,
        "FLOATS_FOR_JITTER": 66,
        "CHANNELS_FOR_JITTER": 67,
        "FUNCTION_RAISED": 80,
        "FUNCTION_RETURNED": 81,
        "FLOATS_FOR_FUNCTION": 82,
    }


def test_what_is_no_datum_has_the_parsers_own_names_and_numbers() -> None:
    assert {reason.name: int(reason) for reason in DatumReason} == {
        reason.name: int(reason) for reason in Reason if Fault(0, reason).stage == "parse"
    }


@pytest.mark.parametrize(
    ("reason", "stage"),
    [
        (Reason.TRUNCATED, "parse"),
        (Reason.DATA_SHORT, "validate"),
        (Reason.IMAGE_CUT, "decode"),
        (Reason.SMALLER_THAN_CROP, "transform"),
    ],
)
def test_a_fault_says_at_which_stage_it_was_found(reason: Reason, stage: str) -> None:
    assert stage == Fault(0, reason).stage


def test_sizes_that_overflow_64_bits_are_still_named_in_full() -> None:
    side = 2**31 - 1
    message = Fault(0, Reason.DATA_SHORT, (10, side, side, side)).message()
    assert f"needs {side**3} bytes" in message


def test_the_image_librarys_own_words_follow_in_brackets() -> None:
    fault = BadRecordError(Reason.UNDECODABLE, (3,), detail="no codec").at(5)
    assert fault == Fault(5, Reason.UNDECODABLE, (3,), "no codec")
    assert fault.message().endswith("or not encoded at all (no codec)")
