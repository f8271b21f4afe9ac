"""What can be wrong with a record, in numbers first and in words when asked.

A kernel that fills part of a batch reports a bad record as a position, a reason and a few integers:
no text is made on the hot path, and the C kernel and its NumPy twin give the same words because
neither of them has any. The words are the sentences here, one a reason.
"""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

Stage: TypeAlias = Literal["parse", "validate", "decode", "transform", "per_record"]

_STAGES: tuple[Stage, ...] = ("parse", "validate", "decode", "transform", "per_record")


class Reason(enum.IntEnum):
    """The kinds of bad record.

    The numbers never change, for the C kernel knows them too; each stage has twenty of them.
    """

    # The bytes are no Datum: DatumReason's members, with their numbers and meanings.
    TRUNCATED = 1
    VARINT_TOO_LONG = 2
    BAD_TAG = 3
    LENGTH_PAST_END = 4
    BAD_PACKED_FLOATS = 5
    BAD_GROUP = 6
    GROUPS_TOO_DEEP = 7

    # A Datum that contradicts itself or its batch.
    NO_PIXELS = 20
    BAD_DIMENSIONS = 21
    DATA_SHORT = 22
    DATA_LONG = 23
    FLOATS_SHORT = 24
    FLOATS_LONG = 25
    LOOKS_HWC = 26
    CHANNELS_DIFFER = 27
    SIZE_DIFFERS = 28

    # A Datum whose label is none of the classes that there are.
    LABEL_OUTSIDE = 36

    # An encoded image.
    ENCODED_EMPTY = 40
    UNDECODABLE = 41
    IMAGE_CUT = 42
    IMAGE_CORRUPT = 43
    IMAGE_DEPTH = 44
    IMAGE_TOO_LARGE = 45
    RESIZED_TOO_LARGE = 46

    # A good record that the configured transformation does not fit.
    SMALLER_THAN_CROP = 60
    MEAN_VALUES_DIFFER = 61
    SCALES_DIFFER = 62
    MEAN_IMAGE_DIFFERS = 63
    FLOATS_AS_UINT8 = 64
    FLOATS_FOR_RESIZE = 65
    FLOATS_FOR_JITTER = 66
    CHANNELS_FOR_JITTER = 67

    # A good record that people's own function does not take, or not as it should.
    FUNCTION_RAISED = 80
    FUNCTION_RETURNED = 81
    FLOATS_FOR_FUNCTION = 82


