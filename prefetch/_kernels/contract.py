"""What every implementation of the transformation takes and returns."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


Outcome: TypeAlias = tuple[int, int, tuple[int, ...]]
"""(position, reason, numbers): a bad record, or with ENCODED for a reason an encoded one."""


ENCODED = 0
"""No fault: the record holds an encoded image, which is to be decoded and given to fill_image()."""


class Recipe(NamedTuple):
    """A transformation as the kernels take it; the C kernel reads it as a tuple, in this order.

    Which operation each field belongs to: `prefetch._transform.operation.OPERATIONS`.

    Attributes:
        crop_size: Side of the square crop, in pixels; 0 for none.
        random_crop: Whether the crop's place is drawn; otherwise it is the centre, rounded down.
        mirror: Whether each image is mirrored or not by its draw.
        modulo: Whether draws are reduced as ``word % range``, as Caffe does; otherwise
            ``(word * range) >> 32``.
        swap_channels: Whether the first three of 3 or 4 channels are delivered in reverse.
        channels_last: Whether a row is height x width x channels.
        mean_value: float32 (0,), (1,) or (channels,), in the order of the delivered channels.
        scale: float32 (1,) or (channels,), in the order of the delivered channels.
        mean_image: float32 (channels, height, width), C-contiguous, in the order of the stored
            channels, for the image before cropping; or None. Not together with mean_value; rows of
            uint8 have neither, and a scale of 1.
    """

    crop_size: int
    random_crop: bool
    mirror: bool
    modulo: bool
    swap_channels: bool
    channels_last: bool
    mean_value: NDArray[np.float32]
    scale: NDArray[np.float32]
    mean_image: NDArray[np.float32] | None

    def sample_shape(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        """Return the shape of the row that a record of these sizes becomes."""
        if self.crop_size:
            height = width = self.crop_size
        if self.channels_last:
            return height, width, channels
        return channels, height, width


IndexedPart: TypeAlias = """tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32], NDArray[Any], NDArray[Any] | None
]"""
"""A part of a batch: (n,) records, (4, n) spans, (n, 3) words, (n, ...) data, (n,) labels."""


FilledPart: TypeAlias = tuple[int, list[Outcome], bytes]
"""The result of a part: the position of the first record that cannot be found, or -1; the outcomes;
and the keys, one directly after the other. A plain tuple, as `IndexedPart` is: to make a named one
takes 0.5 us longer, for every batch."""


class NativeKernels(Protocol):
    """What there is in C only: reads mapped files without an object a record, draws words fast.

    Functions that find records take a mapped file as four arguments: its memory; the bytes of a
    page; and the packed index (`prefetch._source.lmdb.index`), (m,) leaf pages in key order, and
    how many records come before each.
    """

    def philox_words(
        self, key0: int, key1: int, records: NDArray[np.int64], words: NDArray[np.uint32], /
    ) -> None:
        """Draw the random words of records, as `CounterDraws` does."""

    def raw_shape(  # noqa: PLR0917 - as in C
        self,
        memory: memoryview,
        page_bytes: int,
        leaves: NDArray[np.unsignedinteger],
        firsts: NDArray[np.unsignedinteger],
        record: int,
        is_uint8: bool,  # noqa: FBT001 - as in C
        /,
    ) -> tuple[int, int, int] | None:
        """Find a record, and return its stored shape if it is raw and sound; else None."""

    def fill_records(  # noqa: PLR0917 - as in C
        self,
        memory: memoryview,
        page_bytes: int,
        leaves: NDArray[np.unsignedinteger],
        firsts: NDArray[np.unsignedinteger],
        recipe: Recipe,
        parts: Sequence[IndexedPart],
        /,
    ) -> list[FilledPart]:
        """Find records through the packed index and fill parts from them, one after the other."""

    def locate(
        self,
        memory: memoryview,
        page_bytes: int,
        pages: NDArray[np.int64],
        slots: NDArray[np.int64],
        spans: NDArray[np.int64],
        /,
    ) -> int:
        """Find records in leaf pages; return the first that is damaged, or -1."""

    def splice_jpeg(  # noqa: PLR0917 - as in C
        self,
        data: memoryview,
        top: int,
        left: int,
        height: int,
        width: int,
        to: NDArray[np.uint8],
        /,
    ) -> tuple[int, int, int, int, int] | None:
        """Make a small JPEG of what a window needs; see `prefetch._record.jpeg_windows.Splice`."""

    def find_restarts(self, data: memoryview | bytes, /) -> tuple[int, bool] | None:
        """Return how a JPEG that can be decoded in part is cut.

        Returns:
            How many MCUs are between two restart markers, and whether the file has a stamp, which
            then is right; None for a file that is decoded as a whole.
        """

    def add_restarts(self, data: memoryview | bytes, most: int, /) -> bytes | int:
        """Return a JPEG of the same coefficients with restart markers and a stamp.

        Args:
            data: The file.
            most: The interval is the largest divisor of the MCUs of a row up to this.

        Returns:
            The new file, baseline; or why there is none, a `Recoding`.
        """


class Recoding(enum.IntEnum):
    """Why a JPEG is given no restart markers."""

    NO_HUFFMAN_FRAME = 1
    BYTES_BEHIND_END = 2
    UNUSUAL_FILE = 3


class Kernels(Protocol):
    """What fills rows: the C extension, or its NumPy twin, with the twin's contract."""

    def fill(
        self,
        values: Sequence[memoryview],
        words: NDArray[np.uint32],
        data: NDArray[Any],
        labels: NDArray[Any] | None,
        recipe: Recipe,
        /,
    ) -> list[Outcome]:
        """Fill a part from its records; locate the encoded ones."""

    def fill_image(
        self,
        image: NDArray[np.uint8],
        words: NDArray[np.uint32],
        row: NDArray[Any],
        recipe: Recipe,
        /,
    ) -> tuple[int, tuple[int, ...]] | None:
        """Fill a row from a decoded image."""
