"""The kernel that transforms a batch on the device: its source, its arguments, its NumPy twin.

A staged batch is one piece of memory, so that one copy takes it to the device: a table with four
words for each record, then the records' pixels, uint8, planes of stored channels, all of one size.
The words are the record's three raw random words and its form:

``WHOLE``
    The image as stored. The kernel reduces the random words, by the host kernel's formulas, and
    takes the window.
``WINDOW``
    The window itself, cut and mirrored by the host, at the start of the record's place: of a record
    whose size is not the batch's, or where the window is so small that it is less to copy.

The words travel raw because what they are reduced by is the same for all whole images of a batch:
the host need not compute anything for each record, and one formula fewer has to agree with another.

Nothing but CUDA's built-ins is used, and those by their plain names: the source compiles as C++
where something else defines them, and the tests run it on the host that way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._kernels.device_arithmetic import ARITHMETIC, flag_bits, scales
from prefetch._kernels.reference import fill_pixels
from prefetch._plan.random_words import NUM_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.contract import Recipe

WHOLE: Final = 0
WINDOW: Final = 1

_TABLE_WORDS: Final = NUM_WORDS + 1  # of a record: its random words, its form
_TABLE_BYTES: Final = 4 * _TABLE_WORDS

DTYPES: Final = ("float32", "float16", "bfloat16", "uint8")
"""Of batches; there is a kernel for each."""

_BLOCK: Final = 256
_ELEMENTS_A_THREAD: Final = 4  # share the look at the table
# In the second dimension of a grid; the first, of the records, has 2^31.
_MAX_BLOCKS: Final = 65535

_ENUMERATIONS = f"""
enum {{ WHOLE = {WHOLE}, WINDOW = {WINDOW} }};
"""

SOURCE: Final = (
    ARITHMETIC
    + _ENUMERATIONS
    + r"""
/* A record's words in the table, by the order of Word, and its form; a load of 16 bytes. */
struct __align__(16) record {
    unsigned int mirror, row, column, form;
};

__device__ __forceinline__ unsigned int reduce(unsigned int word, unsigned int range,
                                               unsigned int flags)
{
    if (flags & MODULO)
        return word % range;
    return (unsigned int)(((unsigned long long)word * range) >> 32);
}

/* A block of threads works on one record, blockIdx.x; those of blockIdx.y share its elements.
 *
 * staged      the table, and the pixels from pixels_at on
 * out         the batch
 * constants   num_means mean values, num_scales scales, then the mean image if there is one
 * channels, height, width   of a record's place; together fewer than 2^32
 * crop_height, crop_width   of the window; 0: all of the image */
template <typename Element>
__device__ __forceinline__ void transform(const unsigned char *staged,
                                          unsigned long long pixels_at, Element *out,
                                          const float *constants, unsigned int channels,
                                          unsigned int height, unsigned int width,
                                          unsigned int crop_height, unsigned int crop_width,
                                          unsigned int flags, unsigned int num_means,
                                          unsigned int num_scales)
{
    const struct record record = ((const struct record *)staged)[blockIdx.x];
    const unsigned int rows = crop_height ? crop_height : height;
    const unsigned int columns = crop_height ? crop_width : width;
    const unsigned int size = channels * rows * columns;
    const bool whole = record.form == WHOLE;
    unsigned int top = 0, left = 0;
    if (crop_height && whole) {
        top = (height - rows) / 2;
        left = (width - columns) / 2;
        if (flags & RANDOM_CROP) {
            top = reduce(record.row, height - rows + 1, flags);
            left = reduce(record.column, width - columns + 1, flags);
        }
    }
    const bool mirrored = whole && (flags & MIRROR) && reduce(record.mirror, 2, flags) == 1;
    const unsigned int from_height = whole ? height : rows, from_width = whole ? width : columns;
    const unsigned char *pixels =
        staged + pixels_at + (unsigned long long)blockIdx.x * channels * height * width;
    const float *means = constants, *scales = constants + num_means;
    const float *mean_image = scales + num_scales;
    Element *to = out + (unsigned long long)blockIdx.x * size;
    for (unsigned long long next = blockIdx.y * blockDim.x + threadIdx.x; next < size;
         next += gridDim.y * blockDim.x) {
        const unsigned int at = (unsigned int)next;
        const struct place place = find_place(at, channels, rows, columns, flags);
        const unsigned int stored = stored_channel(place.channel, channels, flags);
        const unsigned int from_column =
            left + (mirrored ? columns - 1 - place.column : place.column);
        const unsigned int from =
            (stored * from_height + top + place.row) * from_width + from_column;
        const float *mean = (flags & MEAN_IMAGE) ? mean_image + from : nullptr;
        put(to + at, compute(pixels[from], place.channel, mean, flags, means, num_means, scales,
                             num_scales));
    }
}

#define PARAMETERS(Element)                                                                        \
    const unsigned char *staged, unsigned long long pixels_at, Element *out,                       \
        const float *constants, unsigned int channels, unsigned int height, unsigned int width,    \
        unsigned int crop_height, unsigned int crop_width, unsigned int flags,                     \
        unsigned int num_means, unsigned int num_scales