# {0}, {1}, ... are the fault's numbers; {needed} is the product of the numbers 1 to 3, {other} what
# a record differs from.
_SENTENCES = {
    Reason.TRUNCATED: (
        "the field at byte {0} is cut off by the end of the record ({1} bytes): the record is "
        "damaged, or no Datum"
    ),
    Reason.VARINT_TOO_LONG: (
        "the integer at byte {0} has more bytes than any integer: the record is damaged, or "
        "no Datum"
    ),
    Reason.BAD_TAG: ("byte {0} (value {1}) starts no field: the record is damaged, or no Datum"),
    Reason.LENGTH_PAST_END: (
        "the length at byte {0} says {1} bytes, and {2} bytes of the record are left: the "
        "record was cut, is damaged, or is no Datum"
    ),
    Reason.BAD_PACKED_FLOATS: (
        "the packed float_data at byte {0} takes {1} bytes, which is no multiple of 4: the "
        "record is damaged"
    ),
    Reason.BAD_GROUP: (
        "the tag at byte {0} ends a group that was not begun: the record is damaged, or no Datum"
    ),
    Reason.GROUPS_TOO_DEEP: (
        "groups are nested more than 100 deep at byte {0}: the record is damaged, or no Datum"
    ),
    Reason.NO_PIXELS: (
        "neither data nor float_data holds anything, and a record needs one of them; an "
        "AnnotatedDatum, as SSD writes them, has its Datum inside: store that by itself"
    ),
    Reason.BAD_DIMENSIONS: (
        "channels x height x width is {0} x {1} x {2}, and each must be at least 1; a record "
        "that holds an encoded image needs encoded: true instead"
    ),
    Reason.DATA_SHORT: (
        "the data has {0} bytes, but {1} x {2} x {3} (channels x height x width) needs "
        "{needed} bytes: the record was cut, or its sizes are not those of its data"
    ),
    Reason.DATA_LONG: (
        "the data has {0} bytes, but {1} x {2} x {3} (channels x height x width) takes only "
        "{needed} bytes: the sizes are not those of the data"
    ),
    Reason.FLOATS_SHORT: (
        "float_data has {0} values, but {1} x {2} x {3} (channels x height x width) needs "
        "{needed} values: the record was cut, or its sizes are not those of its data"
    ),
    Reason.FLOATS_LONG: (
        "float_data has {0} values, but {1} x {2} x {3} (channels x height x width) takes "
        "only {needed} values: the sizes are not those of the data"
    ),
    Reason.LOOKS_HWC: (
        "channels x height x width is {0} x {1} x {2}, which looks like height x width x "
        "channels (HWC): transpose the pixels to channels x height x width and write the "
        "record again"
    ),
    Reason.CHANNELS_DIFFER: (
        "the record is {0} x {1} x {2} (channels x height x width), but {other}; force_color or "
        "force_gray makes encoded images of both kinds alike"
    ),
    Reason.SIZE_DIFFERS: (
        "the record is {0} x {1} x {2} (channels x height x width), but {other}; set crop_size, "
        "resize or random_resized_crop, or resize the images when the database is made"
    ),
    Reason.LABEL_OUTSIDE: (
        "the label is {0}, and with num_classes {1} labels one_hot takes 0 to {2}; raise "
        "num_classes, or give the record another label"
    ),
    Reason.ENCODED_EMPTY: (
        "encoded is true, but the data is empty; write the image file's bytes there"
    ),
    Reason.UNDECODABLE: (
        "the data ({0} bytes) cannot be decoded as an image; it is damaged, of no known "
        "format, or not encoded at all"
    ),
    Reason.IMAGE_CUT: (
        "the JPEG ends before its end marker, after {0} bytes: it was cut, or its end was written "
        "over, so that pixels may be missing; write the whole file"
    ),
    Reason.IMAGE_CORRUPT: (
        "the JPEG ({0} bytes) is damaged or malformed, so that pixels of it may be wrong; write "
        "it again from the original"
    ),
    Reason.IMAGE_DEPTH: (
        "the image has {0} bits a channel, and 8 are expected; force_color or force_gray "
        "reduces it, or convert it to 8 bits"
    ),
    Reason.IMAGE_TOO_LARGE: (
        "the image says that it is {0} x {1} pixels (height x width), and at most {2} pixels are "
        "decoded of its {3} bytes: it is damaged, or made to exhaust memory; where it is sound, "
        "raise max_pixels_per_byte"
    ),
    Reason.RESIZED_TOO_LARGE: (
        "the image is {0} x {1} pixels (height x width), and would have more than {3} with its "
        "shorter side made {2} pixels long; use a smaller cache.decoded.shorter, or leave the "
        "record out"
    ),
    Reason.SMALLER_THAN_CROP: (
        "the record is {0} x {1} pixels (height x width), smaller than the crop of {2} x {3}; "
        "use a smaller crop_size, or larger images"
    ),
    Reason.MEAN_VALUES_DIFFER: (
        "mean_value has {1} values, but the number of channels of the record is {0}; give one for "
        "all channels, or exactly one a channel"
    ),
    Reason.SCALES_DIFFER: (
        "scale has {1} values, but the number of channels of the record is {0}; give one for "
        "all channels, or exactly one a channel"
    ),
    Reason.MEAN_IMAGE_DIFFERS: (
        "the record is {0} x {1} x {2} (channels x height x width), but the mean image is {3} "
        "x {4} x {5}; both must be equal, before any crop"
    ),
    Reason.FLOATS_AS_UINT8: (
        "the record holds float_data, which dtype uint8 cannot carry; "
        "use float32, float16 or bfloat16"
    ),
    Reason.FLOATS_FOR_RESIZE: (
        "the record holds float_data, and only images of uint8 are resized; leave resize and "
        "random_resized_crop out"
    ),
    Reason.FLOATS_FOR_JITTER: (
        "the record holds float_data, and color_jitter changes images of uint8 only; leave "
        "color_jitter out"
    ),
    Reason.CHANNELS_FOR_JITTER: (
        "the number of channels of the record is {0}, and color_jitter takes images of 3 (colour) "
        "or 1 (grey); force_color or force_gray makes encoded images so, or leave color_jitter out"
    ),
    Reason.FUNCTION_RAISED: "per_record raised an exception for the record",
    Reason.FUNCTION_RETURNED: (
        "per_record returned something else than an image of the type and shape that it was given, "
        "or (image, label)"
    ),
    Reason.FLOATS_FOR_FUNCTION: (
        "the record holds float_data, and per_record takes uint8 images; leave per_record out, or "
        "change the floats in per_batch"
    ),
}

_OTHERS = {
    Reason.CHANNELS_DIFFER: "the number of channels of its batch is {3}",
    Reason.SIZE_DIFFERS: "its batch is of {3} x {4} x {5}",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One bad record of a part.

    Attributes:
        position: Its place in the part, counted from 0.
        reason: What is wrong with it.
        numbers: What the reason's sentence asks for.
        detail: What the image library said, where it said anything, or what the user's function
            raised or returned; otherwise empty.
        cause: What the user's function raised.
    """

    position: int
    reason: Reason
    numbers: tuple[int, ...] = ()
    detail: str = ""
    cause: BaseException | None = None

    @property
    def stage(self) -> Stage:
        """Return where on the record's way it was found out."""
        return _STAGES[self.reason // 20]

    @property
    def is_of_its_batch(self) -> bool:
        """Return whether the record, sound as it is, differs from another one of its batch."""
        return self.reason in _OTHERS

    def message(self, other: str | None = None) -> str:
        """Return what is wrong in words: what was expected, what was found, what to try.

        Args:
            other: What is said of the record that this one differs from; by default, of the batch.
        """
        if other is None:
            other = _OTHERS.get(self.reason, "").format(*self.numbers)
        sentence = _SENTENCES[self.reason].format(
            *self.numbers, needed=math.prod(self.numbers[1:4]), other=other
        )
        return f"{sentence} ({self.detail})" if self.detail else sentence


class BadRecordError(Exception):
    """Carries a reason out of the depths of one record's work; never leaves this package.

    Attributes:
        reason: What is wrong with the record.
        numbers: What the reason's sentence asks for.
        detail: What the image library said.
    """

    def __init__(self, reason: Reason, numbers: tuple[int, ...] = (), *, detail: str = "") -> None:
        self.reason = reason
        self.numbers = numbers
        self.detail = detail
        super().__init__(reason, numbers, detail)

    def at(self, position: int) -> Fault:
        """Return it as the fault of the record at ``position``."""
        return Fault(position, self.reason, self.numbers, self.detail)
