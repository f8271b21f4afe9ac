"""JPEG files of all kinds, and windows of them, drawn for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import cv2
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SAMPLINGS: Final = {
    "4:1:1": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_411,
    "4:2:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_420,
    "4:2:2": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_422,
    "4:4:0": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_440,
    "4:4:4": cv2.IMWRITE_JPEG_SAMPLING_FACTOR_444,
}
GREY: Final = "grey"
KINDS: Final = (*SAMPLINGS, GREY)
MCU_WIDTHS: Final = {"4:1:1": 32, "4:2:0": 16, "4:2:2": 16, "4:4:0": 8, "4:4:4": 8, GREY: 8}


def draw_picture(rng: np.random.Generator, height: int, width: int, kind: str) -> NDArray[np.uint8]:
    """Return something smooth with noise on it, uint8 (height, width, channels)."""
    channels = 1 if kind == GREY else 3
    coarse = rng.integers(0, 256, (height // 8 + 1, width // 8 + 1, channels), np.uint8)
    smooth = cv2.resize(coarse, (width, height)).reshape(height, width, channels).astype(np.int16)
    noisy = smooth + rng.integers(-20, 20, smooth.shape, np.int16)
    pixels: NDArray[np.uint8] = noisy.clip(0, 255).astype(np.uint8)
    return pixels


def encode(
    image: NDArray[np.uint8],
    kind: str,
    *,
    quality: int = 90,
    interval: int = 0,
    progressive: bool = False,
) -> bytes:
    """Return the JPEG of an image, with a restart marker after so many MCUs; 0 for none."""
    options = [
        *(cv2.IMWRITE_JPEG_QUALITY, quality),
        *(cv2.IMWRITE_JPEG_SAMPLING_FACTOR, SAMPLINGS.get(kind, SAMPLINGS["4:4:4"])),
        *(cv2.IMWRITE_JPEG_RST_INTERVAL, interval),
        *(cv2.IMWRITE_JPEG_PROGRESSIVE, int(progressive)),
    ]
    return cv2.imencode(".jpg", image, options)[1].tobytes()


def draw_interval(rng: np.random.Generator, width: int, kind: str) -> int:
    """Return a restart interval by which an image is cut in rows and columns."""
    num = -(-width // MCU_WIDTHS[kind])
    divisors = [one for one in range(1, num + 1) if num % one == 0]
    return int(rng.choice([*divisors, 2 * num, 3 * num]))


def draw_box(rng: np.random.Generator, height: int, width: int) -> tuple[int, int, int, int]:
    """Return top, left, height and width of a window of an image."""
    rows, columns = int(rng.integers(1, height + 1)), int(rng.integers(1, width + 1))
    top, left = rng.integers(0, height - rows + 1), rng.integers(0, width - columns + 1)
    return int(top), int(left), rows, columns
