"""The places of a batch of boxes: pixels that the device is to resize, and what by.

A place is of any size that all of a batch have. It begins with words of 32 bits, `Word`;
behind them are the taps of the rows that are wanted, and those of the columns, each the `firsts`
and the `coefficients` of `prefetch._kernels.resize.Taps`; then the pixels, uint8, as they lie in
the image: channels apart or side by side. So a kernel needs whole numbers only, and no random word.

A window that the host has finished is a box too, whose pixels each have one tap, of 1. A place
whose words are 0 is empty: it has no taps, so nothing is read behind them, and its row is black.
"""

from __future__ import annotations

import math
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, cast

import numpy as np

from prefetch._kernels import selection
from prefetch._kernels.boxes import Box
from prefetch._kernels.resize import (
    FRACTION_BITS,
    Interpolation,
    Taps,
    find_taps,
    most_taps,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.contract import Recipe, Resizing
    from prefetch._kernels.resize import ResizeKernels

MOST_BYTES: Final = 1 << 32
"""A place is smaller: the kernel counts in 32 bits within it."""

_ALIGNMENT: Final = 16  # bytes, of places and of the pixels in them


class Word(IntEnum):
    """What the words at the beginning of a place are."""

    PIXELS_AT = 0
    """Where the pixels begin, in bytes from the start of the place."""
    CHANNEL_STEP = 1
    """In bytes, as the next two."""
    ROW_STEP = 2
    PIXEL_STEP = 3
    ROW_TAPS = 4
    """How many taps each row has."""
    COLUMN_TAPS = 5
    MIRRORED = 6
    """Whether the window is mirrored."""
    ROWS_FIRST = 7
    """Whether the height is changed before the width."""
    ERASED_TOP = 8
    """Of the box that is written over, in the window as it is delivered; as the next three."""
    ERASED_LEFT = 9
    ERASED_HEIGHT = 10
    """0: none is."""
    ERASED_WIDTH = 11
    NOISE_KEY = 12
    """The first of two words of the key of the noise that is written there."""


NUM_WORDS: Final = 16
"""Of a place, those that are not used included."""


class PlacedBox(NamedTuple):
    """What a place holds.

    Attributes:
        pixels: uint8 (channels, rows, columns), of any strides; those that the taps need.
        rows: The taps of the rows that are wanted, in these pixels.
        columns: Likewise.
        rows_first: Whether the height is changed before the width.
        mirrored: Whether the window is mirrored.
        erased: Which box of the row is written over; None for none.
        noise_key: Two words.
    """

    pixels: NDArray[np.uint8]
    rows: Taps
    columns: Taps
    rows_first: bool
    mirrored: bool
    erased: Box | None
    noise_key: tuple[int, int]


def interpolation_of(resizing: Resizing) -> Interpolation:
    """Return the filter that images are resized by."""
    return Interpolation.BICUBIC if resizing.bicubic else Interpolation.BILINEAR


def bytes_of_image(shape: tuple[int, int, int], recipe: Recipe) -> int:
    """Return the bytes of a place for any box of an image of (channels, height, width)."""
    channels, height, width = shape
    window = recipe.window_size(height, width)
    resizing = recipe.resizing
    if resizing is None:
        return bytes_of_window((channels, *window))
    resized = resizing.resized(height, width)
    num_taps = [
        most_taps(num_in, num_out, interpolation_of(resizing))
        for num_in, num_out in zip((height, width), resized, strict=True)
    ]
    return _nbytes((channels, height, width), window, (num_taps[0], num_taps[1]))


def bytes_of_window(shape: tuple[int, int, int]) -> int:
    """Return the bytes of a place for a finished window of (channels, height, width)."""
    return _nbytes(shape, shape[1:], (1, 1))


def empty_places(places: NDArray[np.uint8]) -> None:
    """Empty places, uint8 (n, bytes): a record that is bad leaves its place as it is."""
    places[:, : 4 * NUM_WORDS] = 0


def place_box(place: NDArray[np.uint8], box: PlacedBox) -> bool:
    """Write a box.

    Args:
        place: uint8 (n,), C-contiguous.
        box: What to write.

    Returns:
        Whether it fits; if not, nothing was written.
    """
    shape = box.pixels.shape
    channels, height, width = shape
    sizes = len(box.rows.firsts), len(box.columns.firsts)
    num_taps = box.rows.coefficients.shape[1], box.columns.coefficients.shape[1]
    if _nbytes((channels, height, width), sizes, num_taps) > place.nbytes:
        return False
    # As the image has them: turning a decoded image around takes longer than all the rest.
    if box.pixels.strides[0] == 1 < channels:
        steps = 1, channels * width, channels
    else:
        steps = height * width, width, 1
    np.copyto(_begin(place, shape, steps, box), box.pixels)
    return True


def place_window(
    place: NDArray[np.uint8],
    shape: tuple[int, int, int],
    erased: Box | None = None,
    noise_key: tuple[int, int] = (0, 0),
) -> NDArray[np.uint8]:
    """Write all but the pixels of a finished window, and return where they go.

    Args:
        place: uint8 (n,), C-contiguous; at least `bytes_of_window`.
        shape: (channels, height, width) of the window.
        erased: As of a `PlacedBox`.
        noise_key: Likewise.

    Returns:
        uint8 of that shape, C-contiguous.
    """
    _, height, width = shape
    rows, columns = _keep(height), _keep(width)
    box = PlacedBox(
        place,
        rows,
        columns,
        rows_first=False,
        mirrored=False,
        erased=erased,
        noise_key=noise_key,
    )
    return _begin(place, shape, (height * width, width, 1), box)


def read_box(place: NDArray[np.uint8], channels: int, rows: int, columns: int) -> PlacedBox | None:
    """Read a place; None where it is empty.

    Args:
        place: uint8 (n,), C-contiguous.
        channels: Of the pixels.
        rows: That are wanted.
        columns: Likewise.
    """
    words = place[: 4 * NUM_WORDS].view(np.uint32).tolist()
    if not any(words):
        return None
    numbers = place[: words[Word.PIXELS_AT]].view(np.int32)[NUM_WORDS:]
    taps = []
    for num_out, num_taps in ((rows, words[Word.ROW_TAPS]), (columns, words[Word.COLUMN_TAPS])):
        firsts, numbers = numbers[:num_out], numbers[num_out:]
        coefficients, numbers = numbers[: num_out * num_taps], numbers[num_out * num_taps :]
        taps.append(Taps(firsts, coefficients.reshape(num_out, num_taps)))
    height, width = (int(one.firsts.max()) + one.coefficients.shape[1] for one in taps)
    pixels: NDArray[np.uint8] = np.ndarray(
        (channels, height, width),
        np.uint8,
        buffer=place,
        offset=words[Word.PIXELS_AT],
        strides=(words[Word.CHANNEL_STEP], words[Word.ROW_STEP], words[Word.PIXEL_STEP]),
    )
    erased = Box(*words[Word.ERASED_TOP : Word.ERASED_WIDTH + 1])
    return PlacedBox(
        pixels,
        rows=taps[0],
        columns=taps[1],
        rows_first=bool(words[Word.ROWS_FIRST]),
        mirrored=bool(words[Word.MIRRORED]),
        erased=erased if erased.height else None,
        noise_key=(words[Word.NOISE_KEY], words[Word.NOISE_KEY + 1]),
    )


def find_axis(num_in: int, num_out: int, interpolation: Interpolation | None) -> Taps:
    """Find the taps of an axis, by the C kernel where it is there; one each where none changes."""
    if num_in == num_out or interpolation is None:
        return _keep(num_in)
    if selection.native is None:
        return find_taps(num_in, num_out, interpolation)
    kernels = cast("ResizeKernels", selection.native)
    firsts = np.empty(num_out, np.int32)
    coefficients = np.empty((num_out, most_taps(num_in, num_out, interpolation)), np.int32)
    num_taps = kernels.find_taps((num_in, num_out), interpolation, firsts, coefficients)
    return Taps(firsts, coefficients[:, :num_taps])


def _keep(num: int) -> Taps:
    """Return the taps of an axis that stays as it is."""
    return Taps(np.arange(num, dtype=np.int32), np.full((num, 1), 1 << FRACTION_BITS, np.int32))


def _pixels_at(sizes: tuple[int, int], num_taps: tuple[int, int]) -> int:
    """Return where the pixels begin, behind the taps."""
    counts = sum(size * (1 + taps) for size, taps in zip(sizes, num_taps, strict=True))
    return _rounded_up(4 * (NUM_WORDS + counts))


def _nbytes(shape: tuple[int, int, int], sizes: tuple[int, int], num_taps: tuple[int, int]) -> int:
    return _rounded_up(_pixels_at(sizes, num_taps) + math.prod(shape))


def _rounded_up(num: int) -> int:
    return -(-num // _ALIGNMENT) * _ALIGNMENT


def _begin(
    place: NDArray[np.uint8], shape: tuple[int, ...], steps: tuple[int, ...], box: PlacedBox
) -> NDArray[np.uint8]:
    """Write all of a place but its pixels, and return where they go."""
    arrays = (*box.rows, *box.columns)
    num_taps = box.rows.coefficients.shape[1], box.columns.coefficients.shape[1]
    pixels_at = _pixels_at((len(box.rows.firsts), len(box.columns.firsts)), num_taps)
    words = (pixels_at, *steps, *num_taps, box.mirrored, box.rows_first)
    words = (*words, *(box.erased or (0, 0, 0, 0)), *box.noise_key)
    numbers = place[:pixels_at].view(np.int32)
    numbers[: len(words)].view(np.uint32)[:] = words
    at = NUM_WORDS
    for array in arrays:
        numbers[at : at + array.size].reshape(array.shape)[:] = array
        at += array.size
    return np.ndarray(shape, np.uint8, buffer=place, offset=pixels_at, strides=steps)
