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


def record_file(value: memoryview) -> RecordFile:
    """Return the file of a record that loses nothing of its pixels.

    That is the image file that it holds, byte for byte; of raw bytes with 1 or 3 channels a PNG,
    the first of 3 channels taken for blue; of any other pixels an array (channels, height, width)
    in NumPy's format.

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
        return RecordFile(encode_image(_channels_last(pixels), "png"), "png")
    return RecordFile(_npy(pixels), "npy")


def record_file_of(value: memoryview, ending: str) -> bytes:
    """Return the content of a record's file, of a type that its name's ending says.

    Args:
        value: The record.
        ending: ``datum`` for the record's own bytes, ``npy`` for its decoded pixels, or a type of
            image files.

    Raises:
        BadRecordError: It has no pixels, or contradicts itself.
        UnreadableError: It cannot be written as that.
    """
    if ending == DATUM_ENDING:
        return bytes(value)
    datum = DATUM.read(value)
    if ending != "npy":
        own = record_file(value)
        if ENDINGS.get(ending, ending) == ENDINGS.get(own.ending, own.ending):
            return own.content
        if datum.kind == "float":
            raise UnreadableError(f"the record holds floats, which no {ending} file has")
        return encode_image(_channels_last(_decode(datum)), ending)
    return _npy(_decode(datum))


def _decode(datum: DatumView) -> NDArray[Any]:
    """Return the pixels of a record, (channels, height, width)."""
    if datum.encoded:
        image: NDArray[np.uint8] = ImageDecoder().decode(datum.image_bytes())
        return image.transpose(2, 0, 1)
    return datum.pixels(_FLOAT)


def _channels_last(pixels: NDArray[Any]) -> NDArray[Any]:
    return np.ascontiguousarray(pixels.transpose(1, 2, 0))


def _npy(pixels: NDArray[Any]) -> bytes:
    file = io.BytesIO()
    np.save(file, np.ascontiguousarray(pixels))
    return file.getvalue()
