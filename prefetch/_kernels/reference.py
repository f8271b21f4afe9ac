"""The NumPy twin of the C kernel: Datum records into a part of a batch, checked and transformed.

It is the oracle that the kernel is tested against, and what runs where there is no compiler. Both
satisfy `prefetch._kernels.contract.Kernels`, and answer with the same integers:

- fill() takes the records of a part. A raw one is parsed, checked and transformed into its row; an
  encoded one is only located, since decoding is left to an image library.
- fill_image() takes one decoded image and its row.

The arithmetic is Caffe's: (float32(pixel) - mean) * scale, two float32 operations with a rounding
each, so that results equal Caffe's bit for bit; with ``unit_range`` the pixel is multiplied by
1/255 first, with a rounding of its own. float16 and bfloat16 are rounded from that float32 result.

Pixels that are made of other pixels come first: an image is resized
(`prefetch._kernels.resize`), or a drawn box of it (`prefetch._kernels.boxes`), then padded.

What is checked of a record, in this order; the first that fails is the record's fault:

1. it parses as a Datum (its label is stored from here on, whatever follows);
2. encoded: its data is not empty; nothing more is asked of it here;
3. data holds something, or else float_data does (where both do, data wins, as in Caffe);
4. channels, height and width are at least 1, and their product is the number of pixels;
5. uint8 pixels do not look like height x width x channels: width 3 or 4, and both channels and
   height above 16, as when the sizes of a photograph are copied from an array of shape
   (240, 320, 3). A feature map of such a shape, should there be one, can be stored as float_data;
6. float_data is not to become uint8;
7. the channels, and without a crop the height and width, are those of the batch;
8. mean_value and scale have one value, or one a channel; the mean image has the record's shape;
9. uint8 pixels alone are resized;
10. uint8 pixels alone, of one channel or three, have their colours changed;
11. the crop fits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._kernels.boxes import crop_box, needed_box, resized_box
from prefetch._kernels.contract import ENCODED, Outcome, Part, Recipe
from prefetch._kernels.erasing import erase
from prefetch._kernels.jitter import jitter
from prefetch._kernels.resize import Interpolation, resize
from prefetch._plan.random_words import ERASING_WORDS, JITTER_WORDS, Word, reduce_word
from prefetch._record.faults import BadRecordError, Reason
from prefetch._record.layouts.datum import DATUM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from prefetch._record.layout import Content


UNIT: Final = np.float32(1 / 255)
"""What pixels are multiplied by to lie between 0 and 1."""

_BLOCK_BYTES = 1 << 18
"""Rows are finished in blocks of about this many bytes: small enough to stay in a core's cache,
large enough that small records share the cost of a NumPy call (2x for 28 x 28 pixels)."""


def fill(
    values: Sequence[memoryview],
    words: NDArray[np.uint32],
    data: NDArray[Any],
    labels: NDArray[Any] | None,
    recipe: Recipe,
    *,
    read: Callable[[memoryview], Content] = DATUM.read,
) -> list[Outcome]:
    """Fill part of a batch from its records.

    Args:
        values: The records, each the bytes of a Datum, or of what ``read`` takes.
        words: uint32 (n, k), the raw random words of each: mirror, row and column of the crop, then
            those of the operations that draw more.
        data: (n, ...) float32, float16, uint16 (bfloat16 by its bits, for which buffers have no
            name) or uint8, C-contiguous; the rows of the batch to fill.
        labels: (n,) of any integer or float type, or None for no labels.
        recipe: What to do.
        read: Reads a record; of a layout that the C kernel does not know.

    Returns:
        The records that were not filled in, by position, with the reason; their rows are
        unspecified, and the labels of those that did not parse are 0.
    """
    outcomes: list[Outcome] = []
    draws = words.tolist()
    numbers = np.zeros(len(values), np.int32)
    expected = _stored_shape(data.shape[1:], recipe)
    fitting: tuple[int, ...] | None = None  # neighbours mostly have the same shape
    step = max(1, _BLOCK_BYTES // max(1, data[:1].nbytes))
    # Rows that were not filled in are computed along with their block; they are not used.
    with np.errstate(all="ignore"):
        for start in range(0, len(values), step):
            out = data[start : start + step]
            stage = _stage(out)
            is_empty = True
            for row, value in enumerate(values[start : start + step]):
                position = start + row
                try:
                    content = read(value)
                    numbers[position] = content.label
                    if content.kind == "encoded":
                        content.image_bytes()
                        outcomes.append((position, ENCODED, ()))
                        continue
                    pixels = content.pixels(data.dtype)
                    if pixels.shape != fitting or recipe.makes_pixels:
                        check_fit(pixels.shape, recipe, expected, is_uint8=pixels.dtype == np.uint8)
                        fitting = pixels.shape
                    _place(pixels, draws[position], stage[row], recipe)
                    is_empty = False
                except BadRecordError as bad:
                    outcomes.append((position, int(bad.reason), bad.numbers))
            if not is_empty:
                _finish(stage, out, draws[start : start + step], recipe)
        if labels is not None:
            np.copyto(labels, numbers, casting="unsafe")
    return outcomes


def fill_image(
    image: NDArray[np.uint8],
    words: NDArray[np.uint32],
    row: NDArray[Any],
    recipe: Recipe,
    part: Part | None,
) -> tuple[int, tuple[int, ...]] | None:
    """Fill one row of a batch from a decoded image.

    Args:
        image: uint8 (height, width, channels), C-contiguous, blue first.
        words: uint32 (k,), the image's raw random words, as for `fill`.
        row: Of a type that `fill` takes, C-contiguous; the row to fill.
        recipe: What to do.
        part: Which part of the whole the image is; None for all of it. It holds all that the row
            is made of (`prefetch._kernels.boxes.needed_box`).

    Returns:
        None, or (reason, numbers) where the image does not fit; the row is unspecified then.

    Raises:
        ValueError: The part lacks pixels that the row is made of.
    """
    pixels = image.transpose(2, 0, 1)
    if part is not None:
        pixels = _in_whole(pixels, words, recipe, part)
    try:
        check_fit(pixels.shape, recipe, _stored_shape(row.shape, recipe))
    except BadRecordError as bad:
        return int(bad.reason), bad.numbers
    fill_pixels(pixels, words, row, recipe)
    return None


def fill_pixels(
    pixels: NDArray[Any], words: NDArray[np.uint32], row: NDArray[Any], recipe: Recipe
) -> None:
    """Fill one row of a batch from pixels that are known to fit.

    Args:
        pixels: uint8 or float32 (channels, height, width), of any strides.
        words: uint32 (k,), the image's raw random words, as for `fill`.
        row: Of a type that `fill` takes, C-contiguous; the row to fill.
        recipe: What to do.
    """
    out = row[np.newaxis]
    stage = _stage(out)
    draws = words.tolist()
    with np.errstate(all="ignore"):
        _place(pixels, draws, stage[0], recipe)
        _finish(stage, out, [draws], recipe)


def check_fit(
    shape: tuple[int, ...],
    recipe: Recipe,
    expected: tuple[int, int, int] | None = None,
    *,
    is_uint8: bool = True,
) -> None:
    """Check that a record fits the batch and the transformation.

    Args:
        shape: (channels, height, width) of the record, before any crop.
        recipe: What is to be done to it.
        expected: The same of the batch's rows, after the crop; None where this record decides.
        is_uint8: Whether its pixels are of uint8, not float32.

    Raises:
        BadRecordError: It does not fit.
    """
    channels, height, width = shape
    if expected is not None and channels != expected[0]:
        raise BadRecordError(Reason.CHANNELS_DIFFER, (channels, height, width, expected[0]))
    size = recipe.whole_size(height, width)
    if expected is not None and not recipe.crop_height and size != expected[1:]:
        raise BadRecordError(Reason.SIZE_DIFFERS, (channels, *size, *expected))
    if recipe.mean_value.size not in (0, 1, channels):
        raise BadRecordError(Reason.MEAN_VALUES_DIFFER, (channels, recipe.mean_value.size))
    if recipe.scale.size not in (1, channels):
        raise BadRecordError(Reason.SCALES_DIFFER, (channels, recipe.scale.size))
    if recipe.mean_image is not None and recipe.mean_image.shape != (channels, height, width):
        mean_shape = recipe.mean_image.shape
        raise BadRecordError(Reason.MEAN_IMAGE_DIFFERS, (channels, height, width, *mean_shape))
    if recipe.resizing is not None and not is_uint8:
        raise BadRecordError(Reason.FLOATS_FOR_RESIZE, ())
    if recipe.jitter is not None and not is_uint8:
        raise BadRecordError(Reason.FLOATS_FOR_JITTER, ())
    if recipe.jitter is not None and channels not in (1, 3):
        raise BadRecordError(Reason.CHANNELS_FOR_JITTER, (channels,))
    if size[0] < recipe.crop_height or size[1] < recipe.crop_width:
        crop = recipe.crop_height, recipe.crop_width
        raise BadRecordError(Reason.SMALLER_THAN_CROP, (*size, *crop))


def _stored_shape(sample: tuple[int, ...], recipe: Recipe) -> tuple[int, int, int]:
    """Return (channels, height, width) of a row of the batch."""
    if recipe.channels_last:
        height, width, channels = sample
    else:
        channels, height, width = sample
    return channels, height, width


def _stage(out: NDArray[Any]) -> NDArray[Any]:
    """Return where rows are computed: the batch itself, or float32 scratch for 16 bits."""
    return np.empty(out.shape, np.float32) if out.dtype.itemsize == 2 else out


def _place(pixels: NDArray[Any], draws: Sequence[int], row: NDArray[Any], recipe: Recipe) -> None:
    """Copy the chosen window of one record into its row, less the mean image.

    Args:
        pixels: uint8 or float32 (channels, height, width), of any strides.
        draws: The record's random words.
        row: float32 or uint8, in the layout of the batch.
        recipe: What to do.
    """
    target = row.transpose(2, 0, 1) if recipe.channels_last else row
    pixels = _made_pixels(pixels, draws, recipe)
    top, left, height, width = crop_box(draws, pixels.shape[1], pixels.shape[2], recipe)
    if recipe.jitter is not None:
        window = pixels[:, top : top + height, left : left + width]
        pixels = jitter(window, draws[recipe.columns_of(JITTER_WORDS)], recipe.jitter)
        top = left = 0
    mirrored = recipe.mirror and reduce_word(draws[Word.MIRROR], 2, modulo=recipe.modulo) == 1
    source = _window(pixels, top, left, recipe, mirrored=mirrored)
    if recipe.channels_last and pixels.strides[0] > pixels.strides[2]:
        for plane, channel in zip(target, source, strict=True):  # 4x faster than in one piece
            np.copyto(plane, channel)
    else:
        np.copyto(target, source)
    if recipe.mean_image is not None:
        mean = _window(recipe.mean_image, top, left, recipe, mirrored=mirrored)
        np.subtract(target, mean, out=target)


def _in_whole(
    pixels: NDArray[np.uint8], words: NDArray[np.uint32], recipe: Recipe, part: Part
) -> NDArray[np.uint8]:
    """Return the whole image with zeros where its part (channels, rows, columns) is not."""
    top, left, height, width = part
    channels, rows, columns = pixels.shape
    box = needed_box(words.tolist(), height, width, recipe)
    if not (
        top <= box.top
        and left <= box.left
        and box.top + box.height <= top + rows <= height
        and box.left + box.width <= left + columns <= width
    ):
        raise ValueError(f"{box} of {height} x {width} is not within the part that was decoded")
    whole = np.zeros((channels, height, width), np.uint8)
    whole[:, top : top + rows, left : left + columns] = pixels
    return whole


def _made_pixels(pixels: NDArray[Any], draws: Sequence[int], recipe: Recipe) -> NDArray[Any]:
    """Return the pixels that the crop is taken from: those given, or made of them."""
    resizing = recipe.resizing
    if resizing is not None:
        _, height, width = pixels.shape
        box = resized_box(draws, height, width, resizing)
        pixels = resize(
            pixels[:, box.top : box.top + box.height, box.left : box.left + box.width],
            *resizing.resized(height, width),
            Interpolation.BICUBIC if resizing.bicubic else Interpolation.BILINEAR,
        )
    if recipe.pad:
        around = (recipe.pad, recipe.pad)
        pixels = np.pad(pixels, ((0, 0), around, around))
    return pixels


def _window(
    planes: NDArray[Any], top: int, left: int, recipe: Recipe, *, mirrored: bool
) -> NDArray[Any]:
    """Return the crop of (channels, height, width), mirrored, channels in delivered order."""
    if recipe.crop_height:
        planes = planes[:, top : top + recipe.crop_height, left : left + recipe.crop_width]
    if mirrored:
        planes = planes[:, :, ::-1]
    if recipe.swap_channels and len(planes) == 3:
        return planes[::-1]
    if recipe.swap_channels and len(planes) == 4:
        return planes[[2, 1, 0, 3]]
    return planes


def _finish(
    stage: NDArray[Any], out: NDArray[Any], draws: Sequence[Sequence[int]], recipe: Recipe
) -> None:
    """Go to 0 to 1, subtract mean_value, multiply by scale, erase; round to the batch's type."""
    if recipe.unit_range:
        np.multiply(stage, UNIT, out=stage)
    if recipe.mean_value.size:
        _each_channel(np.subtract, stage, recipe.mean_value, recipe)
    if (recipe.scale != 1).any():
        _each_channel(np.multiply, stage, recipe.scale, recipe)
    if recipe.erasing is not None:
        columns = recipe.columns_of(ERASING_WORDS)
        for row, words in zip(stage, draws, strict=True):
            planes = row.transpose(2, 0, 1) if recipe.channels_last else row
            erase(planes, words[columns], recipe.erasing)
    if stage is not out:
        round_to(stage, out)


