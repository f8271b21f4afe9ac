"""One record looked at for its own sake: what kind it is, its shape and label, what is wrong.

A feed asks whether a record fits a batch; a survey of a database, or a picture of it, takes each
record as it comes. What counts as bad is what a feed without options would refuse.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._kernels.selection import native
from prefetch._record.appearance import (
    is_grey_in_colour,
    is_transparent,
    is_turned,
)
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError, Fault, Reason
from prefetch._record.image_format import format_of
from prefetch._record.layouts.datum import DATUM

if TYPE_CHECKING:
    from typing import TypeAlias

    from numpy.typing import NDArray

    from prefetch._record.datum_view import DatumView

    Shape: TypeAlias = tuple[int, int, int]

FLOAT = "float"
DAMAGED = "damaged"
UNKNOWN_IMAGE = "encoded"


@dataclass(frozen=True, slots=True)
class Finding:
    """What one record is.

    Attributes:
        kind: ``raw``, ``float``, an image format such as ``jpeg``, ``encoded`` for an image of an
            unknown format, or ``damaged`` where the bytes are no Datum.
        shape: (channels, height, width); None where it is not known without decoding.
        label: As stored; None where the bytes are no Datum.
        fault: What is wrong with it; None where nothing was found.
        decoded: Whether an image file was decoded for it.
        num_odd: How many of its values are no finite numbers, where these were read.
        is_turned: Whether it is a JPEG that EXIF asks to turn.
        remark: What libjpeg says of it and leaves its pixels as they are, where it was decoded.
        is_grey: Whether it was decoded, and has the same values in each of three channels.
        is_transparent: Whether it was decoded, and has pixels that alpha hides.
        has_label: Whether it says its label.
        has_restarts: Whether a feed decodes only what a crop needs of it; None where it is no JPEG,
            was not decoded, or the C kernels are not in use.
    """

    kind: str
    shape: Shape | None
    label: int | None
    fault: Fault | None = None
    decoded: bool = False
    num_odd: int = 0
    is_turned: bool = False
    remark: str = ""
    is_grey: bool = False
    is_transparent: bool = False
    has_label: bool = True
    has_restarts: bool | None = None


class Examiner:
    """Looks at records, one at a time; not thread-safe."""

    def __init__(self) -> None:
        self._decoder = ImageDecoder()

    def examine(self, value: memoryview, *, decode: bool, read_floats: bool = False) -> Finding:
        """Look at a record.

        Args:
            value: The bytes of a Datum.
            decode: Whether to decode an image file. Otherwise only its first bytes are read, and
                of a JPEG its header; pixels of raw records are never read.
            read_floats: Whether to look for values of float_data that are no finite numbers.
        """
        try:
            datum = DATUM.read(value)
        except BadRecordError as bad:
            return Finding(DAMAGED, None, None, bad.at(0))
        kind = kind_of(datum)
        decode = decode and datum.encoded
        shape: Shape | None = None
        planes: NDArray[Any] | None = None
        num_odd = 0
        try:
            if not datum.encoded:
                pixels = datum.pixels(np.dtype(np.float32))
                channels, height, width = pixels.shape
                shape = channels, height, width
                if read_floats and kind == FLOAT:
                    num_odd = pixels.size - int(np.isfinite(pixels).sum())
            elif decode:
                planes = self._decoder.decode(datum.image_bytes()).transpose(2, 0, 1)
                channels, height, width = planes.shape
                shape = channels, height, width
            elif datum.image_bytes() and kind == "jpeg":
                height, width, channels = self._decoder.shape(datum.image_bytes())
                shape = channels, height, width
        except BadRecordError as bad:
            return Finding(kind, None, datum.label, bad.at(0), decode)
        remark = self._decoder.remark if decode else ""
        return Finding(
            kind,
            shape,
            datum.label,
            decoded=decode,
            num_odd=num_odd,
            is_turned=is_turned(datum),
            remark=remark,
            is_grey=planes is not None and is_grey_in_colour(planes),
            is_transparent=planes is not None and is_transparent(planes),
            has_label=datum.has_label,
            has_restarts=has_restarts(datum.image_bytes()) if decode and kind == "jpeg" else None,
        )

    def pixels(self, value: memoryview, side: int) -> NDArray[Any]:
        """Return a record's pixels, for a small picture of it.

        Args:
            value: The bytes of a Datum.
            side: Length of the picture's sides; a large image may come smaller than it is stored,
                but no smaller than this.

        Returns:
            uint8 or float32 (channels, height, width), channels as stored, or blue first where an
            image file was decoded. A raw record that looks like height x width x channels is taken
            for that. Valid until the next call, and as long as the record's value.

        Raises:
            BadRecordError: The record has none.
        """
        datum = DATUM.read(value)
        if datum.encoded:
            return self._decoder.decode_small(datum.image_bytes(), side).transpose(2, 0, 1)
        try:
            return datum.pixels(np.dtype(np.float32))
        except BadRecordError as bad:
            if bad.reason != Reason.LOOKS_HWC or datum.data is None:
                raise
            rows = datum.channels, datum.height, datum.width
            return np.frombuffer(datum.data, np.uint8).reshape(rows).transpose(2, 0, 1)


def has_restarts(file: memoryview) -> bool | None:
    """Return whether a feed decodes only what a crop needs of a JPEG, by its restart markers.

    None where no feed does, since the C kernels are not in use.
    """
    return None if native is None else native.find_restarts(file) is not None


def kind_of(datum: DatumView) -> str:
    """Return the kind of a record, by its first bytes where it is an image file."""
    if not datum.encoded:
        return datum.kind
    return format_of(bytes((datum.data or b"")[:16])) or UNKNOWN_IMAGE
