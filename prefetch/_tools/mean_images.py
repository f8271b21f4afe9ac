"""The pixels of a mean's records: decoded on several threads, checked, and located when bad."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import repeat
from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._errors.classes import RecordError
from prefetch._errors.printable import printable_shape
from prefetch._record.decode import ImageDecoder
from prefetch._record.faults import BadRecordError
from prefetch._record.layouts.datum import DATUM

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from prefetch._kernels.sums import Image
    from prefetch._source.source import RecordSource

_FLOAT: Final = np.dtype(np.float32)


class ThreadDecoders(threading.local):
    """The image decoder of each thread."""

    def __init__(self, *, force_color: bool, force_gray: bool) -> None:
        self.decoder = ImageDecoder(force_color=force_color, force_gray=force_gray)

    def planes(self, data: memoryview) -> NDArray[np.uint8]:
        """Return an image's pixels, uint8 (channels, height, width), in memory of their own.

        Raises:
            BadRecordError: It cannot be decoded.
        """
        return np.array(self.decoder.decode(data).transpose(2, 0, 1), order="C")


def read_images(
    values: Sequence[memoryview],
    known: Sequence[memoryview | None] | None,
    *,
    source: RecordSource,
    first: int,
    pool: ThreadPoolExecutor,
    decoding: ThreadDecoders,
) -> list[Image]:
    """Return the pixels of records, C-contiguous.

    Args:
        values: The records.
        known: Pixels that were found and need no look; None for a record where they were not.
        source: Where the records are from.
        first: Position of the first of them there.
        pool: Decodes images.
        decoding: Its decoders.

    Returns:
        What is known, and arrays of (channels, height, width) of the others.

    Raises:
        RecordError: One of them is bad; the first of them, if several are.
    """
    begun: list[Image | Future[NDArray[np.uint8]]] = []
    fault: RecordError | None = None
    for value, pixels in zip(values, known or repeat(None), strict=False):
        if pixels is not None:
            begun.append(pixels)
            continue
        try:
            datum = DATUM.read(value)
            begun.append(
                pool.submit(decoding.planes, datum.image_bytes())
                if datum.encoded
                else np.ascontiguousarray(datum.pixels(_FLOAT))
            )
        except BadRecordError as bad:
            fault = _record_error(source, first + len(begun), bad)
            break
    # The records may be released only when no thread reads them any more.
    wait([image for image in begun if isinstance(image, Future)])
    images: list[Image] = []
    for position, image in enumerate(begun, first):
        try:
            images.append(image.result() if isinstance(image, Future) else image)
        except BadRecordError as bad:
            raise _record_error(source, position, bad) from None
    if fault is not None:
        raise fault
    return images


def check_shapes(
    images: Sequence[Image], shape: tuple[int, ...], source: RecordSource, first: int
) -> None:
    """Raise unless all arrays have a shape.

    Raises:
        RecordError: One has not.
    """
    for position, image in enumerate(images, first):
        if isinstance(image, np.ndarray) and image.shape != shape:
            raise _record_error(source, position, _other_shape(image.shape, shape))


def _other_shape(found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    cure = (
        "make the database with one size of images (--resize-height, --resize-width)"
        if found[0] == expected[0]
        else "encoded images can be decoded alike with --force-color or --force-gray"
    )
    return (
        f"the record is {printable_shape(found)} (channels x height x width), but the first "
        f"record is {printable_shape(expected)}, and a mean needs all of one shape; {cure}"
    )


def _record_error(source: RecordSource, position: int, what: str | BadRecordError) -> RecordError:
    """Return the error of the record at a position of the source."""
    stage, reason = "validate", what
    if isinstance(what, BadRecordError):
        fault = what.at(0)
        stage, reason = fault.stage, fault.message()
    database, record, _ = source.describe(position)
    records = source.reader().fetch(np.array([position], np.int64))
    key = bytes(records.keys[0])
    records.release()
    return RecordError(str(reason), database=database, record=record, key=key, stage=stage)
