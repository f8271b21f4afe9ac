"""Records into boxes, for a device that resizes them: the host's part of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._kernels import selection
from prefetch._kernels.box_places import (
    PlacedBox,
    empty_places,
    find_axis,
    interpolation_of,
    place_box,
    place_window,
)
from prefetch._kernels.boxes import Box, crop_box, resized_box
from prefetch._kernels.contract import ENCODED
from prefetch._kernels.erasing import choose_erased, noise_key
from prefetch._kernels.reference import check_fit
from prefetch._kernels.resize import Taps, resizes_rows_first
from prefetch._plan.random_words import ERASING_WORDS, Word, reduce_word
from prefetch._record.faults import BadRecordError
from prefetch._source.mapped_records import views
from prefetch._transform.host import RecordTransformer
from prefetch._transform.operation import Stage
from prefetch._transform.record_filler import never_cancelled

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from prefetch._kernels.contract import Outcome, Part, Recipe
    from prefetch._record.faults import Fault
    from prefetch._source.mapped_records import MappedRecords
    from prefetch._transform.options import Transform
    from prefetch._transform.staged_rows import StagedRows


class BoxStager:
    """Stages the pixels that rows are made of, with their taps, for one thread.

    A box that its place is too small for is resized by the host, and staged as a window; so are
    all images where pixels are made in other ways too. Floats, which no place can carry, are
    finished by the host. Which box of a row is erased is chosen here.

    To the `RecordTransformer` that decodes the images it is the kernels
    (`prefetch._kernels.contract.Kernels`).

    Args:
        transform: What is done to each record; without a mean image.
        check_cancelled: As for `RecordTransformer`.
    """

    def __init__(
        self, transform: Transform, *, check_cancelled: Callable[[], object] = never_cancelled
    ) -> None:
        self._recipe = transform.recipe
        self._dtype = transform.row_dtype
        self._finishing_dtype = transform.dtype
        self._read = transform.decoding.record_layout.read
        cut = transform.restrict(Stage.DECODE, Stage.PIXELS)
        self._cut_recipe = cut.recipe
        self._cutting = RecordTransformer(cut)
        self._staging = RecordTransformer(
            cut, kernels=self, check_cancelled=check_cancelled, fill_values=self.fill
        )
        self._finishing = RecordTransformer(transform)
        self._leaves_pixels = self._recipe.pad == 0 and self._recipe.jitter is None
        self._window = (0, 0, 0)
        self._data: StagedRows | None = None

    def begin(self, data: StagedRows) -> None:
        """Empty a batch's places, and take the size of windows from it, for what follows."""
        empty_places(data.pixels)
        channels, height, width = data.place
        self._window = (channels, *self._recipe.window_size(height, width))
        self._data = data

    def stage(
        self,
        records: Sequence[memoryview] | MappedRecords,
        words: NDArray[np.uint32],
        data: StagedRows,
        labels: NDArray[Any] | None,
    ) -> list[Fault]:
        """Fill places from records; see `RecordTransformer.fill`."""
        self.begin(data)
        try:
            return self._staging.fill(list(views(records)), words, data.pixels, labels)
        finally:
            self._data = None  # the batch's memory is not ours

    def fill(
        self,
        values: Sequence[memoryview],
        words: NDArray[np.uint32],
        data: NDArray[Any],
        labels: NDArray[Any] | None,
        _recipe: Recipe,
        /,
    ) -> list[Outcome]:
        """Fill places from raw records; locate the encoded ones."""
        outcomes: list[Outcome] = []
        numbers = np.zeros(len(values), np.int32)
        for position, value in enumerate(values):
            try:
                content = self._read(value)
                numbers[position] = content.label
                if content.kind == "encoded":
                    content.image_bytes()
                    outcomes.append((position, ENCODED, ()))
                    continue
                pixels = content.pixels(self._dtype)
                is_uint8 = pixels.dtype == np.uint8
                check_fit(pixels.shape, self._recipe, self._window, is_uint8=is_uint8)
            except BadRecordError as bad:
                outcomes.append((position, int(bad.reason), bad.numbers))
                continue
            one = words[position : position + 1]
            if not is_uint8:
                faults = self._finish(position, value, one)
            elif self._place(pixels, words[position], data[position], None):
                continue
            else:
                row = self._place_window(words[position], data[position])
                faults = self._cutting.fill([value], one, row[np.newaxis], None)
            outcomes += [(position, fault.reason, fault.numbers) for fault in faults]
        if labels is not None:
            np.copyto(labels, numbers, casting="unsafe")
        return outcomes

    def fill_image(
        self,
        image: NDArray[np.uint8],
        words: NDArray[np.uint32],
        row: NDArray[Any],
        _recipe: Recipe,
        part: Part | None,
        /,
    ) -> tuple[int, tuple[int, ...]] | None:
        """Fill a place from a decoded image, or from the part of it that the row needs."""
        pixels = image.transpose(2, 0, 1)
        shape = pixels.shape if part is None else (len(pixels), *part[2:])
        try:
            check_fit(shape, self._recipe, self._window)
        except BadRecordError as bad:
            return int(bad.reason), bad.numbers
        if self._place(pixels, words, row, part):
            return None
        window = self._place_window(words, row)
        return selection.kernels.fill_image(image, words, window, self._cut_recipe, part)

    def _place(
        self,
        pixels: NDArray[np.uint8],
        words: NDArray[np.uint32],
        place: NDArray[np.uint8],
        part: Part | None,
    ) -> bool:
        """Write the box of an image that its row is made of; return whether it fits."""
        if not self._leaves_pixels:
            return False
        recipe, draws = self._recipe, words.tolist()
        top, left, height, width = part or (0, 0, *pixels.shape[1:])
        box, new_size, filter_kind = Box(0, 0, height, width), (height, width), None
        if recipe.resizing is not None:
            box = resized_box(draws, height, width, recipe.resizing)
            new_size = recipe.resizing.resized(height, width)
            filter_kind = interpolation_of(recipe.resizing)
        window = crop_box(draws, *new_size, recipe)
        rows = find_axis(box.height, new_size[0], filter_kind)
        columns = find_axis(box.width, new_size[1], filter_kind)
        rows, row, num_rows = _part_of(rows, window.top, window.height)
        columns, column, num_columns = _part_of(columns, window.left, window.width)
        row += box.top - top
        column += box.left - left
        erased, key = self._choose_erased(draws)
        chosen = PlacedBox(
            pixels[:, row : row + num_rows, column : column + num_columns],
            rows,
            columns,
            rows_first=resizes_rows_first(box.height, box.width, *new_size),
            mirrored=recipe.mirror
            and reduce_word(draws[Word.MIRROR], 2, modulo=recipe.modulo) == 1,
            erased=erased,
            noise_key=key,
        )
        return place_box(place, chosen)

    def _place_window(
        self, words: NDArray[np.uint32], place: NDArray[np.uint8]
    ) -> NDArray[np.uint8]:
        """Return where a window goes that the host makes."""
        return place_window(place, self._window, *self._choose_erased(words.tolist()))

    def _choose_erased(self, draws: Sequence[int]) -> tuple[Box | None, tuple[int, int]]:
        """Choose which box of a row is erased, and return it with the noise's key."""
        recipe = self._recipe
        if recipe.erasing is None:
            return None, (0, 0)
        erasing_words = draws[recipe.columns_of(ERASING_WORDS)]
        _, height, width = self._window
        return choose_erased(erasing_words, height, width, recipe.erasing), noise_key(erasing_words)

    def _finish(self, position: int, value: memoryview, words: NDArray[np.uint32]) -> list[Fault]:
        """Fill one row by the host alone."""
        assert self._data is not None
        channels, height, width = self._window
        shape = (height, width, channels) if self._recipe.channels_last else self._window
        sample = np.empty((1, *shape), self._finishing_dtype)
        faults = self._finishing.fill([value], words, sample, None)
        if not faults:
            self._data.finish(position, sample[0])
        return faults


def _part_of(taps: Taps, start: int, num: int) -> tuple[Taps, int, int]:
    """Return the taps of a part of an axis, the first pixel that they need, and how many."""
    firsts = taps.firsts[start : start + num]
    coefficients = taps.coefficients[start : start + num]
    first = int(firsts[0])  # they grow
    end = int(firsts[-1]) + coefficients.shape[1]
    return Taps(firsts - first, coefficients), first, end - first
