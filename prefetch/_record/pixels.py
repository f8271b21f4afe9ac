"""The pixels of a record, as it stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._record.faults import BadRecordError, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._record.wire import DatumView

_MIN_HWC_SIDE = 17


def image_bytes(datum: DatumView) -> memoryview:
    """Return the image file that an encoded record holds.

    Raises:
        BadRecordError: It holds none.
    """
    if not datum.data:
        raise BadRecordError(Reason.ENCODED_EMPTY)
    return datum.data


def raw_pixels(datum: DatumView, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return the pixels of a raw record as an array, without a copy where the bytes allow it.

    Args:
        datum: The record.
        dtype: Type of the batch.

    Returns:
        uint8 or float32 (channels, height, width), read-only, valid as long as the record's value.

    Raises:
        BadRecordError: The record contradicts itself, or its pixels do not fit the type.
    """
    channels, height, width = shape = (datum.channels, datum.height, datum.width)
    num_bytes = 0 if datum.data is None else len(datum.data)
    num_pixels = num_bytes or len(datum.floats)
    if num_pixels == 0:
        raise BadRecordError(Reason.NO_PIXELS)
    if channels < 1 or height < 1 or width < 1:
        raise BadRecordError(Reason.BAD_DIMENSIONS, shape)
    needed = channels * height * width
    if num_pixels != needed:
        short, long = (
            (Reason.DATA_SHORT, Reason.DATA_LONG)
            if num_bytes
            else (Reason.FLOATS_SHORT, Reason.FLOATS_LONG)
        )
        raise BadRecordError(short if num_pixels < needed else long, (num_pixels, *shape))
    if datum.data:
        if width in (3, 4) and channels >= _MIN_HWC_SIDE and height >= _MIN_HWC_SIDE:
            raise BadRecordError(Reason.LOOKS_HWC, shape)
        return np.frombuffer(datum.data, np.uint8).reshape(shape)
    if dtype == np.uint8:
        raise BadRecordError(Reason.FLOATS_AS_UINT8)
    return datum.floats.reshape(shape)
