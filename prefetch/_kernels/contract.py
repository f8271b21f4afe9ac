"""What every implementation of the transformation takes and returns."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from prefetch._plan.random_words import (
    ERASING_WORDS,
    JITTER_WORDS,
    NUM_WORDS,
    RESIZED_CROP_WORDS,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


Outcome: TypeAlias = tuple[int, int, tuple[int, ...]]
"""(position, reason, numbers): a bad record, or with ENCODED for a reason an encoded one."""


ENCODED = 0
"""No fault: the record holds an encoded image, which is to be decoded and given to fill_image()."""


class ResizeKind(IntEnum):
    """Which part of an image becomes a size that is given, and how that is given."""

    RANDOM_CROP = 0
    SHORTER_SIDE = 1
    BOTH_SIDES = 2


class Resizing(NamedTuple):
    """How an image is resized before anything else; the C kernel reads it in this order.

    Attributes:
        kind: Whether a drawn box of the image is resized, or all of it.
        height: Of the result, in pixels; for the shorter side, its length.
        width: Likewise.
        bicubic: Whether by a cubic filter of support 2; otherwise by a triangle of support 1.
        least_scale: Least share of the image's area that a drawn box has.
        most_scale: Most.
        least_ratio: Least width of a drawn box, in heights.
        most_ratio: Most.
        log_least_ratio: The logarithm of it.
        log_most_ratio: Likewise.
    """

    kind: int
    height: int
    width: int
    bicubic: bool
    least_scale: float = 1.0
    most_scale: float = 1.0
    least_ratio: float = 1.0
    most_ratio: float = 1.0
    log_least_ratio: float = 0.0
    log_most_ratio: float = 0.0

    def resized(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width that an image of these becomes.

        The longer side is cut to whole pixels, as torchvision does it.
        """
        if self.kind != ResizeKind.SHORTER_SIDE:
            return self.height, self.width
        if width <= height:
            return int(self.height * height / width), self.height
        return self.height, int(self.height * width / height)


class Jitter(NamedTuple):
    """What colour jitter does (`prefetch._kernels.jitter`); the C kernel reads it in this order.

    Attributes:
        brightness: The least and the greatest factor, 0 to `MOST_FACTOR`; `UNCHANGED`: left out.
        contrast: The same.
        saturation: The same.
        red_first: Whether stored pixels of three channels are red, green, blue; otherwise they are
            blue, green, red.
    """

    brightness: tuple[float, float]
    contrast: tuple[float, float]
    saturation: tuple[float, float]
    red_first: bool


UNCHANGED: Final = (1.0, 1.0)
"""The factors of an operation of colour jitter that changes nothing, and so is left out."""

MOST_FACTOR: Final = 1e6
"""The greatest factor of colour jitter; far smaller ones leave nothing but black and white."""


class ErasingMode(IntEnum):
    """What random erasing writes: zeros, a normal number a channel, or one a value."""

    CONST = 0
    RAND = 1
    PIXEL = 2


class Erasing(NamedTuple):
    """What random erasing does (`prefetch._kernels.erasing`); the C kernel reads it in this order.

    Attributes:
        probability: Of a record, to have a box erased.
        least_scale: Least share of the window's area that the box has.
        most_scale: Most.
        log_least_ratio: Logarithm of the least height of the box, in widths.
        log_most_ratio: Of the most.
        mode: An `ErasingMode`.
        noise: float32 (65536,): `prefetch._kernels.erasing.noise_table`. None where the mode is
            CONST.
    """

    probability: float
    least_scale: float
    most_scale: float
    log_least_ratio: float
    log_most_ratio: float
    mode: int
    noise: NDArray[np.float32] | None


