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

Arithmetic: (float32(pixel) - mean) * scale with a rounding after each operation, as on the host.
The source says so in PTX: ``sub.rn.f32`` and ``mul.rn.f32`` are never contracted into a fused
multiply-add, which would be a rounding less, and they keep subnormals, whatever options the kernel
is compiled with: CuPy appends -ftz=true, which changes ``__fsub_rn`` too. float16 is rounded from
that float32 result, to nearest and even, by the instruction that does it; it is written as such to
need no header, which NVRTC often cannot find. bfloat16 is rounded by integers, as in the C kernel:
its instruction needs sm_80, and gives NaNs other bits. Only the payload of a NaN, which takes a
mean image with NaNs in it, may be another than the host's.

Nothing but CUDA's built-ins is used, and those by their plain names: the source compiles as C++
where something else defines them, and the tests run it on the host that way.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._kernels.reference import fill_pixels
from prefetch._plan.random_words import NUM_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.contract import Recipe

WHOLE: Final = 0
WINDOW: Final = 1

_TABLE_WORDS: Final = NUM_WORDS + 1  # of a record: its random words, its form
_TABLE_BYTES: Final = 4 * _TABLE_WORDS

_DTYPES: Final = ("float32", "float16", "bfloat16", "uint8")

_BLOCK: Final = 256
_ELEMENTS_A_THREAD: Final = 4  # share the look at the table
# In the second dimension of a grid; the first, of the records, has 2^31.
_MAX_BLOCKS: Final = 65535

# Fields of Recipe that a launch has as a bit each, in this order.
FLAGS: Final = (
    "random_crop",
    "mirror",
    "modulo",
    "swap_channels",
    "channels_last",
    "unit_range",
    "mean_image",
)

_ENUMERATIONS = f"""
enum {{ WHOLE = {WHOLE}, WINDOW = {WINDOW} }};
enum {{ {", ".join(f"{name.upper()} = {1 << bit}" for bit, name in enumerate(FLAGS))} }};
"""

