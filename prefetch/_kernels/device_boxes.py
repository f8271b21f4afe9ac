"""The kernel that resizes or erases on the device, and does the rest: source, arguments, twin.

A batch is staged as boxes (`prefetch._kernels.box_places`): the pixels that a row is made of, and
the taps of both axes, found by the host. So all that the device computes is whole numbers, and then
what `prefetch._kernels.device_kernel` computes of the pixels. Each thread weighs the pixels of both
passes for its number of the row; what the first pass makes is clipped to a byte, as on the host,
and made again wherever it is needed, which takes no memory between the passes.

The numbers that random erasing writes are those of `prefetch._kernels.erasing`: words of Philox,
looked up in its table, which lies behind the scales. Which box is erased the host has chosen, since
that takes the C library's exp.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._kernels.box_places import read_box
from prefetch._kernels.contract import ErasingMode
from prefetch._kernels.device_arithmetic import ARITHMETIC, flag_bits, scales
from prefetch._kernels.device_kernel import DTYPES
from prefetch._kernels.erasing import write_over
from prefetch._kernels.reference import fill_pixels, round_to
from prefetch._kernels.resize import FRACTION_BITS, resample_columns, resample_rows
from prefetch._plan.random_words import NUM_WORDS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.box_places import PlacedBox
    from prefetch._kernels.contract import Recipe
    from prefetch._kernels.device_kernel import StagedBatch

_ENUMERATIONS = f"""
enum {{ FRACTION_BITS = {FRACTION_BITS} }};
enum {{ {", ".join(f"{mode.name} = {mode.value}" for mode in ErasingMode)} }};
"""

SOURCE: Final = (
    ARITHMETIC
    + _ENUMERATIONS
    + r"""
/* What a place begins with. */
struct __align__(16) box {
    unsigned int pixels_at, channel_step, row_step, pixel_step;
    unsigned int row_taps, column_taps, mirrored, rows_first;
    unsigned int erased_top, erased_left, erased_height, erased_width;
    unsigned int noise_key[2], unused[2];
};

/* The weights of a pixel along an axis. */
struct axis {
    const int *weights;
    unsigned int num, step; /* step: bytes between the pixels that they weigh */
};

__device__ __forceinline__ int to_byte(int sum)
{
    const int rounded = sum >> FRACTION_BITS;
    return rounded < 0 ? 0 : rounded > 255 ? 255 : rounded;
}

/* Weigh pixels along the first axis, and what that makes along the second. */
__device__ __forceinline__ unsigned char resample(const unsigned char *pixels, struct axis first,
                                                  struct axis second)
{
    const int half = 1 << (FRACTION_BITS - 1);
    int sum = half;
    for (unsigned int line = 0; line < second.num; line++) {
        int line_sum = half;
        for (unsigned int tap = 0; tap < first.num; tap++)
            line_sum += pixels[tap * first.step] * first.weights[tap];
        sum += to_byte(line_sum) * second.weights[line];
        pixels += second.step;
    }
    return (unsigned char)to_byte(sum);
}

/* Word number `at` of the stream of Philox4x32 of a key. */
__device__ __forceinline__ unsigned int draw_word(const unsigned int key[2], unsigned int at)
{
    unsigned int counter[4] = {at / 4, 0, 0, 0};
    unsigned int first_key = key[0], second_key = key[1];
    for (int round = 0; round < 10; round++) {
        const unsigned long long first = 0xD2511F53ull * counter[0];
        const unsigned long long second = 0xCD9E8D57ull * counter[2];
        counter[0] = (unsigned int)(second >> 32) ^ counter[1] ^ first_key;
        counter[1] = (unsigned int)second;
        counter[2] = (unsigned int)(first >> 32) ^ counter[3] ^ second_key;
        counter[3] = (unsigned int)first;
        first_key += 0x9E3779B9u;
        second_key += 0xBB67AE85u;
    }
    /* No index into an array, which would have to lie in memory. */
    const unsigned int lower = at % 2 ? counter[1] : counter[0];
    const unsigned int upper = at % 2 ? counter[3] : counter[2];
    return at % 4 < 2 ? lower : upper;
}

/* A block of threads works on one record, blockIdx.x; those of blockIdx.y share its elements.
 *
 * staged      the places, of place_bytes each, a multiple of 16 below 2^32
 * out         the batch
 * constants   num_means mean values, num_scales scales, then the table of noise if there is one
 * channels, rows, columns   of a row, whatever its layout; together fewer than 2^32 */