class Recipe(NamedTuple):
    """A transformation as the kernels take it; the C kernel reads it as a tuple, in this order.

    Which operation each field belongs to: `prefetch._transform.operation.OPERATIONS`.

    Attributes:
        crop_height: Of the crop, in pixels; 0 for none.
        crop_width: Likewise; 0 where the height is.
        random_crop: Whether the crop's place is drawn; otherwise it is the centre, rounded down.
        mirror: Whether each image is mirrored or not by its draw.
        modulo: Whether draws are reduced as ``word % range``, as Caffe does; otherwise
            ``(word * range) >> 32``.
        swap_channels: Whether the first three of 3 or 4 channels are delivered in reverse.
        channels_last: Whether a row is height x width x channels.
        unit_range: Whether pixels are first multiplied by 1/255, rounded to float32.
        mean_value: float32 (0,), (1,) or (channels,), in the order of the delivered channels.
        scale: float32 (1,) or (channels,), in the order of the delivered channels.
        mean_image: float32 (channels, height, width), C-contiguous, in the order of the stored
            channels, for the image before cropping; or None. Not together with mean_value; rows of
            uint8 have neither, and a scale of 1.
        resizing: What is done to an image before the crop; None for nothing.
        pad: Pixels of zeros added on each side, behind the resizing and before the crop.
        jitter: How the colours of the window are changed; None for not at all. Not together with
            mean_image.
        erasing: How a box of a row is written over in the end; None for not at all. Not for rows of
            uint8.
    """

    crop_height: int
    crop_width: int
    random_crop: bool
    mirror: bool
    modulo: bool
    swap_channels: bool
    channels_last: bool
    unit_range: bool
    mean_value: NDArray[np.float32]
    scale: NDArray[np.float32]
    mean_image: NDArray[np.float32] | None
    resizing: Resizing | None
    pad: int
    jitter: Jitter | None
    erasing: Erasing | None

    @property
    def makes_pixels(self) -> bool:
        """Whether pixels are made of other pixels before they become numbers."""
        return self.resizing is not None or self.pad > 0 or self.jitter is not None

    @property
    def drawn_words(self) -> tuple[range, ...]:
        """Which random words a record takes behind the first three, in the order of columns."""
        resizing = self.resizing
        is_drawn = resizing is not None and resizing.kind == ResizeKind.RANDOM_CROP
        return (
            *((RESIZED_CROP_WORDS,) if is_drawn else ()),
            *((JITTER_WORDS,) if self.jitter is not None else ()),
            *((ERASING_WORDS,) if self.erasing is not None else ()),
        )

    def columns_of(self, words: range) -> slice:
        """Return in which columns of an array of random words some of `drawn_words` are."""
        start = NUM_WORDS
        for drawn in self.drawn_words:
            if drawn == words:
                break
            start += len(drawn)
        return slice(start, start + len(words))

    def whole_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the size that the crop is taken from, of an image of some height and width."""
        if self.resizing is not None:
            height, width = self.resizing.resized(height, width)
        return height + 2 * self.pad, width + 2 * self.pad

    def window_size(self, height: int, width: int) -> tuple[int, int]:
        """Return the height and width in a row, of an image of some height and width."""
        if self.crop_height:
            return self.crop_height, self.crop_width
        return self.whole_size(height, width)

    def sample_shape(self, channels: int, height: int, width: int) -> tuple[int, int, int]:
        """Return the shape of the row that a record of these sizes becomes."""
        height, width = self.window_size(height, width)
        if self.channels_last:
            return height, width, channels
        return channels, height, width


IndexedPart: TypeAlias = """tuple[
    NDArray[np.int64], NDArray[np.int64], NDArray[np.uint32], NDArray[Any], NDArray[Any] | None
]"""
"""A part of a batch: (n,) records, (4, n) spans, (n, k) words, (n, ...) data, (n,) labels."""


Part: TypeAlias = tuple[int, int, int, int]
"""Which part of an image was decoded: its first row and column, and height and width of the
whole."""


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
        self,
        key0: int,
        key1: int,
        records: NDArray[np.int64],
        blocks: NDArray[np.int64],
        words: NDArray[np.uint32],
        /,
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

    def locate_ahead(  # noqa: PLR0917 - as in C
        self,
        memory: memoryview,
        page_bytes: int,
        pages: NDArray[np.int64],
        slots: NDArray[np.int64],
        begins: NDArray[np.int64],
        sizes: NDArray[np.int64],
        /,
    ) -> None:
        """Find where values lie, (n,), and touch leaf pages only; size 0 where one is damaged."""

    def advise(
        self, memory: memoryview, begins: NDArray[np.int64], sizes: NDArray[np.int64], /
    ) -> None:
        """Ask the system to read spans of a mapped file, (n,) offsets and bytes of each."""

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


class Recoding(IntEnum):
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
        part: Part | None,
        /,
    ) -> tuple[int, tuple[int, ...]] | None:
        """Fill a row from a decoded image, or from the part of it that the row needs."""
