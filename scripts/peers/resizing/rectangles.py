"""Finding the rectangle of a picture that a resized image was made of.

The search compares means of cells, which sums over the picture's integral give at once for any
rectangle: first coarsely at rectangles of all sizes and places, then ever finer around the best,
and at last with the resized image itself, pixel by pixel, by Pillow's antialiased filter.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from peers.resizing.crops import AREA, RATIO

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

_COARSE, _FINE = 8, 28
"""Cells along a side of the image."""

_SIZES, _RATIOS = 14, 6
"""How many areas, and ratios of each, are tried first."""

_CANDIDATES = 6
"""How many of the coarse search's best are looked at finely."""


@dataclass(frozen=True, slots=True, order=True)
class Rectangle:
    """A place in a picture, in pixels, and whether it is mirrored."""

    top: int
    left: int
    height: int
    width: int
    mirrored: bool


def find(image: npt.NDArray[np.float64], picture: npt.NDArray[np.uint8]) -> Rectangle:
    """Return the likest rectangle of a picture.

    Args:
        image: (3, side, side), in levels of 0 to 255.
        picture: (3, height, width).
    """
    integral = np.zeros((3, picture.shape[1] + 1, picture.shape[2] + 1))
    integral[:, 1:, 1:] = picture.cumsum(1, dtype=np.float64).cumsum(2)
    wanted = {cells: _cell_means(image, cells) for cells in (_COARSE, _FINE)}
    found = []
    for mirrored in (False, True):
        coarse, fine = (
            wanted[cells][:, :, ::-1] if mirrored else wanted[cells] for cells in (_COARSE, _FINE)
        )
        # (number of rectangles, 4): top, left, height, width of each.
        boxes = np.concatenate(list(_boxes(*picture.shape[1:])))
        distances = _distances(integral, boxes, coarse)
        best = boxes[np.argsort(distances)[:_CANDIDATES]]
        for step in (8.0, 4.0, 2.0, 1.0):
            best = _refine(integral, best, fine, step)
        distances = _distances(integral, best, fine)
        place = int(distances.argmin())
        found.append((float(distances[place]), _rectangle(best[place], mirrored=mirrored)))
    return _settle(image, picture, min(found)[1])


def resized(picture: npt.NDArray[np.uint8], place: Rectangle, side: int) -> npt.NDArray[np.uint8]:
    """Return a rectangle of a picture, (3, side, side), as Pillow resizes it."""
    bottom, right = place.top + place.height, place.left + place.width
    cut = picture[:, place.top : bottom, place.left : right]
    small = Image.fromarray(np.ascontiguousarray(cut.transpose(1, 2, 0))).resize(
        (side, side), Image.Resampling.BILINEAR
    )
    pixels = np.asarray(small).transpose(2, 0, 1)
    return pixels[:, :, ::-1] if place.mirrored else pixels


def _rectangle(box: npt.NDArray[np.float64], *, mirrored: bool) -> Rectangle:
    top, left, height, width = (int(value) for value in box)
    return Rectangle(top, left, height, width, mirrored)


def _boxes(height: int, width: int) -> Iterator[npt.NDArray[np.float64]]:
    areas = np.geomspace(AREA[0], AREA[1], _SIZES) * height * width
    ratios = np.geomspace(*RATIO, _RATIOS)
    for area, ratio in itertools.product(areas, ratios):
        columns = min(math.sqrt(area * ratio), width)
        rows = min(math.sqrt(area / ratio), height)
        tops = np.linspace(0, height - rows, 1 + math.ceil((height - rows) / (rows / _COARSE)))
        lefts = np.linspace(
            0, width - columns, 1 + math.ceil((width - columns) / (columns / _COARSE))
        )
        places = np.stack(np.meshgrid(tops, lefts, indexing="ij"), axis=-1).reshape(-1, 2)
        yield np.concatenate([places, np.tile([rows, columns], (len(places), 1))], axis=1)


def _cell_means(image: npt.NDArray[np.float64], cells: int) -> npt.NDArray[np.float64]:
    side = image.shape[1]
    means: npt.NDArray[np.float64] = image.reshape(
        3, cells, side // cells, cells, side // cells
    ).mean(axis=(2, 4))
    return means


def _distances(
    integral: npt.NDArray[np.float64],
    boxes: npt.NDArray[np.float64],
    wanted: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Return the mean difference of each rectangle's cells to those that are wanted."""
    cells = wanted.shape[1]
    steps = np.arange(cells + 1) / cells
    rows = np.rint(boxes[:, :1] + boxes[:, 2:3] * steps).astype(np.intp)
    columns = np.rint(boxes[:, 1:2] + boxes[:, 3:] * steps).astype(np.intp)
    corners = integral[:, rows[:, :, None], columns[:, None, :]]  # (3, boxes, cells + 1, cells + 1)
    sums = np.diff(np.diff(corners, axis=2), axis=3)
    areas = np.diff(rows)[:, :, None] * np.diff(columns)[:, None, :]
    distances: npt.NDArray[np.float64] = np.abs(sums / areas - wanted[:, None]).mean(axis=(0, 2, 3))
    return distances


def _refine(
    integral: npt.NDArray[np.float64],
    boxes: npt.NDArray[np.float64],
    wanted: npt.NDArray[np.float64],
    step: float,
) -> npt.NDArray[np.float64]:
    """Move the edges of each rectangle by a step as long as that brings it nearer."""
    moves = np.array(list(itertools.product((-step, 0.0, step), repeat=4)))
    for number, box in enumerate(boxes):
        here = box
        while True:
            around = _inside(here + moves, integral.shape[1] - 1, integral.shape[2] - 1)
            nearest = around[_distances(integral, around, wanted).argmin()]
            if np.array_equal(nearest, here):
                break
            here = nearest
        boxes[number] = here
    return boxes


def _inside(boxes: npt.NDArray[np.float64], height: int, width: int) -> npt.NDArray[np.float64]:
    """Return the rectangles that lie within a picture, moved to whole pixels."""
    boxes = np.rint(boxes)
    least = 2 * _FINE
    fits = (
        (boxes[:, 0] >= 0)
        & (boxes[:, 1] >= 0)
        & (boxes[:, 2] >= least)
        & (boxes[:, 3] >= least)
        & (boxes[:, 0] + boxes[:, 2] <= height)
        & (boxes[:, 1] + boxes[:, 3] <= width)
    )
    return boxes[fits]


def _settle(
    image: npt.NDArray[np.float64], picture: npt.NDArray[np.uint8], place: Rectangle
) -> Rectangle:
    """Move a rectangle by a pixel at a time, as long as its own pixels come nearer."""
    side = image.shape[1]

    def distance(here: Rectangle) -> float:
        return float(np.abs(resized(picture, here, side) - image).mean())

    # One edge, or two of them at once.
    moves = np.array([move for move in itertools.product((-1, 0, 1), repeat=4) if any(move)])
    moves = moves[np.abs(moves).sum(axis=1) <= 2]
    least, best = distance(place), place
    while True:
        here = np.array([best.top, best.left, best.height, best.width], np.float64)
        around = [
            _rectangle(box, mirrored=place.mirrored)
            for box in _inside(here + moves, *picture.shape[1:])
        ]
        nearest = min((distance(one), one) for one in around)
        if nearest[0] >= least:
            return best
        least, best = nearest