template <typename Element>
__device__ __forceinline__ void resize(const unsigned char *staged, unsigned long long place_bytes,
                                       Element *out, const float *constants,
                                       unsigned int channels, unsigned int rows,
                                       unsigned int columns, unsigned int flags,
                                       unsigned int num_means, unsigned int num_scales,
                                       unsigned int erasing_mode)
{
    const unsigned char *start = staged + blockIdx.x * place_bytes;
    const struct box box = *(const struct box *)start;
    const int *row_firsts = (const int *)(start + sizeof(struct box));
    const int *row_weights = row_firsts + rows;
    const int *column_firsts = row_weights + rows * box.row_taps;
    const int *column_weights = column_firsts + columns;
    const unsigned int size = channels * rows * columns;
    Element *to = out + (unsigned long long)blockIdx.x * size;
    for (unsigned long long next = blockIdx.y * blockDim.x + threadIdx.x; next < size;
         next += gridDim.y * blockDim.x) {
        const unsigned int at = (unsigned int)next;
        const struct place place = find_place(at, channels, rows, columns, flags);
        const unsigned int erased_row = place.row - box.erased_top;
        const unsigned int erased_column = place.column - box.erased_left;
        if (erased_row < box.erased_height && erased_column < box.erased_width) {
            const unsigned int number =
                erasing_mode == RAND
                    ? place.channel
                    : (place.channel * box.erased_height + erased_row) * box.erased_width +
                          erased_column;
            const float *noise = constants + num_means + num_scales;
            put(to + at,
                erasing_mode == CONST ? 0.0f : noise[draw_word(box.noise_key, number) >> 16]);
            continue;
        }
        const unsigned int stored = stored_channel(place.channel, channels, flags);
        const unsigned int column = box.mirrored ? columns - 1 - place.column : place.column;
        const struct axis along_rows = {row_weights + place.row * box.row_taps, box.row_taps,
                                        box.row_step};
        const struct axis along_columns = {column_weights + column * box.column_taps,
                                           box.column_taps, box.pixel_step};
        const unsigned char *pixels = start + box.pixels_at + stored * box.channel_step +
                                      row_firsts[place.row] * box.row_step +
                                      column_firsts[column] * box.pixel_step;
        const unsigned char pixel = resample(pixels, box.rows_first ? along_rows : along_columns,
                                             box.rows_first ? along_columns : along_rows);
        put(to + at, compute(pixel, place.channel, nullptr, flags, constants, num_means,
                             constants + num_means, num_scales));
    }
}

#define PARAMETERS(Element)                                                                        \
    const unsigned char *staged, unsigned long long place_bytes, Element *out,                     \
        const float *constants, unsigned int channels, unsigned int rows, unsigned int columns,    \
        unsigned int flags, unsigned int num_means, unsigned int num_scales,                       \
        unsigned int erasing_mode
#define ARGUMENTS                                                                                  \
    staged, place_bytes, out, constants, channels, rows, columns, flags, num_means, num_scales,    \
        erasing_mode

extern "C" __global__ void ringfeed_boxes_float32(PARAMETERS(float))
{
    resize(ARGUMENTS);
}

extern "C" __global__ void ringfeed_boxes_float16(PARAMETERS(half_bits))
{
    resize(ARGUMENTS);
}

extern "C" __global__ void ringfeed_boxes_bfloat16(PARAMETERS(bfloat_bits))
{
    resize(ARGUMENTS);
}

extern "C" __global__ void ringfeed_boxes_uint8(PARAMETERS(unsigned char))
{
    resize(ARGUMENTS);
}
"""
)
"""CUDA C++ of the kernels, one for each type of a batch."""


def kernel_names() -> tuple[str, ...]:
    """Return the names of all kernels of `SOURCE`."""
    return tuple(f"ringfeed_boxes_{name}" for name in DTYPES)


def kernel_name(dtype: np.dtype[Any]) -> str:
    """Return which kernel of `SOURCE` makes batches of a type."""
    return f"ringfeed_boxes_{dtype.name}"


def scalars(batch: StagedBatch, recipe: Recipe) -> tuple[np.uint32, ...]:
    """Return the kernel's arguments behind its pointers."""
    numbers = (
        batch.channels,
        *recipe.window_size(batch.height, batch.width),
        flag_bits(recipe),
        recipe.mean_value.size,
        scales(recipe).size,
        ErasingMode.CONST if recipe.erasing is None else recipe.erasing.mode,
    )
    return tuple(map(np.uint32, numbers))


def transform_staged(
    staged: NDArray[np.uint8], out: NDArray[Any], batch: StagedBatch, recipe: Recipe
) -> None:
    """Do what the kernel does; its twin, for devices that run Python functions.

    Args:
        staged: (nbytes,) uint8: the staged batch, of boxes.
        out: (num, *sample_shape), C-contiguous, of a type that `fill_pixels` takes; the batch.
        batch: How the staged batch lies there.
        recipe: What to do.
    """
    as_it_is = recipe._replace(
        resizing=None, pad=0, crop_height=0, crop_width=0, mirror=False, jitter=None, erasing=None
    )
    size = recipe.window_size(batch.height, batch.width)
    words = np.zeros(NUM_WORDS, np.uint32)
    for place, row in zip(batch.pixels(staged), out, strict=True):
        box = read_box(place, batch.channels, *size)
        pixels = np.zeros((batch.channels, *size), np.uint8) if box is None else _resized(box)
        if box is None or box.erased is None or recipe.erasing is None:
            fill_pixels(pixels, words, row, as_it_is)
            continue
        floats = np.empty(row.shape, np.float32)
        fill_pixels(pixels, words, floats, as_it_is)
        planes = floats.transpose(2, 0, 1) if recipe.channels_last else floats
        write_over(planes, box.erased, box.noise_key, recipe.erasing)
        if row.dtype == np.float32:
            row[...] = floats
        else:
            round_to(floats, row)


def _resized(box: PlacedBox) -> NDArray[np.uint8]:
    """Return the window that a box becomes."""
    if box.rows_first:
        pixels = resample_columns(resample_rows(box.pixels, box.rows), box.columns)
    else:
        pixels = resample_rows(resample_columns(box.pixels, box.columns), box.rows)
    return pixels[:, :, ::-1] if box.mirrored else pixels
