"""The blobs of a batch: Caffe's, with as many values as the batch has."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from memory import Blob, Head, ShapeMismatchError

_MOST_SHOWN: Final = 64  # labels; of more the first and the last three
_LONGEST_LINE: Final = 10_000


class BatchBlob(Blob):
    """A blob over a batch's memory, which is reshaped only to as many values."""

    __slots__ = ()

    def _resize(self, dims: tuple[int, ...]) -> None:
        # Fewer values would cut off examples that keys and labels still count; more would be new
        # memory, all zeros. What is no shape at all is refused below.
        is_shape = all(dim >= 0 for dim in dims)
        if self._data is not None and is_shape and math.prod(dims) != self._count:
            raise ShapeMismatchError(
                "reshape",
                expected=self._shape,
                found=dims,
                cure=f"a batch's blob keeps its {self._count} values; NumPy's reshape is "
                "batch.data.numpy().reshape",
            )
        super()._resize(dims)

    def __repr__(self) -> str:
        text = super().__repr__()
        # Only what is on the host already: a look at a blob neither waits nor copies.
        on_host = self._data is not None and self._data.head in {Head.HEAD_AT_CPU, Head.SYNCED}
        if not on_host or len(self._shape) != 1:
            return text
        values = np.array2string(
            self.cpu_data(), threshold=_MOST_SHOWN, max_line_width=_LONGEST_LINE
        )
        return f"{text[:-1]}: {values}>"
