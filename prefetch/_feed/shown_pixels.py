"""Pixels for people to look at, of batches that were normalised for a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._config.models import TransformConfig


def pixel_options(transform: TransformConfig) -> dict[str, Any]:
    """Return the options of ``transform`` by which another feed serves the same images to look at.

    They are served before mean and scale, but where something is erased: what that writes is
    measured in normalised values, so these are served, for `shown_pixels` to undo.
    """
    options: dict[str, Any] = {
        "where": "host",
        "dtype": "uint8" if transform.dtype == "uint8" else "float32",
    }
    if transform.random_erasing is None or transform.mean_file is not None:
        options |= {"mean_value": (), "mean_file": None, "scale": 1.0, "normalize": None}
    return options


def shown_pixels(images: NDArray[Any], transform: TransformConfig) -> NDArray[Any]:
    """Return a batch's images as they are shown: of normalised ones, the pixels they were made of.

    What is only Caffe's ``mean_value`` and ``scale`` stays as it is, and so does what had a mean
    image subtracted, whose place under each crop is not known here.

    Args:
        images: (n, channels, height, width).
        transform: What has been done to them.

    Returns:
        The same, or float32 between 0 and 255.
    """
    if transform.mean_file is not None:
        return images
    if transform.normalize is not None:
        std, mean = transform.normalize.std, transform.normalize.mean
        return _undo(images, np.multiply(std, 255.0), np.multiply(mean, 255.0))
    scale = np.atleast_1d(transform.scale)
    if transform.random_erasing is None or not scale.all():
        return images
    return _undo(images, 1.0 / scale, np.array(transform.mean_value or 0.0))


def _undo(images: NDArray[Any], factor: NDArray[Any], mean: NDArray[Any]) -> NDArray[np.float32]:
    pixels = images.astype(np.float32) * factor.reshape(-1, 1, 1) + mean.reshape(-1, 1, 1)
    # Normal numbers that were erased with may lie beyond black and white.
    return np.asarray(pixels.round(3).clip(0, 255), np.float32)
