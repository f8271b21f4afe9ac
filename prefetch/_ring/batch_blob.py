"""The blobs of a batch: Caffe's, with as many values as the batch has."""

from __future__ import annotations

import math

from memory import Blob, ShapeMismatchError


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
