/* CUDA C++ on the host: what a kernel's source takes for granted, and what runs it there.
 *
 * The threads of a launch run one after the other, so a kernel must not synchronise them or share
 * memory between them. Arithmetic is the host's: compile with -ffp-contract=off. */
#ifndef HOSTCUDA_H
#define HOSTCUDA_H

#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __forceinline__ inline
#define __align__(n) __attribute__((aligned(n)))

struct hostcuda_index {
    unsigned int x, y, z;
};

static thread_local hostcuda_index threadIdx, blockIdx, blockDim, gridDim;

static inline float add(float a, float b)
{
    return a + b;
}

static inline double __dadd_rn(double a, double b)
{
    return a + b;
}

static inline double __dmul_rn(double a, double b)
{
    return a * b;
}

static inline float subtract(float a, float b)
{
    return a - b;
}

static inline float multiply(float a, float b)
{
    return a * b;
}

static inline float magnitude(float a)
{
    return a < 0 ? -a : a;
}

static inline unsigned int to_whole(float value)
{
    return (unsigned int)value;
}

static inline unsigned int bits_of(float value)
{
    unsigned int bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_bits(unsigned int bits)
{
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

/* What cvt.f32.f16 does. */
static inline float float_of_half(unsigned short half)
{
    const unsigned int sign = (half & 0x8000u) << 16, size = half & 0x7fffu;
    if (size >= 0x7c00u) /* infinite, or a NaN */
        return float_of_bits(sign | 0x7f800000u | (size & 0x3ffu) << 13);
    const float value = size < 0x400u ? (float)size / 16777216 /* 2^24: a subnormal */
                                      : float_of_bits((size << 13) + 0x38000000u);
    return sign ? -value : value;
}

/* What cvt.rn.f16.f32 does: to the nearest, of two equally near ones to the even. */
static inline unsigned short round_to_half(float value)
{
    unsigned int bits;
    std::memcpy(&bits, &value, sizeof bits);
    const unsigned int sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* a NaN, quieted; its payload as NumPy has it */
        return (unsigned short)(sign | 0x7e00u | magnitude >> 13);
    if (magnitude >= 0x47800000u) /* 65536 and more */
        return (unsigned short)(sign | 0x7c00u);
    unsigned int kept, rest, half;
    if (magnitude >= 0x38800000u) { /* 2^-14 and more: normal */
        kept = (magnitude - 0x38000000u) >> 13;
        rest = magnitude & 0x1fffu;
        half = 0x1000u;
    } else {
        const unsigned int exponent = magnitude >> 23;
        if (exponent < 102) /* below half of the least */
            return (unsigned short)sign;
        const unsigned int mantissa = (magnitude & 0x7fffffu) | 0x800000u, drop = 126 - exponent;
        kept = mantissa >> drop;
        rest = mantissa & ((1u << drop) - 1);
        half = 1u << (drop - 1);
    }
    kept += rest > half || (rest == half && (kept & 1));
    return (unsigned short)(sign | kept);
}

/* Run a kernel; params has a pointer to each of its parameters, as for cuLaunchKernel. */
template <typename... P, std::size_t... I>
static void hostcuda_run(void (*kernel)(P...), const unsigned int *grid, const unsigned int *block,
                         void *const *params, std::index_sequence<I...>)
{
    gridDim = {grid[0], grid[1], grid[2]};
    blockDim = {block[0], block[1], block[2]};
    for (blockIdx.z = 0; blockIdx.z < grid[2]; blockIdx.z++)
        for (blockIdx.y = 0; blockIdx.y < grid[1]; blockIdx.y++)
            for (blockIdx.x = 0; blockIdx.x < grid[0]; blockIdx.x++)
                for (threadIdx.z = 0; threadIdx.z < block[2]; threadIdx.z++)
                    for (threadIdx.y = 0; threadIdx.y < block[1]; threadIdx.y++)
                        for (threadIdx.x = 0; threadIdx.x < block[0]; threadIdx.x++)
                            kernel(*static_cast<P *>(params[I])...);
}

/* 'r' for a pointer that is read through only, 'w' for any other, 's' for what is no pointer. */
template <typename P> static constexpr char hostcuda_kind()
{
    if (!std::is_pointer<P>::value)
        return 's';
    return std::is_const<typename std::remove_pointer<P>::type>::value ? 'r' : 'w';
}

/* Tell the size and the kind of each parameter; return how many there are. */
template <typename... P>
static int hostcuda_signature(void (*)(P...), std::size_t *sizes, char *kinds)
{
    const std::size_t all_sizes[] = {sizeof(P)...};
    const char all_kinds[] = {hostcuda_kind<P>()...};
    std::memcpy(sizes, all_sizes, sizeof all_sizes);
    std::memcpy(kinds, all_kinds, sizeof all_kinds);
    return (int)sizeof...(P);
}

template <typename... P>
static void hostcuda_launch(void (*kernel)(P...), const unsigned int *grid,
                            const unsigned int *block, void *const *params)
{
    hostcuda_run(kernel, grid, block, params, std::index_sequence_for<P...>());
}

#define HOSTCUDA_EXPORT(name)                                                                      \
    extern "C" void hostcuda_launch_##name(const unsigned int *grid, const unsigned int *block,    \
                                           void *const *params)                                    \
    {                                                                                              \
        hostcuda_launch(name, grid, block, params);                                                \
    }                                                                                              \
    extern "C" int hostcuda_signature_##name(std::size_t *sizes, char *kinds)                      \
    {                                                                                              \
        return hostcuda_signature(name, sizes, kinds);                                             \
    }

#endif
