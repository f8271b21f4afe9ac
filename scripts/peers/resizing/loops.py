"""Loops on one thread that cut, resize, mirror and normalise image by image, without a loader.

``Pillow`` decodes and resizes as torchvision does with its images. ``FFCV's method`` is what FFCV
does to a JPEG file, without FFCV's own format and compiled pipeline: the whole file is decoded with
the fast, less exact inverse transform, and a rectangle of it resized by the mean of areas.
"""

from __future__ import annotations

import io
import itertools
from contextlib import contextmanager
from typing import TYPE_CHECKING

import cv2
import numpy as np
import simplejpeg

from peers.filling import Slots
from peers.records import Records
from peers.resizing import crops

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import numpy.typing as npt

    from peers.works import Settings, Stream, Work

    Resize = Callable[[memoryview, np.random.Generator], npt.NDArray[np.uint8]]

READS_AHEAD = False
"""Nothing is made while the loop that takes the batches rests."""


def candidates(work: Work, *, num_cores: int) -> list[Settings]:  # noqa: ARG001 - as all modules
    """Return both methods; the roster names one."""
    return [{"method": name} for name in _METHODS]


@contextmanager
def open_stream(work: Work, database: Path, settings: Settings) -> Iterator[Stream]:
    """Open a loop; see `peers.works.OpenStream`."""
    cv2.setNumThreads(1)
    yield _batches(work, Records(database, work), _METHODS[settings["method"]](work))


def _batches(work: Work, records: Records, resize: Resize) -> Stream:
    data, labels = Slots(work, 1)[0]
    normaliser = crops.Normaliser(work)
    rng = np.random.default_rng(0)
    for first in itertools.count(0, work.batch_size):
        files, labels[:] = records.take(first % records.num_records, work.batch_size)
        mirrors = rng.integers(0, 2, len(files)).tolist()
        for row, file, mirrored in zip(data, files, mirrors, strict=True):
            normaliser.write(resize(file, rng), row, mirrored=bool(mirrored))
        yield data, labels


def _pillow(work: Work) -> Resize:
    from PIL import Image  # noqa: PLC0415 - the other methods do without

    size = (work.resized_crop, work.resized_crop)

    def resize(file: memoryview, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
        image = Image.open(io.BytesIO(file)).convert("RGB")
        top, left, rows, columns = crops.draw(rng, image.height, image.width)
        box = (left, top, left + columns, top + rows)
        # Cut out first, as torchvision does: a box would be resized with what lies around it.
        return np.asarray(image.crop(box).resize(size, Image.Resampling.BILINEAR))

    return resize


def _ffcv(work: Work) -> Resize:
    _, height, width = work.shape
    whole = np.empty((height, width, 3), np.uint8)
    small = np.empty((work.resized_crop, work.resized_crop, 3), np.uint8)

    def resize(file: memoryview, rng: np.random.Generator) -> npt.NDArray[np.uint8]:
        pixels = simplejpeg.decode_jpeg(file, colorspace="RGB", fastdct=True, buffer=whole)
        top, left, rows, columns = crops.draw(rng, height, width)
        cut = pixels[top : top + rows, left : left + columns]
        cv2.resize(cut, small.shape[:2], dst=small, interpolation=cv2.INTER_AREA)
        return small

    return resize


_METHODS = {"Pillow": _pillow, "FFCV's": _ffcv}
