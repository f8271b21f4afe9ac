"""Random-resized crops with OpenCV, for loaders that draw or normalise none themselves."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cv2
import numpy as np

if TYPE_CHECKING:
    import numpy.typing as npt

    from peers.works import Work

AREA = (0.08, 1.0)
"""The least and the most of an image's area that a rectangle takes."""

RATIO = (3 / 4, 4 / 3)
"""The least and the greatest width of a rectangle, over its height."""

NUM_TRIES = 10


def draw(rng: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a rectangle, as torchvision and DALI draw it."""
    for _ in range(NUM_TRIES):
        area = height * width * rng.uniform(*AREA)
        ratio = math.exp(rng.uniform(math.log(RATIO[0]), math.log(RATIO[1])))
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            top = int(rng.integers(height - rows + 1))
            left = int(rng.integers(width - columns + 1))
            return top, left, rows, columns
    # All of the image, less what its ratio is beyond the limits, in the middle.
    rows = min(height, round(width / RATIO[0]))
    columns = min(width, round(height * RATIO[1]))
    return (height - rows) // 2, (width - columns) // 2, rows, columns


class Normaliser:
    """Writes RGB images into rows of a batch, for one thread.

    Args:
        work: Its size, mean and std.
    """

    def __init__(self, work: Work) -> None:
        mean, std = np.array(work.mean), np.array(work.std)
        self._factor = (1 / (255 * std)).tolist()
        self._offset = (-mean / std).tolist()
        self._planes = list(np.empty(work.sample_shape, np.uint8))
        self._flipped = np.empty(work.sample_shape[1:], np.uint8)

    def write(
        self, image: npt.NDArray[np.uint8], row: npt.NDArray[np.float32], *, mirrored: bool
    ) -> None:
        """Write (pixel / 255 - mean) / std of (H, W, 3) uint8 into (3, H, W) float32."""
        cv2.split(image, mv=self._planes)
        parts = zip(self._planes, self._factor, self._offset, row, strict=True)
        for plane, factor, offset, values in parts:
            source = cv2.flip(plane, 1, dst=self._flipped) if mirrored else plane
            # One pass from uint8 to float32; NumPy would need three.
            cv2.addWeighted(source, factor, source, 0, offset, dst=values, dtype=cv2.CV_32F)
