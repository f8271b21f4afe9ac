"""Photographs of the size and weight of ImageNet's, with the same content on every machine.

scikit-learn ships two photographs. Each picture here is one of them, cut and stretched at random,
in other colours, with shapes drawn over it: no piece of one looks like a piece of another, and flat
and detailed places compress as they do in photographs. JPEG files of them, 4:2:0 as nearly all
photographs are, have about 92 kB for 500x375 pixels.
"""

from __future__ import annotations

import functools
import importlib.resources
from typing import TYPE_CHECKING

import cv2
import numpy as np
import simplejpeg

if TYPE_CHECKING:
    import numpy.typing as npt

_FILES = ("china.jpg", "flower.jpg")
_QUALITY = 94
_NUM_SHAPES = 24


def take(rng: np.random.Generator, height: int, width: int) -> npt.NDArray[np.uint8]:
    """Return a picture, (height, width, 3) uint8 BGR, that depends on the generator alone."""
    whole = _photograph(_FILES[rng.integers(len(_FILES))])
    share = rng.uniform(0.6, 1.0, 2)
    rows, columns = (np.array(whole.shape[:2]) * share).astype(int)
    top, left = rng.integers(0, (whole.shape[0] - rows + 1, whole.shape[1] - columns + 1))
    cut = whole[top : top + rows, left : left + columns, rng.permutation(3)]
    picture = np.empty((height, width, 3), np.uint8)
    cv2.resize(cut, (width, height), dst=picture, interpolation=cv2.INTER_CUBIC)
    if rng.integers(2):
        cv2.flip(picture, 1, dst=picture)
    for _ in range(_NUM_SHAPES):
        _draw(rng, picture)
    noise = np.asarray(rng.normal(0, rng.uniform(2, 8), picture.shape), np.float32)
    noisy: npt.NDArray[np.float32] = np.clip(picture + noise, 0, 255)
    return noisy.astype(np.uint8)


def encode(picture: npt.NDArray[np.uint8]) -> bytes:
    """Return the JPEG file of a picture in BGR."""
    file: bytes = simplejpeg.encode_jpeg(
        picture, quality=_QUALITY, colorspace="BGR", colorsubsampling="420"
    )
    return file


def _draw(rng: np.random.Generator, picture: npt.NDArray[np.uint8]) -> None:
    """Draw a shape of any colour: the outline of an ellipse, or a filled rectangle."""
    height, width = picture.shape[:2]
    x, y = (int(place) for place in rng.integers(0, (width, height)))
    half_x, half_y = (int(size) for size in rng.integers(4, (width // 10, height // 10)))
    color = [int(value) for value in rng.integers(0, 256, 3)]
    if rng.integers(2):
        cv2.ellipse(picture, (x, y), (half_x, half_y), 0, 0, 360, color, 3, cv2.LINE_AA)
    else:
        cv2.rectangle(picture, (x, y), (x + half_x, y + half_y), color, cv2.FILLED)


@functools.cache
def _photograph(name: str) -> npt.NDArray[np.uint8]:
    file = importlib.resources.files("sklearn.datasets").joinpath("images", name).read_bytes()
    picture: npt.NDArray[np.uint8] = simplejpeg.decode_jpeg(file, colorspace="BGR")
    return picture
