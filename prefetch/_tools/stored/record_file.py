"""The file that one record becomes: the image file that it holds, or its pixels as one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from prefetch._record.decode import ImageDecoder
from prefetch._record.image_format import format_of
from prefetch._record.layouts.datum import DATUM
from prefetch._tools.convert.errors import UnreadableError
from prefetch._tools.convert.inputs.treatment import encode_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._record.datum_view import DatumView

ENDINGS: Final = {"jpeg": "jpg", "tiff": "tif"}
"""Usual endings of file names, where they are not what a format is called."""

DATUM_ENDING: Final = "datum"
_FLOAT: Final = np.dtype(np.float32)
_IN_PNG: Final = frozenset((1, 3))


class RecordFile(NamedTuple):
    """A file.

    Attributes:
        content: What is in it.
        ending: Of its name, without the dot.
    """

    content: bytes
    ending: str


def record_file(value: memoryview, *, is_rgb: bool = False) -> RecordFile:
    """Return the file of a record that loses nothing of its pixels.

    That is the image file that it holds, byte for byte; of raw bytes with 1 or 3 channels a PNG,
    the first of 3 channels taken for blue but for ``is_rgb``; of any other pixels an array
    (channels, height, width) in NumPy's format, as it is.

    Args:
        value: The record.
        is_rgb: Whether the first of a raw record's three channels is red.

    Raises:
        BadRecordError: It has no pixels, or contradicts itself.
    """
    datum = DATUM.read(value)
    if datum.encoded:
        content = bytes(datum.image_bytes())
        kind = format_of(content[:16])
        return RecordFile(content, ENDINGS.get(kind, kind) or "bin")
    pixels = datum.pixels(_FLOAT)
    if pixels.dtype == np.uint8 and len(pixels) in _IN_PNG:
        return RecordFile(encode_image(_blue_first(pixels, is_rgb=is_rgb), "png"), "png")
    return RecordFile(_npy(pixels), "npy")


def record_file_of(value: memoryview, ending: str, *, is_rgb: bool = False) -> bytes:
    """Return the content of a record's file, of a type that its name's ending says.

    Args:
        value: The record.
        ending: ``datum`` for the record's own bytes, ``npy`` for its decoded pixels, or a type of
            image files.
        is_rgb: As `record_file` takes it.

    Raises:
        BadRecordError: It has no pixels, or contradicts itself.
        UnreadableError: It cannot be written as that.
    """
    if ending == DATUM_ENDING:
        return bytes(value)
    datum = DATUM.read(value)
    if ending != "npy":
        own = record_file(value, is_rgb=is_rgb)
        if ENDINGS.get(ending, ending) == ENDINGS.get(own.ending, own.ending):
            return own.content
        if datum.kind == "float":
            raise UnreadableError(f"the record holds floats, which no {ending} file has")
        is_rgb = is_rgb and not datum.encoded  # an image file has its own order
        return encode_image(_blue_first(_decode(datum), is_rgb=is_rgb), ending)
    return _npy(_decode(datum))


def _decode(datum: DatumView) -> NDArray[Any]:
    """Return the pixels of a record, (channels, height, width)."""
    if datum.encoded:
        image: NDArray[np.uint8] = ImageDecoder().decode(datum.image_bytes())
        return image.transpose(2, 0, 1)
    return datum.pixels(_FLOAT)


def swap_red_and_blue(image: NDArray[Any]) -> NDArray[Any]:
    """Return an image (height, width, channels) with the first of 3 or 4 channels as the third."""
    if image.shape[2] not in {3, 4}:
        return image
    return np.ascontiguousarray(image[:, :, [2, 1, 0, 3][: image.shape[2]]])


def _blue_first(pixels: NDArray[Any], *, is_rgb: bool) -> NDArray[Any]:
    """Return pixels (channels, height, width) as an image file takes them."""
    image = np.ascontiguousarray(pixels.transpose(1, 2, 0))
    return swap_red_and_blue(image) if is_rgb else image


def _npy(pixels: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(pixels))
    return file.getvalue()
