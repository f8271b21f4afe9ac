"""Databases with the same content on every machine.

Raw images are noise, since copying and arithmetic do not care. JPEG files are of noise at several
scales, which compresses as a photograph does: about 30 kB for 256x256 pixels of quality 90; or of
`resizing.photographs`, for crops that are resized.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TYPE_CHECKING

import cv2
import numpy as np
import simplejpeg

import prefetch.cli
import prefetch.testing
from peers.resizing import photographs
from prefetch.caffe import Datum

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import numpy.typing as npt

    from peers.works import Work

_QUALITY = 90
_OCTAVES = ((4, 60.0), (16, 35.0), (64, 20.0), (256, 3.0))  # (blobs along a side, amplitude)
_NUM_LABELS = 1000


def label_of(record: int) -> int:
    """Return the label of a record, counted from 0."""
    return record % _NUM_LABELS


def make_database(folder: Path, work: Work, num_records: int) -> Path:
    """Make the database that a work reads, unless an earlier run has left it there.

    Args:
        folder: Where databases are kept.
        work: Its image shape and encoding say what the records hold.
        num_records: How many.

    Returns:
        The LMDB's folder.
    """
    path = folder / f"{work.database}-{num_records}"
    if not path.exists():
        unfinished = folder / f"{path.name}.unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        prefetch.testing.write_database(unfinished, _records(work, num_records))
        unfinished.rename(path)
    return path


def with_restart_markers(database: Path) -> Path:
    """Return a copy of a database whose JPEG files have restart markers; pixels are the same.

    Args:
        database: The LMDB's folder; the copy lies beside it, unless an earlier run has left it.

    Raises:
        ValueError: ``ringfeed reencode --roi`` failed; it has said why.
    """
    path = database.with_name(f"{database.name}-restart-markers")
    if not path.exists():
        unfinished = path.with_name(f"{path.name}.unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        # The output may be the report's.
        with contextlib.redirect_stdout(sys.stderr):
            status = prefetch.cli.main(["reencode", "--roi", str(database), str(unfinished)])
        if status != 0:
            raise ValueError(f"ringfeed reencode --roi could not make {unfinished}")
        unfinished.rename(path)
    return path


def _records(work: Work, num_records: int) -> Iterator[tuple[bytes, bytes]]:
    for record in range(num_records):
        rng = np.random.default_rng(record)
        label = label_of(record)
        if work.resized_crop:
            _, height, width = work.shape
            value = _encoded(photographs.encode(photographs.take(rng, height, width)), label)
        elif work.encoded:
            file = simplejpeg.encode_jpeg(
                _picture(rng, work.shape), quality=_QUALITY, colorspace="BGR"
            )
            value = _encoded(file, label)
        else:
            pixels = rng.integers(0, 256, work.shape, np.uint8)
            value = prefetch.testing.encode_image(pixels, label=label)
        yield b"%08d" % record, value


def _picture(rng: np.random.Generator, shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
    channels, height, width = shape
    picture = np.full((height, width, channels), 127.5, np.float32)
    for blobs, amplitude in _OCTAVES:
        noise = rng.normal(0, amplitude, (blobs, blobs, channels)).astype(np.float32)
        picture += cv2.resize(noise, (width, height), interpolation=cv2.INTER_CUBIC)
    return np.clip(picture, 0, 255).astype(np.uint8)


def _encoded(file: bytes, label: int) -> bytes:
    return Datum(data=file, label=label, encoded=True).SerializeToString()
