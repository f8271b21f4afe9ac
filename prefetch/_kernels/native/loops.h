/* The loops over pixels, for whatever chip the including file is compiled for; it names the table
 * of them LOOPS. They are equal to the bit whatever that is.
 *
 * Lines are worked through in vectors without a rest: the last vector of a line overlaps the one
 * before it. (32x32 cropped to 28: 28 pixels are 4 vectors, not 3 and 4 single floats.)
 */
#include <stddef.h>

#include "byte_loops.h"
#include "kernels.h"
#include "vectors.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

#include "effect_loops.h" /* under the pragma */

INLINE float load_float(const uint8_t *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* Load a float of a record: little-endian on the wire. */
INLINE float load_wire_float(const uint8_t *from)
{
    const uint32_t bits = (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
                          (uint32_t)from[3] << 24;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE void store_float(uint8_t *to, float value)
{
    memcpy(to, &value, sizeof value);
}

/* What is done to each pixel of a plane; known when the loops over it are compiled. */
struct steps {
    bool has_image, mirrored, unit_range;
};

INLINE void compute_vector(const struct plane *plane, const uint8_t *from,
                           const uint8_t *mean_image, uint8_t *to, struct steps steps)
{
    const vector mean = steps.has_image ? vector_load(mean_image) : vector_of(plane->mean);
    vector value = vector_load_bytes(from);
    if (steps.unit_range)
        value = vector_multiply(value, vector_of(UNIT));
    value = vector_multiply(vector_subtract(value, mean), vector_of(plane->scale));
    vector_store(to, steps.mirrored ? vector_reverse(value) : value);
}

INLINE void line_from_bytes(const struct plane *plane, const uint8_t *from,
                            const uint8_t *mean_image, size_t num, uint8_t *to,
                            struct steps steps)
{
    if (num < LANES) {
        for (size_t i = 0; i < num; i++) {
            const float mean = steps.has_image ? load_float(mean_image + 4 * i) : plane->mean;
            const float pixel = steps.unit_range ? (float)from[i] * UNIT : (float)from[i];
            store_float(to + 4 * (steps.mirrored ? num - 1 - i : i),
                        (pixel - mean) * plane->scale);
        }
        return;
    }
    const size_t last = num - LANES;
    /* Forward in what is stored, not in what is loaded: 0.8 of the time for crops of 227 pixels. */
    for (size_t place = 0; place < last; place += LANES) {
        const size_t i = steps.mirrored ? last - place : place;
        compute_vector(plane, from + i, steps.has_image ? mean_image + 4 * i : NULL,
                       to + 4 * place, steps);
    }
    const size_t i = steps.mirrored ? 0 : last;
    compute_vector(plane, from + i, steps.has_image ? mean_image + 4 * i : NULL, to + 4 * last,
                   steps);
}

INLINE void lines_from_bytes(const struct plane *plane, struct steps steps)
{
    const struct plane own = *plane; /* known not to change by the stores */
    const size_t num = own.num_columns;
    for (size_t row = 0; row < own.num_rows; row++) {
        const uint8_t *from = own.from + row * own.from_step;
        const uint8_t *mean_image =
            steps.has_image ? own.mean_image + row * own.mean_step : NULL;
        if (num < CACHE_LINE_BYTES)
            prefetch_bytes((uintptr_t)from + own.prefetch_distance, 1);
        else
            prefetch_line(from, own.from_step, num);
        line_from_bytes(&own, from, mean_image, num, own.to + 4 * num * row, steps);
    }
}

/* A plane that is one line: in pieces, each of which asks for the same one of a later record. */
INLINE void pieces_from_bytes(const struct plane *plane, struct steps steps)
{
    const struct plane own = *plane;
    for (size_t i = 0, size; i < own.num_columns; i += size) {
        const size_t left = own.num_columns - i;
        /* None may be too short for a vector. */
        size = left < CACHE_LINE_BYTES + LANES ? left : CACHE_LINE_BYTES;
        prefetch_bytes((uintptr_t)own.from + i + own.prefetch_distance, 1);
        line_from_bytes(&own, own.from + i, steps.has_image ? own.mean_image + 4 * i : NULL, size,
                        own.to + 4 * i, steps);
    }
}

static void plane_from_bytes(const struct plane *plane)
{
    const bool has_image = plane->mean_image != NULL, mirrored = plane->mirrored;
    if (plane->unit_range && mirrored)
        lines_from_bytes(plane, (struct steps){.unit_range = true, .mirrored = true});
    else if (plane->unit_range)
        lines_from_bytes(plane, (struct steps){.unit_range = true});
    else if (plane->num_rows == 1 && !mirrored && has_image)
        pieces_from_bytes(plane, (struct steps){.has_image = true});
    else if (plane->num_rows == 1 && !mirrored)
        pieces_from_bytes(plane, (struct steps){0});
    else if (has_image && mirrored)
        lines_from_bytes(plane, (struct steps){.has_image = true, .mirrored = true});
    else if (has_image)
        lines_from_bytes(plane, (struct steps){.has_image = true});
    else if (mirrored)
        lines_from_bytes(plane, (struct steps){.mirrored = true});
    else
        lines_from_bytes(plane, (struct steps){0});
}

/* A question more for each float, asked in the loop, takes 1.4 times as long. */
INLINE void lines_from_floats(const struct plane *plane, size_t pixel_step, bool unit_range)
{
    const struct plane own = *plane;
    const size_t num = own.num_columns;
    for (size_t row = 0; row < own.num_rows; row++) {
        const uint8_t *from = own.from + row * own.from_step;
        const uint8_t *mean_image = own.mean_image;
        uint8_t *to = own.to + 4 * num * row;
        if (mean_image != NULL)
            mean_image += row * own.mean_step;
        for (size_t place = 0; place < num; place++) {
            const size_t i = own.mirrored ? num - 1 - place : place;
            float value = load_wire_float(from + pixel_step * i);
            if (unit_range)
                value *= UNIT;
            /* A stored NaN keeps every bit where there is nothing to compute. */
            if (mean_image != NULL)
                value -= load_float(mean_image + 4 * i);
            else if (own.subtracts)
                value -= own.mean;
            if (own.multiplies)
                value *= own.scale;
            store_float(to + 4 * place, value);
        }
    }
}

static void plane_from_floats(const struct plane *plane)
{
    if (plane->unit_range)
        lines_from_floats(plane, plane->pixel_step, true);
    else if (plane->pixel_step == 4)
        lines_from_floats(plane, 4, false);
    else
        lines_from_floats(plane, plane->pixel_step, false);
}

static void round_to_halves(const uint8_t *restrict floats, size_t num, uint8_t *restrict halves)
{
    size_t at = 0;
#if defined(RINGFEED_AVX2)
    if (num >= LANES) {
        for (; at + LANES < num; at += LANES)
            vector_store_halves(halves + 2 * at, vector_load(floats + 4 * at));
        at = num;
        vector_store_halves(halves + 2 * (at - LANES), vector_load(floats + 4 * (at - LANES)));
    }
#endif
    for (; at < num; at++) {
        uint32_t bits;
        memcpy(&bits, floats + 4 * at, sizeof bits);
        const uint16_t half = half_bits(bits);
        memcpy(halves + 2 * at, &half, sizeof half);
    }
}

static void round_to_bfloats(const uint8_t *restrict floats, size_t num, uint8_t *restrict shorts)
{
    size_t at = 0;
#if defined(RINGFEED_AVX2)
    const size_t step = 2 * LANES;
    if (num >= step) {
        const size_t last = num - step;
        vector nans = vector_of(0);
        for (; at < last; at += step)
            nans =
                vector_or(nans, vector_store_bfloats(shorts + 2 * at, vector_load(floats + 4 * at),
                                                     vector_load(floats + 4 * (at + LANES))));
        nans =
            vector_or(nans, vector_store_bfloats(shorts + 2 * last, vector_load(floats + 4 * last),
                                                 vector_load(floats + 4 * (last + LANES))));
        at = vector_has_bits(nans) ? 0 : num; /* rare enough for all of it to be done again */
    }
#endif
    for (; at < num; at++) {
        uint32_t bits;
        memcpy(&bits, floats + 4 * at, sizeof bits);
        const uint16_t bfloat = bfloat_bits(bits);
        memcpy(shorts + 2 * at, &bfloat, sizeof bfloat);
    }
}

/* Take pixels of three bytes apart. */
static void split_three(const uint8_t *restrict from, size_t num, uint8_t *restrict first,
                        uint8_t *restrict second, uint8_t *restrict third)
{
    for (size_t i = 0; i < num; i++) {
        first[i] = from[3 * i];
        second[i] = from[3 * i + 1];
        third[i] = from[3 * i + 2];
    }
}

/* Put three lines' bytes side by side, pixel by pixel. */
static void join_three(const uint8_t *restrict first, const uint8_t *restrict second,
                       const uint8_t *restrict third, size_t num, uint8_t *restrict to)
{
    for (size_t i = 0; i < num; i++) {
        to[3 * i] = first[i];
        to[3 * i + 1] = second[i];
        to[3 * i + 2] = third[i];
    }
}

const struct loops LOOPS = {
    .plane_from_bytes = plane_from_bytes,
    .plane_from_floats = plane_from_floats,
    .round_to_halves = round_to_halves,
    .round_to_bfloats = round_to_bfloats,
    .split_three = split_three,
    .join_three = join_three,
    .blend_lines = blend_lines,
    .resample_lines = resample_lines,
    .jitter_bytes = jitter_bytes,
    .draw_noise = draw_noise,
};