SOURCE: Final = (
    _ENUMERATIONS
    + r"""
/* A record's words in the table, by the order of Word, and its form; a load of 16 bytes. */
struct __align__(16) record {
    unsigned int mirror, row, column, form;
};

/* A float16 by its bits. */
struct half_bits {
    unsigned short bits;
};

/* A bfloat16 by its bits. */
struct bfloat_bits {
    unsigned short bits;
};

#ifndef RINGFEED_ON_HOST
__device__ __forceinline__ unsigned int bits_of(float value)
{
    unsigned int bits;
    asm("mov.b32 %0, %1;" : "=r"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ unsigned short round_to_half(float value)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}

__device__ __forceinline__ float subtract(float a, float b)
{
    float difference;
    asm("sub.rn.f32 %0, %1, %2;" : "=f"(difference) : "f"(a), "f"(b));
    return difference;
}

__device__ __forceinline__ float multiply(float a, float b)
{
    float product;
    asm("mul.rn.f32 %0, %1, %2;" : "=f"(product) : "f"(a), "f"(b));
    return product;
}

__device__ __forceinline__ unsigned int to_whole(float value)
{
    unsigned int whole;
    asm("cvt.rzi.u32.f32 %0, %1;" : "=r"(whole) : "f"(value));
    return whole;
}
#endif

__device__ __forceinline__ void put(float *to, float value)
{
    *to = value;
}

__device__ __forceinline__ void put(half_bits *to, float value)
{
    to->bits = round_to_half(value);
}

__device__ __forceinline__ void put(bfloat_bits *to, float value)
{
    const unsigned int bits = bits_of(value);
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    const unsigned int rounded = bits + 0x7FFFu + (bits >> 16 & 1);
    to->bits = (unsigned short)((is_nan ? bits | 0x00400000u : rounded) >> 16);
}

/* Of pixels less nothing and times nothing: whole numbers up to 255. */
__device__ __forceinline__ void put(unsigned char *to, float value)
{
    *to = (unsigned char)to_whole(value);
}

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
    const bool swaps = (flags & SWAP_CHANNELS) && (channels == 3 || channels == 4);
    const unsigned int from_height = whole ? height : rows, from_width = whole ? width : columns;
    const unsigned char *pixels =
        staged + pixels_at + (unsigned long long)blockIdx.x * channels * height * width;
    const float *means = constants, *scales = constants + num_means;
    const float *mean_image = scales + num_scales;
    Element *to = out + (unsigned long long)blockIdx.x * size;
    for (unsigned long long next = blockIdx.y * blockDim.x + threadIdx.x; next < size;
         next += gridDim.y * blockDim.x) {
        const unsigned int at = (unsigned int)next;
        unsigned int channel, row, column;
        if (flags & CHANNELS_LAST) {
            channel = at % channels;
            column = at / channels % columns;
            row = at / channels / columns;
        } else {
            column = at % columns;
            row = at / columns % rows;
            channel = at / columns / rows;
        }
        const unsigned int stored = swaps && channel < 3 ? 2 - channel : channel;
        const unsigned int from_column = left + (mirrored ? columns - 1 - column : column);
        const unsigned int from =
            (stored * from_height + top + row) * from_width + from_column;
        float value = (float)pixels[from];
        if (flags & UNIT_RANGE)
            value = multiply(value, 0.003921569f);
        if (flags & MEAN_IMAGE)
            value = subtract(value, mean_image[from]);
        else if (num_means)
            value = subtract(value, means[num_means > 1 ? channel : 0]);
        if (num_scales)
            value = multiply(value, scales[num_scales > 1 ? channel : 0]);
        put(to + at, value);
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
    """

    num: int
    channels: int
    height: int
    width: int

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width) of a record's place."""
        return self.channels, self.height, self.width

    @property
    def image_bytes(self) -> int:
        """Bytes of a record's place."""
        return math.prod(self.image_shape)

    @property
    def pixels_at(self) -> int:
        """Where the pixels begin, in bytes from the start."""
        return self.num * _TABLE_BYTES

    @property
    def nbytes(self) -> int:
        """Bytes in all."""
        return self.pixels_at + self.num * self.image_bytes

    def table(self, staged: NDArray[np.uint8]) -> NDArray[np.uint32]:
        """View the table of a batch.

        Args:
            staged: (nbytes,) uint8, C-contiguous, at a multiple of 4 bytes.

        Returns:
            uint32 (num, 4): mirror, row and column of the crop, each a raw random word; the form.
        """
        return staged[: self.pixels_at].view(np.uint32).reshape(self.num, _TABLE_WORDS)

    def pixels(self, staged: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """View the pixels of a batch: uint8 (num, channels, height, width)."""
        return staged[self.pixels_at : self.nbytes].reshape(self.num, *self.image_shape)


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
    return tuple(f"ringfeed_transform_{name}" for name in _DTYPES)


def kernel_name(dtype: np.dtype[Any]) -> str:
    """Return which kernel of `SOURCE` makes batches of a type."""
    return f"ringfeed_transform_{dtype.name}"


def constants(recipe: Recipe) -> NDArray[np.float32]:
    """Return what the kernel reads besides the batch: float32 (n,), means, scales, mean image."""
    image = recipe.mean_image
    parts = (recipe.mean_value, _scales(recipe), () if image is None else image.reshape(-1))
    return np.concatenate(parts, dtype=np.float32)


def grid(batch: StagedBatch, recipe: Recipe) -> tuple[tuple[int, int], tuple[int]]:
    """Return the grid and the block of a launch."""
    size = math.prod(recipe.sample_shape(*batch.image_shape))
    blocks = -(-size // (_BLOCK * _ELEMENTS_A_THREAD))
    return (batch.num, min(blocks, _MAX_BLOCKS)), (_BLOCK,)


def scalars(batch: StagedBatch, recipe: Recipe) -> tuple[np.uint32, ...]:
    """Return the kernel's arguments behind its pointers."""
    flags = 0
    for bit, name in enumerate(FLAGS):
        value = getattr(recipe, name)
        if value is not None and value is not False:  # an array has no truth
            flags |= 1 << bit
    numbers = (
        *batch.image_shape,
        recipe.crop_height,
        recipe.crop_width,
        flags,
        recipe.mean_value.size,
        _scales(recipe).size,
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


def _scales(recipe: Recipe) -> NDArray[np.float32]:
    """Return the scales, none where they change nothing; the host does not multiply then either."""
    return recipe.scale if (recipe.scale != 1).any() else recipe.scale[:0]