def round_to(floats: NDArray[np.float32], out: NDArray[Any]) -> None:
    """Round to float16, or to bfloat16 by its bits."""
    (_halve if out.dtype == np.float16 else _shorten)(floats, out)


def _halve(floats: NDArray[np.float32], halves: NDArray[np.float16]) -> None:
    """Round to float16. NaNs become quiet ones, as chips do it and NumPy on some chips only."""
    np.copyto(halves, floats, casting="same_kind")
    nans = np.isnan(floats)
    if nans.any():
        bits = floats[nans].view(np.uint32)
        quiet = bits >> 16 & 0x8000 | 0x7E00 | bits >> 13 & 0x03FF
        halves[nans] = quiet.astype(np.uint16).view(np.float16)


def _shorten(floats: NDArray[np.float32], shorts: NDArray[np.uint16]) -> None:
    """Round to bfloat16, to nearest and even. NaNs become quiet ones, as for float16."""
    bits = floats.view(np.uint32)
    rounded = bits + (bits >> 16 & 1) + 0x7FFF
    np.copyto(rounded, bits | 0x00400000, where=np.isnan(floats))
    np.copyto(shorts, rounded >> 16, casting="unsafe")


def _each_channel(
    operation: np.ufunc, stage: NDArray[Any], operands: NDArray[np.float32], recipe: Recipe
) -> None:
    """Apply an operation with one operand, or one a channel, to rows in place."""
    if operands.size == 1:
        operation(stage, operands[0], out=stage)
    elif recipe.channels_last:
        # NumPy crawls along an axis of three elements; along a line of pixels it is 5x faster.
        num, height, width, channels = stage.shape
        lines = stage.reshape(num, height, width * channels)
        operation(lines, np.tile(operands, width), out=lines)
    else:
        operation(stage, operands[:, np.newaxis, np.newaxis], out=stage)


def narrow(floats: NDArray[np.float32], out: NDArray[Any]) -> None:
    """Store float32 values in an array of a batch's type, rounded where that is a narrower one.

    Args:
        floats: Any shape.
        out: As many float32, float16, or uint16: bfloat16 by its bits.
    """
    if out.dtype == np.float32:
        out[...] = floats
        return
    round_to = _halve if out.dtype == np.float16 else _shorten
    round_to(floats, out)
