"""The kernels that mix a batch on the device, and their NumPy twin; see `prefetch._kernels.mixing`.

A thread takes the same values of a sample and of its partner, and stores both. Products and sums
are written as in `prefetch._kernels.device_arithmetic`, so that nothing is fused and nothing
flushed. The middle sample of an odd number is its own partner: both values are then the same one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from prefetch._kernels.device_arithmetic import ARITHMETIC
from prefetch._kernels.mixing import NUMPY_KERNELS, lines_of, mix_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from prefetch._plan.mixing import Mix

_BLOCK: Final = 256
_ELEMENTS_A_THREAD: Final = 4
_MAX_BLOCKS: Final = 65535  # in the second dimension of a grid

SOURCE: Final = (
    ARITHMETIC
    + r"""
#ifndef RINGFEED_ON_HOST
__device__ __forceinline__ float add(float a, float b)
{
    float sum;
    asm("add.rn.f32 %0, %1, %2;" : "=f"(sum) : "f"(a), "f"(b));
    return sum;
}

__device__ __forceinline__ float float_of_bits(unsigned int bits)
{
    float value;
    asm("mov.b32 %0, %1;" : "=f"(value) : "r"(bits));
    return value;
}

__device__ __forceinline__ float float_of_half(unsigned short bits)
{
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
#endif

__device__ __forceinline__ float get(const float *from)
{
    return *from;
}

__device__ __forceinline__ float get(const half_bits *from)
{
    return float_of_half(from->bits);
}

__device__ __forceinline__ float get(const bfloat_bits *from)
{
    return float_of_bits((unsigned int)from->bits << 16);
}

/* Blocks of threads work on one pair, blockIdx.x; those of blockIdx.y share its values.
 *
 * out         the batch, num samples of size values
 * lam, rest   weights of a sample and of its partner */
template <typename Element>
__device__ __forceinline__ void mix(Element *out, unsigned int num, unsigned long long size,
                                    float lam, float rest)
{
    Element *ours = out + blockIdx.x * size, *theirs = out + (num - 1 - blockIdx.x) * size;
    for (unsigned long long at = blockIdx.y * blockDim.x + threadIdx.x; at < size;
         at += gridDim.y * blockDim.x) {
        const float x = get(ours + at), y = get(theirs + at);
        put(ours + at, add(multiply(x, lam), multiply(y, rest)));
        put(theirs + at, add(multiply(y, lam), multiply(x, rest)));
    }
}

/* Likewise; a sample is planes of lines, and the box begins `left` values into each of some lines,
 * `columns` of them. */
template <typename Element>
__device__ __forceinline__ void cut(Element *out, unsigned int num, unsigned int planes,
                                    unsigned int lines, unsigned int line_size, unsigned int top,
                                    unsigned int rows, unsigned int left, unsigned int columns)
{
    const unsigned long long size = (unsigned long long)planes * lines * line_size;
    const unsigned long long box_size = (unsigned long long)planes * rows * columns;
    Element *ours = out + blockIdx.x * size, *theirs = out + (num - 1 - blockIdx.x) * size;
    for (unsigned long long next = blockIdx.y * blockDim.x + threadIdx.x; next < box_size;
         next += gridDim.y * blockDim.x) {
        const unsigned long long line = next / columns;
        const unsigned long long at =
            (line / rows * lines + top + line % rows) * line_size + left + next % columns;
        const Element kept = ours[at];
        ours[at] = theirs[at];
        theirs[at] = kept;
    }
}

#define MIX(name, Element)                                                                         \
    extern "C" __global__ void ringfeed_mix_##name(Element *out, unsigned int num,                 \
                                                   unsigned long long size, float lam, float rest) \
    {                                                                                              \
        mix(out, num, size, lam, rest);                                                            \
    }
MIX(float32, float)
MIX(float16, half_bits)
MIX(bfloat16, bfloat_bits)

#define CUT(bytes, Element)                                                                        \
    extern "C" __global__ void ringfeed_cut_##bytes(                                               \
        Element *out, unsigned int num, unsigned int planes, unsigned int lines,                   \
        unsigned int line_size, unsigned int top, unsigned int rows, unsigned int left,            \
        unsigned int columns)                                                                      \
    {                                                                                              \
        cut(out, num, planes, lines, line_size, top, rows, left, columns);                         \
    }
CUT(1, unsigned char)
CUT(2, unsigned short)
CUT(4, unsigned int)
"""
)
"""CUDA C++ of the kernels: of mixup one for each type, of cutmix one for each size of a value."""


def kernel_names() -> tuple[str, ...]:
    """Return the names of the kernels that `SOURCE` adds."""
    mixes = [f"ringfeed_mix_{name}" for name in ("float32", "float16", "bfloat16")]
    return (*mixes, *(f"ringfeed_cut_{size}" for size in (1, 2, 4)))


def mix_name(dtype: np.dtype[Any]) -> str:
    """Return which kernel mixes a batch of floats by weighted sums."""
    return f"ringfeed_mix_{dtype.name}"


def cut_name(dtype: np.dtype[Any]) -> str:
    """Return which kernel exchanges boxes in a batch of a type."""
    return f"ringfeed_cut_{dtype.itemsize}"


def launch_of(
    mix: Mix, shape: Sequence[int], *, channels_last: bool
) -> tuple[tuple[int, int], tuple[int], tuple[np.generic, ...]] | None:
    """Return grid, block and the arguments behind the batch; None where there is nothing to do.

    Args:
        mix: How.
        shape: (n, ...) of the batch.
        channels_last: Whether samples are height x width x channels.
    """
    num, *sample = shape
    numbers: tuple[np.generic, ...]
    if mix.box is None:
        lam = np.float32(mix.lam)
        size = math.prod(sample)
        numbers = (np.uint32(num), np.uint64(size), lam, np.float32(1) - lam)
    else:
        planes, lines, line_size, pixel_size = lines_of(sample, 1, channels_last)
        top, bottom, left, right = mix.box
        rows, columns = bottom - top, (right - left) * pixel_size
        size = planes * rows * columns
        box = (planes, lines, line_size, top, rows, left * pixel_size, columns)
        numbers = tuple(map(np.uint32, (num, *box)))
    if size == 0:
        return None
    blocks = -(-size // (_BLOCK * _ELEMENTS_A_THREAD))
    return (-(-num // 2), min(blocks, _MAX_BLOCKS)), (_BLOCK,), numbers


def mix_staged(out: NDArray[Any], mix: Mix, *, channels_last: bool) -> None:
    """Do what the kernels do; their twin, for devices that run Python functions.

    Args:
        out: (n, ...) the batch; bfloat16 by its bits.
        mix: How.
        channels_last: Whether samples are height x width x channels.
    """
    mix_batch(out, mix, channels_last=channels_last, kernels=NUMPY_KERNELS)
