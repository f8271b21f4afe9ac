"""Decoded images resized before they are kept (``cache.decoded.shorter``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from prefetch._kernels.contract import ResizeKind, Resizing
from prefetch._plan.random_words import NUM_WORDS
from prefetch._record.decode import MAX_PIXELS
from prefetch._record.faults import BadRecordError, Reason
from prefetch._transform.options import Transform

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.contract import Kernels

_NO_WORDS: Final = np.zeros(NUM_WORDS, np.uint32)


class ShorterImages:
    """Resizes images, bilinear and antialiased, as ``transform.resize: {shorter: S}`` does.

    Args:
        shorter: What their shorter side is to be, in pixels.
        kernels: What resizes.
    """

    def __init__(self, shorter: int, kernels: Kernels) -> None:
        self._shorter = shorter
        self._kernels = kernels
        self._resizing = resizing = Resizing(
            ResizeKind.SHORTER_SIDE, shorter, shorter, bicubic=False
        )
        self._recipe = Transform(
            train=False, layout="nhwc", dtype=np.dtype(np.uint8), resizing=resizing
        ).recipe

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Return the (height, width, channels) that an image of such becomes.

        Raises:
            BadRecordError: It would have more pixels than any image may.
        """
        height, width, channels = shape
        new_height, new_width = self._resizing.resized(height, width)
        if new_height * new_width > MAX_PIXELS:
            numbers = height, width, self._shorter, MAX_PIXELS
            raise BadRecordError(Reason.RESIZED_TOO_LARGE, numbers)
        return new_height, new_width, channels

    def resize(self, image: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Resize an image.

        Args:
            image: uint8 (height, width, channels), C-contiguous.

        Returns:
            The same, C-contiguous; the image itself where it has that size.

        Raises:
            BadRecordError: As `shape`; or the kernel does not take it.
        """
        shape = self.shape(image.shape)
        if shape == image.shape:
            return image
        made = np.empty(shape, np.uint8)
        outcome = self._kernels.fill_image(image, _NO_WORDS, made, self._recipe, None)
        if outcome is not None:
            raise BadRecordError(Reason(outcome[0]), outcome[1])
        return made
