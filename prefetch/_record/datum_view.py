"""A Datum, read in place: its fields, and the pixels that they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._record.faults import BadRecordError, Reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._record.layout import RecordKind

# Raw records of a width of 3 or 4 that are at least so high, and have as many channels, are images
# whose axes are the wrong way round.
_MIN_HWC_SIDE: Final = 17


# Not frozen: that would double the time of a parse (1.2 us a record instead of 0.4 to make one).
@dataclass(slots=True)
class DatumView:
    """The fields of one record; see `prefetch._record.layout.Content`.

    Attributes:
        channels: As stored; 0 where absent. Nothing is known of its sign or size.
        height: As stored; 0 where absent.
        width: As stored; 0 where absent.
        label: As stored; 0 where absent.
        encoded: Whether ``data`` is an image file.
        data: View of the payload, (n,) uint8; None where the field is absent, which is not the
            same as empty.
        floats: (n,) float32, empty where absent; a view of the record (strided, unaligned) where
            the floats are in one piece, else a copy.
        has_label: Whether ``label`` is there.
    """

    channels: int
    height: int
    width: int
    label: int
    encoded: bool
    data: memoryview | None
    floats: NDArray[np.float32]
    has_label: bool = True

    @property
    def kind(self) -> RecordKind:
        """What it holds."""
        if self.encoded:
            return "encoded"
        return "raw" if self.data or not len(self.floats) else "float"

    def image_bytes(self) -> memoryview:
        """Return the image file that an encoded record holds.

        Raises:
            BadRecordError: It holds none.
        """
        if not self.data:
            raise BadRecordError(Reason.ENCODED_EMPTY)
        return self.data

    def pixels(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the pixels of a raw record as an array, without a copy where the bytes allow it.

        Args:
            dtype: Type of the batch.

        Returns:
            uint8 or float32 (channels, height, width), read-only, valid as long as the record.

        Raises:
            BadRecordError: The record contradicts itself, or its pixels do not fit the type.
        """
        channels, height, width = shape = (self.channels, self.height, self.width)
        num_bytes = 0 if self.data is None else len(self.data)
        num_pixels = num_bytes or len(self.floats)
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
        if self.data:
            if width in (3, 4) and channels >= _MIN_HWC_SIDE and height >= _MIN_HWC_SIDE:
                raise BadRecordError(Reason.LOOKS_HWC, shape)
            return np.frombuffer(self.data, np.uint8).reshape(shape)
        if dtype == np.uint8:
            raise BadRecordError(Reason.FLOATS_AS_UINT8)
        return self.floats.reshape(shape)
