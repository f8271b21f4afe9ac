/* Sums of images, with a sum in a register while several images are added to it: what is read of
 * them then takes longer than all else, at the speed of memory. */
#include "sums.h"

#include "kernels.h"
#include "vectors.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

/* Pixels that all images are added to before the next ones: 256 kB of float32 sums, which stay in a
 * core's own cache. Of fewer pixels, memory is read in pieces too short for it to look ahead. */
#define TILE_PIXELS 65536

/* Images that are added while a sum is in a register, one after the other. With one at a time the
 * sums' way to the cache and back takes as long as the reading; 16 are no faster than 8. */
#define TOGETHER 8

INLINE float load_pixel(const uint8_t *pixels, size_t i, bool is_float)
{
    float value;
    if (!is_float)
        return pixels[i];
    memcpy(&value, pixels + 4 * i, sizeof value);
    return value;
}

INLINE void add_to_floats(const struct addend *restrict images, size_t num_images, size_t first,
                          size_t num, uint8_t *restrict sums, bool is_float)
{
    const size_t size = is_float ? 4 : 1;
    const uint8_t *from[TOGETHER];
    for (size_t k = 0; k < num_images; k++)
        from[k] = images[k].pixels + size * first;
    for (size_t i = 0; i < num; i++) {
        float sum;
        memcpy(&sum, sums + 4 * i, sizeof sum);
        for (size_t k = 0; k < num_images; k++)
            sum += load_pixel(from[k], i, is_float);
        memcpy(sums + 4 * i, &sum, sizeof sum);
    }
}

INLINE void add_to_doubles(const struct addend *restrict images, size_t num_images, size_t first,
                           size_t num, uint8_t *restrict sums, bool is_float)
{
    const size_t size = is_float ? 4 : 1;
    const uint8_t *from[TOGETHER];
    for (size_t k = 0; k < num_images; k++)
        from[k] = images[k].pixels + size * first;
    for (size_t i = 0; i < num; i++) {
        double sum;
        memcpy(&sum, sums + 8 * i, sizeof sum);
        for (size_t k = 0; k < num_images; k++)
            sum += (double)load_pixel(from[k], i, is_float);
        memcpy(sums + 8 * i, &sum, sizeof sum);
    }
}

INLINE bool are_bytes(const struct addend *images, size_t num)
{
    bool found = true;
    for (size_t k = 0; k < num; k++)
        found = found && !images[k].is_float;
    return found;
}

INLINE void add_tile(const struct addend *images, size_t num_images, size_t first, size_t num,
                     uint8_t *sums, bool is_wide)
{
    size_t at = 0;
    for (; at + TOGETHER <= num_images && are_bytes(images + at, TOGETHER); at += TOGETHER) {
        if (is_wide)
            add_to_doubles(images + at, TOGETHER, first, num, sums, false);
        else
            add_to_floats(images + at, TOGETHER, first, num, sums, false);
    }
    for (; at < num_images; at++) {
        if (is_wide && images[at].is_float)
            add_to_doubles(images + at, 1, first, num, sums, true);
        else if (is_wide)
            add_to_doubles(images + at, 1, first, num, sums, false);
        else if (images[at].is_float)
            add_to_floats(images + at, 1, first, num, sums, true);
        else
            add_to_floats(images + at, 1, first, num, sums, false);
    }
}

typedef void add_tile_function(const struct addend *images, size_t num_images, size_t first,
                               size_t num, uint8_t *sums, bool is_wide);

static void add_tile_anywhere(const struct addend *images, size_t num_images, size_t first,
                              size_t num, uint8_t *sums, bool is_wide)
{
    add_tile(images, num_images, first, num, sums, is_wide);
}

#if HAS_AVX2_LOOPS
__attribute__((target("avx2"))) static void add_tile_avx2(const struct addend *images,
                                                          size_t num_images, size_t first,
                                                          size_t num, uint8_t *sums, bool is_wide)
{
    add_tile(images, num_images, first, num, sums, is_wide);
}
#endif

void add_images(const struct addend *images, size_t num_images, size_t first, size_t num_pixels,
                uint8_t *sums, bool is_wide)
{
    add_tile_function *add = add_tile_anywhere;
#if HAS_AVX2_LOOPS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        add = add_tile_avx2;
#endif
    const size_t sum_bytes = is_wide ? sizeof(double) : sizeof(float);
    for (size_t at = 0; at < num_pixels; at += TILE_PIXELS) {
        const size_t rest = num_pixels - at;
        const size_t num = rest < TILE_PIXELS ? rest : TILE_PIXELS;
        add(images, num_images, first + at, num, sums + sum_bytes * at, is_wide);
    }
}
