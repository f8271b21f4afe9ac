/* The loops over pixels, compiled for several chips where compiler and system can choose at run
 * time. They are plain C, and equal to the bit whatever they are compiled for.
 *
 * Lines are worked through in blocks of a fixed size, which compilers turn into vector instructions
 * without a scalar rest; the last block of a line overlaps the one before it instead (rows of 28
 * pixels, 32x32 cropped to 28: 2.1 times faster than loops with a rest, gcc 12, AVX2).
 */
#include <string.h>

#include "kernels.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define INLINE static __forceinline
#else
#define INLINE static inline
#endif

/* ifunc, by which the linker chooses, is glibc's; musl and others have none. AVX2 alone does not
 * bring fused multiply-adds. AVX-512 gained nothing more: the loops are bound by their stores. */
#if defined(__x86_64__) && defined(__gnu_linux__) && defined(__GLIBC__) && \
    defined(__has_attribute) && !defined(RINGFEED_NO_CLONES)
#if __has_attribute(target_clones)
#define CLONES __attribute__((target_clones("avx2", "default")))
#endif
#endif
#ifndef CLONES
#define CLONES
#endif

#define BLOCK 16

INLINE float load_float(const uint8_t *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE void store_float(uint8_t *to, float value)
{
    memcpy(to, &value, sizeof value);
}

/* Load a float of a record: little-endian on the wire. */
INLINE float load_wire_float(const uint8_t *from)
{
    uint32_t bits = (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
                    (uint32_t)from[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE void block_from_bytes(const uint8_t *from, const uint8_t *mean_image, float mean,
                             float scale, uint8_t *to, bool mirrored)
{
    float values[BLOCK], turned[BLOCK];
    for (int i = 0; i < BLOCK; i++) {
        values[i] = (float)from[i] - (mean_image != NULL ? load_float(mean_image + 4 * i) : mean);
        values[i] *= scale;
    }
    if (mirrored) {
        for (int i = 0; i < BLOCK; i++)
            turned[i] = values[BLOCK - 1 - i];
        memcpy(to, turned, sizeof turned);
    } else {
        memcpy(to, values, sizeof values);
    }
}

INLINE void line_from_bytes(const uint8_t *from, const uint8_t *mean_image, float mean,
                            float scale, uint8_t *to, size_t num, bool mirrored)
{
    size_t at = 0;
    if (num < BLOCK) {
        for (; at < num; at++) {
            float less = mean_image != NULL ? load_float(mean_image + 4 * at) : mean;
            size_t place = mirrored ? num - 1 - at : at;
            store_float(to + 4 * place, ((float)from[at] - less) * scale);
        }
        return;
    }
    for (;; at += BLOCK) {
        if (at > num - BLOCK) {
            if (at == num)
                return;
            at = num - BLOCK;
        }
        size_t place = mirrored ? num - BLOCK - at : at;
        block_from_bytes(from + at, mean_image != NULL ? mean_image + 4 * at : NULL, mean, scale,
                         to + 4 * place, mirrored);
    }
}

INLINE void rows_from_bytes(const struct plane *plane, bool has_image, bool mirrored)
{
    const size_t num = plane->num_columns;
    for (size_t row = 0; row < plane->num_rows; row++)
        line_from_bytes(plane->from + row * plane->from_step,
                        has_image ? plane->mean_image + row * plane->mean_step : NULL, plane->mean,
                        plane->scale, plane->to + 4 * num * row, num, mirrored);
}

/* (pixel - mean) * scale of a window of uint8 pixels. Without a mean or a scale they are 0 and 1,
 * which change no such pixel. */
CLONES void plane_from_bytes(const struct plane *plane)
{
    if (plane->mean_image != NULL) {
        if (plane->mirrored)
            rows_from_bytes(plane, true, true);
        else
            rows_from_bytes(plane, true, false);
    } else {
        if (plane->mirrored)
            rows_from_bytes(plane, false, true);
        else
            rows_from_bytes(plane, false, false);
    }
}

INLINE void rows_from_floats(const struct plane *plane, size_t step, bool mirrored)
{
    const size_t num = plane->num_columns;
    for (size_t row = 0; row < plane->num_rows; row++) {
        const uint8_t *from = plane->from + row * plane->from_step;
        const uint8_t *mean_image = plane->mean_image;
        uint8_t *to = plane->to + 4 * num * row;
        if (mean_image != NULL)
            mean_image += row * plane->mean_step;
        for (size_t i = 0; i < num; i++) {
            float value = load_wire_float(from + step * i);
            /* A stored NaN keeps every bit where there is nothing to compute. */
            if (mean_image != NULL)
                value -= load_float(mean_image + 4 * i);
            else if (plane->subtracts)
                value -= plane->mean;
            if (plane->multiplies)
                value *= plane->scale;
            store_float(to + 4 * (mirrored ? num - 1 - i : i), value);
        }
    }
}

/* The same of a window of float32 pixels, as they are on the wire: together, or a tag between. */
CLONES void plane_from_floats(const struct plane *plane)
{
    if (plane->pixel_step == 4 && plane->mirrored)
        rows_from_floats(plane, 4, true);
    else if (plane->pixel_step == 4)
        rows_from_floats(plane, 4, false);
    else
        rows_from_floats(plane, plane->pixel_step, plane->mirrored);
}

/* Without branches, so that it vectorises. The three cases are those of the result: no number or
 * too large, normal, and subnormal, where adding 0.5 rounds at the right bit. */
INLINE uint16_t round_to_half(uint32_t bits)
{
    const uint32_t sign = bits & 0x80000000u, size = bits ^ sign;
    const uint32_t payload = 0x7C00u + ((size & 0x007FFFFFu) >> 13);
    const uint32_t nan = payload == 0x7C00u ? 0x7C01u : payload;
    const uint32_t large = size > 0x7F800000u ? nan : 0x7C00u;
    const uint32_t normal = (size - 0x38000000u + 0xFFFu + ((size >> 13) & 1)) >> 13;
    const uint32_t small_size = size < 0x38800000u ? size : 0;
    float small;
    uint32_t subnormal;
    memcpy(&small, &small_size, sizeof small);
    small += 0.5f;
    memcpy(&subnormal, &small, sizeof small);
    subnormal -= 0x3F000000u;
    const uint32_t half = size >= 0x47800000u ? large : size < 0x38800000u ? subnormal : normal;
    return (uint16_t)(half | sign >> 16);
}

uint16_t half_bits(uint32_t bits)
{
    return round_to_half(bits);
}

CLONES void halve(const uint8_t *floats, size_t num, uint8_t *halves)
{
    for (size_t i = 0; i < num; i++) {
        uint32_t bits;
        memcpy(&bits, floats + 4 * i, sizeof bits);
        const uint16_t half = round_to_half(bits);
        memcpy(halves + 2 * i, &half, sizeof half);
    }
}

CLONES void reverse_bytes(const uint8_t *from, size_t num, uint8_t *to)
{
    size_t at = 0;
    for (; at + BLOCK <= num; at += BLOCK) {
        uint8_t turned[BLOCK];
        for (int i = 0; i < BLOCK; i++)
            turned[i] = from[at + BLOCK - 1 - (size_t)i];
        memcpy(to + num - BLOCK - at, turned, sizeof turned);
    }
    for (; at < num; at++)
        to[num - 1 - at] = from[at];
}

CLONES void split_three(const uint8_t *from, size_t num, uint8_t *first, uint8_t *second,
                        uint8_t *third)
{
    for (size_t i = 0; i < num; i++) {
        first[i] = from[3 * i];
        second[i] = from[3 * i + 1];
        third[i] = from[3 * i + 2];
    }
}