#define ARGUMENTS                                                                                  \
    staged, pixels_at, out, constants, channels, height, width, crop_height, crop_width, flags,    \
        num_means, num_scales

extern "C" __global__ void ringfeed_transform_float32(PARAMETERS(float))
{
    transform(ARGUMENTS);
}

extern "C" __global__ void ringfeed_transform_float16(PARAMETERS(half_bits))
{
    transform(ARGUMENTS);
}

extern "C" __global__ void ringfeed_transform_bfloat16(PARAMETERS(bfloat_bits))
{
    transform(ARGUMENTS);
}

extern "C" __global__ void ringfeed_transform_uint8(PARAMETERS(unsigned char))
{
    transform(ARGUMENTS);
}
"""
)
"""CUDA C++ of the kernels, one for each type of a batch."""


@dataclass(frozen=True, slots=True)
class StagedBatch:
    """How a batch lies in staging memory.

    Attributes:
        num: Records.
        channels: Of each record's place, as height and width are.
        height: In pixels.
        width: In pixels.
        box_bytes: Bytes of each place where it holds a box of an image, to be resized
            (`prefetch._kernels.box_places`), and there is no table; the sizes are those of the
            image that the batch begins with. 0: places of pixels.
    """

    num: int
    channels: int
    height: int
    width: int
    box_bytes: int = 0

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of a record's place."""
        return self.channels, self.height, self.width

    @property
    def place_bytes(self) -> int:
        """Bytes of a record's place."""
        return self.box_bytes or math.prod(self.image_shape)

    @property
    def pixels_at(self) -> int:
        """Where the pixels begin, in bytes from the start."""
        return 0 if self.box_bytes else self.num * _TABLE_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return self.pixels_at + self.num * self.place_bytes

    def table(self, staged: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """View the table of a batch.

        Args:
            staged: (nbytes,) uint8, C-contiguous, at a multiple of 4 bytes.

        Returns:
            uint32 (num, 4): mirror, row and column of the crop, each a raw random word; the form.
            (num, 0) of a batch of boxes.
        """
        words = staged[: self.pixels_at].view(np.uint32)
        return words.reshape(self.num, 0 if self.box_bytes else _TABLE_WORDS)

    def pixels(self, staged: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """View the pixels of a batch: uint8 (num, channels, height, width), or (num, box_bytes)."""
        shape = (self.box_bytes,) if self.box_bytes else self.image_shape
        return staged[self.pixels_at : self.nbytes].reshape(self.num, *shape)


def window_of(place: NDArray[np.uint8], recipe: Recipe) -> NDArray[np.uint8]:
    """View the window at the start of a record's place: all of it where there is no crop.

    Args:
        place: uint8 (channels, height, width), C-contiguous, no smaller than the crop.
        recipe: Has the crop.

    Returns:
        uint8 (channels, crop_height, crop_width).
    """
    if not recipe.crop_height:
        return place
    shape = (len(place), recipe.crop_height, recipe.crop_width)
    return place.reshape(-1)[: math.prod(shape)].reshape(shape)


def kernel_names() -> tuple[str, ...]:
    """Return the names of all kernels of `SOURCE`."""
    return tuple(f"ringfeed_transform_{name}" for name in DTYPES)


def kernel_name(dtype: np.dtype[Any]) -> str:
    """Return which kernel of `SOURCE` makes batches of a type."""
    return f"ringfeed_transform_{dtype.name}"


def grid(batch: StagedBatch, recipe: Recipe) -> tuple[tuple[int, int], tuple[int]]:
    """Return the grid and the block of a launch."""
    size = math.prod(recipe.sample_shape(*batch.image_shape))
    blocks = -(-size // (_BLOCK * _ELEMENTS_A_THREAD))
    return (batch.num, min(blocks, _MAX_BLOCKS)), (_BLOCK,)


def scalars(batch: StagedBatch, recipe: Recipe) -> tuple[np.uint32, ...]:
    """Return the kernel's arguments behind its pointers."""
    numbers = (
        *batch.image_shape,
        recipe.crop_height,
        recipe.crop_width,
        flag_bits(recipe),
        recipe.mean_value.size,
        scales(recipe).size,
    )
    return tuple(map(np.uint32, numbers))


def transform_staged(
    staged: NDArray[np.uint8], out: NDArray[Any], batch: StagedBatch, recipe: Recipe
) -> None:
    """Do what the kernel does; its twin, for devices that run Python functions.

    Args:
        staged: (nbytes,) uint8: the staged batch.
        out: (num, *sample_shape), C-contiguous, of a type that `fill_pixels` takes; the batch.
        batch: How the staged batch lies there.
        recipe: What to do.
    """
    as_it_is = recipe._replace(crop_height=0, crop_width=0, mirror=False)
    places = batch.pixels(staged)
    for place, (*_, form), words, row in zip(
        places, batch.table(staged).tolist(), batch.table(staged)[:, :NUM_WORDS], out, strict=True
    ):
        if form == WHOLE:
            fill_pixels(place, words, row, recipe)
        else:
            fill_pixels(window_of(place, recipe), words, row, as_it_is)
