"""Whether a loader has done the work: its images against the records that they were made of.

Loaders draw crops as they like, so each image is looked for at all places of its record, plain and
mirrored. How far it is from the best of them says whether pixels are the same. Where crops are
resized, `resizing.rectangles` finds the likest one.
"""

from __future__ import annotations

import contextlib
import dataclasses
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
_NUM_RESIZED = 4  # a rectangle of any size is sought for a second


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """How near images are to the places of their records that they are likest to.

    Attributes:
        num_images: How many were looked at.
        identical: Whether every value is the same bit for bit as (pixel - mean) * scale in float32,
            or (pixel * (1 / 255) - mean) * (1 / std) where the work has std.
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
        images: (N, C, H, W) as delivered; of resized ones some at the beginning are looked at.
        records: Number of the record of each.
    """
    if work.resized_crop:
        images, records = images[:_NUM_RESIZED], list(records)[:_NUM_RESIZED]
    with contextlib.closing(Records(database, work)) as source:
        originals = [_pixels(source, work, record) for record in records]
    differences, identical, places = [], True, []
    find = _find_resized if work.resized_crop else _find_cut
    for image, pixels in zip(images, originals, strict=True):
        levels = _levels(work, image)
        place, cut = find(levels, pixels)
        places.append(place)
        expected = _done(work, cut)
        identical = identical and bool(np.array_equal(expected, image))
        differences.append(np.abs(_levels(work, expected) - levels))
    return Verdict(
        num_images=len(places),
        identical=identical,
        max_levels=float(np.max(differences)),
        mean_levels=float(np.mean(differences)),
        mirrored=sum(mirrored for *_, mirrored in places),
        places=len({tuple(place) for *place, _ in places}),
    )


def _pixels(source: Records, work: Work, record: int) -> npt.NDArray[np.uint8]:
    """Return a record's image, (C, H, W) uint8, in the order of the work's channels."""
    (payload,), _ = source.take(record, 1)
    channels, height, width = work.shape
    if not work.encoded:
        return np.frombuffer(bytes(payload), np.uint8).reshape(work.shape)
    decoded = decode_simplejpeg(payload, np.empty((height, width, channels), np.uint8))
    planes = decoded.transpose(2, 0, 1)
    return planes[::-1] if work.std else planes


def _done(work: Work, cut: npt.NDArray[np.uint8]) -> npt.NDArray[Any]:
    """Return pixels after the mean and the scale."""
    if work.dtype == "uint8":
        return cut
    values = cut.astype(np.float32)
    if work.std:
        mean, std = (np.array(c, np.float64).reshape(-1, 1, 1) for c in (work.mean, work.std))
        values = values * np.float32(1 / 255) - mean.astype(np.float32)
        return values * (1 / std).astype(np.float32)
    if work.mean:
        values -= np.array(work.mean, np.float32).reshape(-1, 1, 1)
    return values * np.float32(work.scale)


def _levels(work: Work, image: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Return an image's values as the pixels that they came from."""
    values = image.astype(np.float64)
    if work.dtype == "uint8":
        return values
    means: npt.NDArray[np.float64] = np.array(work.mean or (0.0,), np.float64).reshape(-1, 1, 1)
    if work.std:
        return (values * np.array(work.std, np.float64).reshape(-1, 1, 1) + means) * 255
    return values / work.scale + means


def _find_resized(
    image: npt.NDArray[np.float64], pixels: npt.NDArray[np.uint8]
) -> tuple[tuple[Any, ...], npt.NDArray[np.uint8]]:
    """Return the likest rectangle, whether it is mirrored last, and what it becomes."""
    from peers.resizing import rectangles  # noqa: PLC0415 - Pillow is needed for this alone

    place = rectangles.find(image, pixels)
    return dataclasses.astuple(place), rectangles.resized(pixels, place, image.shape[1])


def _find_cut(
    image: npt.NDArray[np.float64], pixels: npt.NDArray[np.uint8]
) -> tuple[tuple[Any, ...], npt.NDArray[np.uint8]]:
    """Return row and column of the likest place, whether it is mirrored, and what is there."""
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
    _, top, left, mirrored = min(best)
    cut = pixels[:, top : top + rows, left : left + columns]
    return (top, left, mirrored), cut[:, :, ::-1] if mirrored else cut
