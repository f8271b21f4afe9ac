"""Mixes a batch with itself, last sample first: in C, or in NumPy where the extension is missing.

Sample i and sample n - 1 - i are each other's partner, so a pair is mixed in place, both at once.

- mixup: x * lam + partner * (1 - lam) in float32: two products and a sum with a rounding each, of
  the values that the batch has; a batch of float16 or bfloat16 is rounded once more, to its type.
  1 - lam is rounded to float32.
- cutmix: the pixels within the box change places; nothing is calculated.

The middle sample of an odd number is its own partner. Both kernels give the same bits, but for
which NaN a NaN is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from prefetch._kernels import reference, selection

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._plan.mixing import Mix


class MixKernels(Protocol):
    """What mixes batches. Thread-safe; the GIL is released meanwhile."""

    def mix_rows(self, rows: NDArray[Any], lam: float, /) -> None:
        """Mix each row with its partner by weighted sums.

        Args:
            rows: (n, m) float32, float16, or uint16 (bfloat16 by its bits), C-contiguous.
            lam: Weight of the row itself, 0 to 1; a float32, exactly.
        """

    def swap_boxes(
        self, rows: NDArray[np.uint8], top: int, bottom: int, left: int, right: int, /
    ) -> None:
        """Exchange a box of each row with that of its partner.

        Args:
            rows: (n, planes, lines, bytes of a line), C-contiguous.
            top: First line of the box.
            bottom: The line behind its last.
            left: Its first byte of a line.
            right: The byte behind its last.
        """


class _NumPyKernels:
    """The kernels without a compiler."""

    def mix_rows(self, rows: NDArray[Any], lam: float, /) -> None:
        """Mix each row with its partner by weighted sums."""
        weight = np.float32(lam)
        rest = np.float32(1) - weight
        for row, partner in _pairs(rows):
            ours, theirs = _as_floats(row), _as_floats(partner)
            # Infinities of both signs make NaNs without a word, as in C.
            with np.errstate(invalid="ignore", over="ignore"):
                mixed = ours * weight + theirs * rest, theirs * weight + ours * rest
            reference.narrow(mixed[0], row)
            if partner is not row:
                reference.narrow(mixed[1], partner)

    def swap_boxes(
        self, rows: NDArray[np.uint8], top: int, bottom: int, left: int, right: int, /
    ) -> None:
        """Exchange a box of each row with that of its partner."""
        box = np.s_[:, top:bottom, left:right]
        for row, partner in _pairs(rows):
            ours = row[box].copy()
            row[box] = partner[box]
            partner[box] = ours


NUMPY_KERNELS: MixKernels = _NumPyKernels()


def mix_kernels() -> MixKernels:
    """Return the kernels that are in use; see `prefetch._kernels.selection`."""
    if selection.kernels is reference:
        return NUMPY_KERNELS
    return cast("MixKernels", selection.kernels)


def mix_batch(
    data: NDArray[Any], mix: Mix, *, channels_last: bool, kernels: MixKernels | None = None
) -> None:
    """Mix a batch in place, every sample with that at the same place from the end.

    Args:
        data: (n, ...) samples, C-contiguous; of bfloat16 by its bits, or as such. uint8 only for
            cutmix.
        mix: How.
        channels_last: Whether samples are height x width x channels.
        kernels: By default those that are in use.
    """
    kernels = mix_kernels() if kernels is None else kernels
    num, *shape = data.shape
    if mix.box is None:
        bits = data.view(np.uint16) if data.dtype.name == "bfloat16" else data
        kernels.mix_rows(bits.reshape(num, -1), mix.lam)
        return
    planes, lines, line_bytes, pixel_bytes = lines_of(shape, data.itemsize, channels_last)
    top, bottom, left, right = mix.box
    rows = data.view(np.uint8).reshape(num, planes, lines, line_bytes)
    kernels.swap_boxes(rows, top, bottom, left * pixel_bytes, right * pixel_bytes)


def lines_of(
    shape: list[int] | tuple[int, ...],
    itemsize: int,
    channels_last: bool,  # noqa: FBT001 - a field of the layout
) -> tuple[int, int, int, int]:
    """Return a sample's planes, the lines of each, the bytes of a line, and those of a pixel."""
    if channels_last:
        height, width, channels = shape
        return 1, height, width * channels * itemsize, channels * itemsize
    channels, height, width = shape
    return channels, height, width * itemsize, itemsize


def _pairs(rows: NDArray[Any]) -> list[tuple[NDArray[Any], NDArray[Any]]]:
    num = len(rows)
    views = list(rows)
    return [(views[i], views[num - 1 - i]) for i in range(math.ceil(num / 2))]


def _as_floats(row: NDArray[Any]) -> NDArray[np.float32]:
    if row.dtype == np.uint16:
        return (row.astype(np.uint32) << 16).view(np.float32)
    return row.astype(np.float32)
