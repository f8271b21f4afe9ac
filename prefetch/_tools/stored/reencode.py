"""Stored records in another form: pixels as image files and back, smaller, of another quality."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError
from prefetch._record.image_format import format_of
from prefetch._record.jpeg_markers import JPEG_SIGNATURE
from prefetch._record.layouts.datum import DATUM
from prefetch._record.wire import encode_datum
from prefetch._tools.convert.errors import UnreadableError
from prefetch._tools.convert.inputs.images import make_example
from prefetch._tools.convert.restart_markers import DAMAGED, NO_JPEG, add_restart_markers
from prefetch._tools.stored.copies import UNKNOWN_SHAPE, copy_record
from prefetch._tools.stored.record_file import ENDINGS, swap_red_and_blue

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._record.datum_view import DatumView
    from prefetch._tools.convert.examples import Example
    from prefetch._tools.convert.inputs.treatment import Treatment
    from prefetch._tools.stored.copies import Change

RAW: Final = "raw"
_FLOAT: Final = np.dtype(np.float32)


def reencode(form: str, treatment: Treatment, *, is_rgb: bool = False) -> Change:
    """Return what gives records another form.

    Args:
        form: `RAW` for pixels, or a type of image files; empty for the form that each has.
        treatment: Sizes and quality. A record that has the form already, and no size or quality is
            asked for, stays bit for bit.
        is_rgb: Whether raw records have red first, which become image files as others do.
    """
    decoders = _Decoders()

    def change(key: bytes, value: bytes) -> Example:
        try:
            datum = DATUM.read(memoryview(value))
            own = _form_of(datum)
            wanted = form or own
            if treatment.may_keep and treatment.quality is None and _is_same(own, wanted):
                return _mark(key, value, datum) if treatment.roi else copy_record(key, value)
            image = _image(datum, decoders.decoder)
        except BadRecordError as bad:
            raise UnreadableError(bad.at(0).message()) from None
        if is_rgb and own == RAW and wanted != RAW:
            image = swap_red_and_blue(image)
        label = datum.label if datum.has_label else None
        return make_example(image, label, treatment, "" if wanted == RAW else wanted)

    return change


def _mark(key: bytes, value: bytes, datum: DatumView) -> Example:
    """Return a record with restart markers in its JPEG, or as it is."""
    example = copy_record(key, value)
    if not datum.encoded:
        return replace(example, whole_because=NO_JPEG)
    file = bytes(datum.image_bytes())
    fields = _Fields(datum, value)
    if fields.with_file(file) != value:
        return replace(example, whole_because="its record has fields of its own")
    if example.shape == UNKNOWN_SHAPE and file[:3] == JPEG_SIGNATURE:
        return replace(example, whole_because=DAMAGED)  # or too large to be looked at
    marked = add_restart_markers(file)
    return replace(
        example,
        value=fields.with_file(marked.file),
        unchanged=marked.file == file,
        whole_because=marked.why_not,
        bytes_added=len(marked.file) - len(file),
    )


class _Fields:
    """The fields of a stored record beside its image file, as most records have them."""

    def __init__(self, datum: DatumView, value: bytes) -> None:
        # A field that is 0 is mostly left out, and may be there.
        has_shape = value[:1] == b"\x08"
        self._channels = datum.channels if has_shape else None
        self._height = datum.height if has_shape else None
        self._width = datum.width if has_shape else None
        self._label = datum.label if datum.has_label else None

    def with_file(self, file: bytes) -> bytes:
        """Return the record with a file in it."""
        return encode_datum(
            channels=self._channels,
            height=self._height,
            width=self._width,
            data=file,
            label=self._label,
            encoded=True,
        )


class _Decoders(threading.local):
    """The decoder of each thread."""

    def __init__(self) -> None:
        self.decoder = ImageDecoder()


def _form_of(datum: DatumView) -> str:
    if not datum.encoded:
        return RAW
    kind = format_of(bytes(datum.image_bytes()[:16]))
    return ENDINGS.get(kind, kind)


def _is_same(own: str, wanted: str) -> bool:
    return own == wanted or ENDINGS.get(own, own) == ENDINGS.get(wanted, wanted)


def _image(datum: DatumView, decoder: ImageDecoder) -> NDArray[np.uint8]:
    """Return a record's pixels, uint8 (height, width, channels)."""
    if datum.encoded:
        return decoder.decode(datum.image_bytes())
    if datum.kind == "float":
        raise UnreadableError("holds floats, which no image file has and no resizing is for")
    return np.ascontiguousarray(datum.pixels(_FLOAT).transpose(1, 2, 0), np.uint8)
