"""Whether a loader has done the work: its images against the records that they were made of.

Loaders draw crops as they like, so each image is looked for at all places of its record, plain and
mirrored. How far it is from the best of them says whether pixels are the same.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from peers.filling import decode_simplejpeg
from peers.records import Records

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    import numpy.typing as npt

    from peers.works import Work

_PROBES = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How near images are to the places of their records that they are likest to.

    Attributes:
        num_images: How many were looked at.
        identical: Whether every value is the same bit for bit as (pixel - mean) * scale in float32.
        max_levels: The largest difference of a value, in levels of the stored 0 to 255.
        mean_levels: The mean difference.
        mirrored: How many of the images were mirrored.
        places: How many different crops there were.
    """

    num_images: int
    identical: bool
    max_levels: float
    mean_levels: float
    mirrored: int
    places: int


def verify(work: Work, database: Path, images: npt.NDArray[Any], records: Iterable[int]) -> Verdict:
    """Compare images with their records.

    Args:
        work: What was done.
        database: Folder of the LMDB.
        images: (N, C, H, W) as delivered.
        records: Number of the record of each.
    """
    with contextlib.closing(Records(database, work)) as source:
        originals = [_pixels(source, work, record) for record in records]
    differences, identical, places = [], True, []
    for image, pixels in zip(images, originals, strict=True):
        top, left, mirrored = place = _find(_levels(work, image), pixels)
        places.append(place)
        _, rows, columns = work.sample_shape
        cut = pixels[:, top : top + rows, left : left + columns]
        expected = _done(work, cut[:, :, ::-1] if mirrored else cut)
        identical = identical and bool(np.array_equal(expected, image))
        scale = work.scale if work.dtype != "uint8" else 1.0
        differences.append(np.abs(expected.astype(np.float64) - image.astype(np.float64)) / scale)
    return Verdict(
        num_images=len(places),
        identical=identical,
        max_levels=float(np.max(differences)),
        mean_levels=float(np.mean(differences)),
        mirrored=sum(mirrored for _, _, mirrored in places),
        places=len({(top, left) for top, left, _ in places}),
    )


def _pixels(source: Records, work: Work, record: int) -> npt.NDArray[np.uint8]:
    """Return a record's image, (C, H, W) uint8."""
    (payload,), _ = source.take(record, 1)
    channels, height, width = work.shape
    if not work.encoded:
        return np.frombuffer(bytes(payload), np.uint8).reshape(work.shape)
    decoded = decode_simplejpeg(payload, np.empty((height, width, channels), np.uint8))
    return decoded.transpose(2, 0, 1)


def _done(work: Work, cut: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """Return pixels after the mean and the scale."""
    if work.dtype == "uint8":
        return cut
    values = cut.astype(np.float32)
    if work.mean:
        values -= np.array(work.mean, np.float32).reshape(-1, 1, 1)
    return values * np.float32(work.scale)


def _levels(work: Work, image: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return an image's values as the pixels that they came from."""
    values = image.astype(np.float64)
    if work.dtype == "uint8":
        return values
    means: npt.NDArray[np.float64] = np.array(work.mean or (0.0,), np.float64).reshape(-1, 1, 1)
    return values / work.scale + means


def _find(image: npt.NDArray[np.float64], pixels: npt.NDArray[np.uint8]) -> tuple[int, int, bool]:
    """Return row and column of the likest place, and whether it is mirrored."""
    channels, rows, columns = image.shape
    rng = np.random.default_rng(0)
    c, y, x = (rng.integers(0, size, _PROBES) for size in (channels, rows, columns))
    windows = sliding_window_view(pixels, (rows, columns), axis=(1, 2))
    best = []
    for mirrored in (False, True):
        # (probes, places down, places across): what each place has where the image has its probes.
        stored = windows[c, :, :, y, columns - 1 - x if mirrored else x]
        distance = np.abs(stored - image[c, y, x][:, None, None]).sum(axis=0)
        top, left = divmod(int(distance.argmin()), distance.shape[1])
        best.append((float(distance.min()), top, left, mirrored))
    return min(best)[1:]
