/* Mixing a batch with itself, at the speed of memory; the values are read and written once. */
#include "mix.h"

#include "vectors.h"

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

/* Values of two bytes that are mixed at a time: as floats they stay in the first cache. */
#define TILE 1024

INLINE float load_single(const uint8_t *from, size_t i)
{
    float value;
    memcpy(&value, from + 4 * i, sizeof value);
    return value;
}

INLINE void store_single(uint8_t *to, size_t i, float value)
{
    memcpy(to + 4 * i, &value, sizeof value);
}

INLINE void mix_singles(uint8_t *restrict row, uint8_t *restrict partner, size_t num, float lam,
                        float rest)
{
    for (size_t i = 0; i < num; i++) {
        const float ours = load_single(row, i), theirs = load_single(partner, i);
        store_single(row, i, ours * lam + theirs * rest);
        store_single(partner, i, theirs * lam + ours * rest);
    }
}

/* A row that is its own partner. */
INLINE void mix_alone(uint8_t *row, size_t num, float lam, float rest)
{
    for (size_t i = 0; i < num; i++) {
        const float ours = load_single(row, i);
        store_single(row, i, ours * lam + ours * rest);
    }
}

/* The float32 that a float16 is. Without branches, so that it vectorises: infinite or no number,
 * normal, and subnormal, of which the subtraction makes a normal number. */
INLINE float float_of_half(uint16_t half)
{
    const uint32_t sign = (uint32_t)(half & 0x8000u) << 16, size = half & 0x7FFFu;
    const uint32_t shifted = size << 13, least_bits = 0x38800000u;
    const uint32_t raised = shifted + least_bits;
    float subnormal, least, value;
    uint32_t bits;
    memcpy(&subnormal, &raised, sizeof subnormal);
    memcpy(&least, &least_bits, sizeof least);
    subnormal -= least;
    memcpy(&bits, &subnormal, sizeof bits);
    bits = select_bits(size < 0x0400u, bits, shifted + 0x38000000u);
    bits = select_bits(size >= 0x7C00u, shifted + 0x70000000u, bits) | sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE float float_of_bfloat(uint16_t bfloat)
{
    const uint32_t bits = (uint32_t)bfloat << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

INLINE void widen(const uint8_t *restrict from, size_t num, bool is_half, uint8_t *restrict to)
{
    for (size_t i = 0; i < num; i++) {
        uint16_t bits;
        memcpy(&bits, from + 2 * i, sizeof bits);
        store_single(to, i, is_half ? float_of_half(bits) : float_of_bfloat(bits));
    }
}

INLINE void narrow(const uint8_t *from, size_t num, bool is_half, uint8_t *to)
{
    if (is_half)
        chosen_loops->round_to_halves(from, num, to);
    else
        chosen_loops->round_to_bfloats(from, num, to);
}

INLINE void mix_shorts(uint8_t *row, uint8_t *partner, size_t num, bool is_half, float lam,
                       float rest)
{
    uint8_t ours[4 * TILE], theirs[4 * TILE];
    for (size_t at = 0; at < num; at += TILE) {
        const size_t part = num - at < TILE ? num - at : TILE;
        widen(row + 2 * at, part, is_half, ours);
        if (partner == row) {
            mix_alone(ours, part, lam, rest);
        } else {
            widen(partner + 2 * at, part, is_half, theirs);
            mix_singles(ours, theirs, part, lam, rest);
            narrow(theirs, part, is_half, partner + 2 * at);
        }
        narrow(ours, part, is_half, row + 2 * at);
    }
}

/* With what is a constant in each call, so that each becomes a loop of its own. */
INLINE void mix_pair(uint8_t *row, uint8_t *partner, size_t num, enum element element, float lam,
                     float rest)
{
    if (element == FLOAT16)
        mix_shorts(row, partner, num, true, lam, rest);
    else if (element == BFLOAT16)
        mix_shorts(row, partner, num, false, lam, rest);
    else if (row == partner)
        mix_alone(row, num, lam, rest);
    else
        mix_singles(row, partner, num, lam, rest);
}

typedef void mix_pair_function(uint8_t *row, uint8_t *partner, size_t num, enum element element,
                               float lam, float rest);

static void mix_pair_anywhere(uint8_t *row, uint8_t *partner, size_t num, enum element element,
                              float lam, float rest)
{
    mix_pair(row, partner, num, element, lam, rest);
}

#if HAS_AVX2_LOOPS
__attribute__((target("avx2"))) static void mix_pair_avx2(uint8_t *row, uint8_t *partner,
                                                          size_t num, enum element element,
                                                          float lam, float rest)
{
    mix_pair(row, partner, num, element, lam, rest);
}
#endif

void mix_rows(uint8_t *rows, size_t num_rows, size_t num_values, enum element element, float lam)
{
    mix_pair_function *mix = mix_pair_anywhere;
#if HAS_AVX2_LOOPS
    if (chosen_loops == &avx2_loops)
        mix = mix_pair_avx2;
#endif
    const float rest = 1.0f - lam;
    const size_t row_bytes = num_values * (element == FLOAT32 ? 4 : 2);
    for (size_t i = 0; 2 * i < num_rows; i++)
        mix(rows + row_bytes * i, rows + row_bytes * (num_rows - 1 - i), num_values, element, lam,
            rest);
}

static void swap_bytes(uint8_t *restrict left, uint8_t *restrict right, size_t num)
{
    for (size_t i = 0; i < num; i++) {
        const uint8_t kept = left[i];
        left[i] = right[i];
        right[i] = kept;
    }
}

void swap_boxes(uint8_t *rows, size_t num_rows, const struct lines *lines, const struct byte_box *box)
{
    const size_t plane_bytes = lines->num_lines * lines->line_bytes;
    const size_t row_bytes = lines->num_planes * plane_bytes;
    for (size_t i = 0; 2 * i + 1 < num_rows; i++) {
        uint8_t *const row = rows + row_bytes * i;
        uint8_t *const partner = rows + row_bytes * (num_rows - 1 - i);
        for (size_t plane = 0; plane < lines->num_planes; plane++) {
            for (size_t line = box->top; line < box->bottom; line++) {
                const size_t at = plane * plane_bytes + line * lines->line_bytes + box->left;
                swap_bytes(row + at, partner + at, box->right - box->left);
            }
        }
    }
}
