"""Some rows of a staged batch, as threads fill them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from prefetch._kernels.device_kernel import WHOLE, WINDOW, window_of
from prefetch._plan.random_words import NUM_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.contract import Recipe
    from prefetch._plan.mixing import Mix


class StagedRows:
    """Some rows of a staged batch, to be filled. Threads may fill different rows of one batch.

    Args:
        pixels: uint8 (n, channels, height, width), C-contiguous: the records' places; or
            (n, box_bytes) of a batch of boxes.
        table: uint32 (n, 4): the random words of each, and its form; (n, 0) of boxes.
        finished: Rows finished on the host, by their number in the batch; of all of its rows.
        place: (channels, height, width) of each record's place; of boxes, of the image that the
            batch begins with.
        start: Number in the batch of the first of these rows.

    Attributes:
        pixels: As given.
        place: As given.
        mix: How the device mixes the whole batch, when it is transformed; None for not at all.
    """

    __slots__ = ("_finished", "_start", "_table", "mix", "pixels", "place")

    def __init__(
        self,
        pixels: NDArray[np.uint8],
        table: NDArray[np.uint32],
        finished: dict[int, NDArray[Any]],
        *,
        place: tuple[int, int, int],
        start: int = 0,
    ) -> None:
        self.pixels = pixels
        self.place = place
        self._table = table
        self._finished = finished
        self._start = start
        self.mix: Mix | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the pixels."""
        return self.pixels.nbytes

    @property
    def finished(self) -> dict[int, NDArray[Any]]:
        """The rows of the whole batch that were finished on the host, by number."""
        return self._finished

    def __getitem__(self, rows: slice) -> StagedRows:
        """Return some of the rows."""
        start, _, _ = rows.indices(len(self.pixels))
        return StagedRows(
            self.pixels[rows],
            self._table[rows],
            self._finished,
            place=self.place,
            start=self._start + start,
        )

    def begin(self, words: NDArray[np.uint32], *, windows: bool) -> None:
        """Reset the rows' words and forms before they are filled.

        Args:
            words: uint32 (n, k): the records' random words, of which the device has three.
            windows: Whether their places will have windows, not whole images.
        """
        self._table[:, :-1] = words[:, :NUM_WORDS]
        self._table[:, -1] = WINDOW if windows else WHOLE

    def window(self, row: int, recipe: Recipe) -> NDArray[np.uint8]:
        """Mark a row as a window, and return its memory: uint8 (1, channels, height, width)."""
        self._table[row, -1] = WINDOW
        return window_of(self.pixels[row], recipe)[np.newaxis]

    def finish(self, row: int, sample: NDArray[Any]) -> None:
        """Replace what the kernel will make of a row by a finished sample."""
        self._finished[self._start + row] = sample
