"""Sums of images, in C, or in NumPy where the extension is missing.

Every sum is formed in the order of the images, one addition and one rounding after the other, so
that both kernels give the same bits, and any division of the pixels among threads does.
"""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from prefetch._kernels import selection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Image = memoryview | NDArray[Any]


class SumKernels(Protocol):
    """What finds pixels and adds them up. Thread-safe; the GIL is released meanwhile."""

    def find_bytes(
        self, values: Sequence[memoryview], shape: tuple[int, int, int], /
    ) -> list[memoryview | None]:
        """Find the pixels of raw records.

        Args:
            values: The records, each the bytes of a Datum.
            shape: (channels, height, width) that they are expected to have.

        Returns:
            A view of the pixels of each, uint8 (n,), in the record's memory; None where it is not
            a sound record of that shape and of bytes, or where the kernel leaves it to the caller.
        """

    def add_up(self, images: Sequence[Image], first: int, sums: NDArray[Any], /) -> None:
        """Add some pixels of each image to sums.

        Args:
            images: Pixels, uint8 or float32, C-contiguous, all of as many.
            first: The first pixel to add, counted from 0.
            sums: (n,) float32 or float64, C-contiguous, of as many pixels as are added.
        """


class _NumPyKernels:
    """The kernels without a compiler."""

    def find_bytes(
        self, values: Sequence[memoryview], _shape: tuple[int, int, int], /
    ) -> list[memoryview | None]:
        """Leave all to the caller."""
        return list(repeat(None, len(values)))

    def add_up(self, images: Sequence[Image], first: int, sums: NDArray[Any], /) -> None:
        """Add some pixels of each image to sums."""
        for image in images:
            sums += np.asarray(image).reshape(-1)[first : first + sums.size]


NUMPY_KERNELS: SumKernels = _NumPyKernels()


def sum_kernels() -> SumKernels:
    """Return the kernels that are in use; see `prefetch._kernels.selection`."""
    if not selection.kernels_available:
        return NUMPY_KERNELS
    return cast("SumKernels", selection.kernels)
