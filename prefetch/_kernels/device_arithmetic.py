"""CUDA C++ that the device's kernels share: arithmetic, rounding, and where a number belongs.

Arithmetic: (float32(pixel) - mean) * scale with a rounding after each operation, as on the host.
It says so in PTX: ``sub.rn.f32`` and ``mul.rn.f32`` are never contracted into a fused
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

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from prefetch._kernels.contract import Recipe

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
enum {{ {", ".join(f"{name.upper()} = {1 << bit}" for bit, name in enumerate(FLAGS))} }};
"""

ARITHMETIC: Final = (
    _ENUMERATIONS
    + r"""
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

/* A number of a row, by its place. */
struct place {
    unsigned int channel, row, column; /* the channel as it is delivered */
};

__device__ __forceinline__ struct place find_place(unsigned int at, unsigned int channels,
                                                   unsigned int rows, unsigned int columns,
                                                   unsigned int flags)
{
    struct place place;
    if (flags & CHANNELS_LAST) {
        place.channel = at % channels;
        place.column = at / channels % columns;
        place.row = at / channels / columns;
    } else {
        place.column = at % columns;
        place.row = at / columns % rows;
        place.channel = at / columns / rows;
    }
    return place;
}

__device__ __forceinline__ unsigned int stored_channel(unsigned int channel, unsigned int channels,
                                                       unsigned int flags)
{
    const bool swaps = (flags & SWAP_CHANNELS) && (channels == 3 || channels == 4);
    return swaps && channel < 3 ? 2 - channel : channel;
}

/* Make a number of a pixel; its mean is that of a mean image where that is given. */
__device__ __forceinline__ float compute(unsigned char pixel, unsigned int channel,
                                         const float *mean_image, unsigned int flags,
                                         const float *means, unsigned int num_means,
                                         const float *scales, unsigned int num_scales)
{
    float value = (float)pixel;
    if (flags & UNIT_RANGE)
        value = multiply(value, 0.003921569f);
    if (mean_image)
        value = subtract(value, *mean_image);
    else if (num_means)
        value = subtract(value, means[num_means > 1 ? channel : 0]);
    if (num_scales)
        value = multiply(value, scales[num_scales > 1 ? channel : 0]);
    return value;
}
"""
)
"""What a kernel's source begins with."""


def flag_bits(recipe: Recipe) -> int:
    """Return the bits of `FLAGS` that a launch has."""
    bits = 0
    for bit, name in enumerate(FLAGS):
        value = getattr(recipe, name)
        if value is not None and value is not False:  # an array has no truth
            bits |= 1 << bit
    return bits


def constants(recipe: Recipe) -> NDArray[np.float32]:
    """Return what a kernel reads besides the batch: float32 (n,).

    Means, scales, and then the mean image or the table of noise, where there is one of them.
    """
    image, erasing = recipe.mean_image, recipe.erasing
    more: tuple[NDArray[np.float32], ...] = () if image is None else (image.reshape(-1),)
    if erasing is not None and erasing.noise is not None:
        more = (*more, erasing.noise)
    parts = (recipe.mean_value, scales(recipe), *more)
    return np.concatenate(parts, dtype=np.float32)


def scales(recipe: Recipe) -> NDArray[np.float32]:
    """Return the scales, none where they change nothing; the host does not multiply then either."""
    return recipe.scale if (recipe.scale != 1).any() else recipe.scale[:0]
