"""Which box of an image goes into a row: of a crop, and of a random-resized crop.

The random-resized crop is that of torchvision, timm and DALI: ten tries at a box of a drawn share
of the image's area and a drawn ratio of its sides, at a drawn place; where none fits, the largest
box in the middle with a ratio within the bounds. The C kernel has the same in `native/boxes.c`, to
the bit: doubles with a rounding after each operation, and the C library's exp on both sides.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final, NamedTuple

from prefetch._kernels.contract import ResizeKind
from prefetch._plan.random_words import NUM_WORDS, Word, draw_between, reduce_word

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prefetch._kernels.contract import Recipe, Resizing

_TRIES: Final = 10
_WORDS_A_TRY: Final = 4


class Box(NamedTuple):
    """A box of pixels of an image.

    Attributes:
        top: Its first row.
        left: Its first column.
        height: In pixels.
        width: In pixels.
    """

    top: int
    left: int
    height: int
    width: int


def both_sides(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return height and width of a size that may be one number for both."""
    return size if isinstance(size, tuple) else (size, size)


def needs_box(recipe: Recipe) -> bool:
    """Return whether a row may be made of a part of its image."""
    if recipe.resizing is not None:
        return recipe.resizing.kind == ResizeKind.RANDOM_CROP
    return recipe.crop_height > 0 and not recipe.pad


def needed_box(draws: Sequence[int], height: int, width: int, recipe: Recipe) -> Box:
    """Return the box of an image that its row is made of.

    Args:
        draws: The record's random words.
        height: Of the image, in pixels.
        width: Likewise.
        recipe: What is done to it.
    """
    if recipe.resizing is not None:
        return resized_box(draws, height, width, recipe.resizing)
    if recipe.pad:
        return Box(0, 0, height, width)
    return crop_box(draws, height, width, recipe)


def crop_box(draws: Sequence[int], height: int, width: int, recipe: Recipe) -> Box:
    """Return the box that the crop takes of pixels of some height and width.

    All of them without a crop, and where they are too few for it.
    """
    rows, columns = recipe.crop_height, recipe.crop_width
    if not rows or rows > height or columns > width:
        return Box(0, 0, height, width)
    if not recipe.random_crop:
        return Box((height - rows) // 2, (width - columns) // 2, rows, columns)
    top = reduce_word(draws[Word.ROW], height - rows + 1, modulo=recipe.modulo)
    left = reduce_word(draws[Word.COLUMN], width - columns + 1, modulo=recipe.modulo)
    return Box(top, left, rows, columns)


def resized_box(draws: Sequence[int], height: int, width: int, resizing: Resizing) -> Box:
    """Return the box of an image that is resized."""
    if resizing.kind != ResizeKind.RANDOM_CROP:
        return Box(0, 0, height, width)
    for start in range(NUM_WORDS, NUM_WORDS + _TRIES * _WORDS_A_TRY, _WORDS_A_TRY):
        area_word, ratio_word, row_word, column_word = draws[start : start + _WORDS_A_TRY]
        share = draw_between(area_word, resizing.least_scale, resizing.most_scale)
        area = share * height * width
        ratio = math.exp(
            draw_between(ratio_word, resizing.log_least_ratio, resizing.log_most_ratio)
        )
        columns, rows = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < columns <= width and 0 < rows <= height:
            top = reduce_word(row_word, height - rows + 1, modulo=False)
            left = reduce_word(column_word, width - columns + 1, modulo=False)
            return Box(top, left, rows, columns)
    ratio = width / height
    rows, columns = height, width
    if ratio < resizing.least_ratio:
        rows = max(1, round(width / resizing.least_ratio))
    elif ratio > resizing.most_ratio:
        columns = max(1, round(height * resizing.most_ratio))
    return Box((height - rows) // 2, (width - columns) // 2, rows, columns)
