/* A vector of bytes, in the terms of the chip that a file is compiled for: BLOCK_LINES of them, and
 * the two things that resizing needs. Weighted sums are exact, so all chips give the same bytes. */
#ifndef RINGFEED_BYTE_VECTORS_H
#define RINGFEED_BYTE_VECTORS_H

#include "taps.h"
#include "vectors.h"

/* Columns that are turned at once. */
enum { BLOCK_COLUMNS = 16 };

#if defined(RINGFEED_AVX2) || defined(__SSE2__) || defined(_M_X64)

#if defined(RINGFEED_AVX2)
#define BLOCK_LINES 32
#define OF_BITS(operation) _mm256_##operation
#define OF_ALL(operation) _mm256_##operation##_si256
typedef __m256i bytes;
#else
#define BLOCK_LINES 16
#define OF_BITS(operation) _mm_##operation
#define OF_ALL(operation) _mm_##operation##_si128
typedef __m128i bytes;
#endif

INLINE bytes load_bytes(const uint8_t *from)
{
    return OF_ALL(loadu)((const bytes *)(const void *)from);
}

INLINE void store_bytes(uint8_t *to, bytes value)
{
    OF_ALL(storeu)((bytes *)(void *)to, value);
}

/* Load 16 bytes of a line and, where a vector is longer, of the line 16 further on. */
INLINE bytes load_of_lines(const uint8_t *const lines[BLOCK_LINES], size_t line, size_t at)
{
    const __m128i low = _mm_loadu_si128((const __m128i *)(const void *)(lines[line] + at));
#if defined(RINGFEED_AVX2)
    const __m128i *high = (const __m128i *)(const void *)(lines[line + 16] + at);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(low), _mm_loadu_si128(high), 1);
#else
    return low;
#endif
}

INLINE void store_of_lines(uint8_t *const lines[BLOCK_LINES], size_t line, bytes value)
{
#if defined(RINGFEED_AVX2)
    _mm_storeu_si128((__m128i *)(void *)lines[line], _mm256_castsi256_si128(value));
    _mm_storeu_si128((__m128i *)(void *)lines[line + 16], _mm256_extracti128_si256(value, 1));
#else
    _mm_storeu_si128((__m128i *)(void *)lines[line], value);
#endif
}

#define INTERLEAVE(i)                                                 \
    to[2 * (i)] = OF_BITS(unpacklo_epi8)(from[i], from[(i) + 8]);     \
    to[2 * (i) + 1] = OF_BITS(unpackhi_epi8)(from[i], from[(i) + 8])

INLINE void interleave_halves(const bytes from[16], bytes to[16])
{
    INTERLEAVE(0);
    INTERLEAVE(1);
    INTERLEAVE(2);
    INTERLEAVE(3);
    INTERLEAVE(4);
    INTERLEAVE(5);
    INTERLEAVE(6);
    INTERLEAVE(7);
}

/* Turn a square of 16 x 16 bytes in each 16 bytes of the vectors. An element is found by 4 bits of
 * line and 4 of column; each step rotates these eight by one. */
INLINE void turn_squares(bytes square[16])
{
    bytes other[16];
    interleave_halves(square, other);
    interleave_halves(other, square);
    interleave_halves(square, other);
    interleave_halves(other, square);
}

INLINE void turn_lines(const uint8_t *const lines[BLOCK_LINES], size_t at, uint8_t *columns)
{
    bytes square[16];
    for (size_t i = 0; i < 16; i++)
        square[i] = load_of_lines(lines, i, at);
    turn_squares(square);
    for (size_t i = 0; i < 16; i++)
        store_bytes(columns + BLOCK_LINES * i, square[i]);
}

INLINE void turn_columns(const uint8_t *columns, uint8_t *const lines[BLOCK_LINES])
{
    bytes square[16];
    for (size_t i = 0; i < 16; i++)
        square[i] = load_bytes(columns + BLOCK_LINES * i);
    turn_squares(square);
    for (size_t i = 0; i < 16; i++)
        store_of_lines(lines, i, square[i]);
}

INLINE bytes broadcast_word(const void *from)
{
    int32_t word;
    memcpy(&word, from, sizeof word);
    return OF_BITS(set1_epi32)(word);
}

/* Weighted sums of the bytes of num_taps lines, the last of which may stand for two, with a
 * coefficient of 0 for the second. Bytes of two lines become pairs, and these are multiplied by
 * pairs of coefficients: the low halves to sums of 32 bits, and the high halves to such of 16,
 * which are put on top in the end. What flows over is lost from both, and so from neither. */
INLINE void blend_bytes(const uint8_t *from, size_t from_step, const struct tap_pair *pairs,
                        size_t num_pairs, size_t last_step, uint8_t *to)
{
    const bytes zero = OF_ALL(setzero)();
    const bytes half = OF_BITS(set1_epi32)(1 << (FRACTION_BITS - 1));
    bytes first = half, second = half, third = half, fourth = half;
#if defined(RINGFEED_AVX2)
    bytes high_first = zero, high_second = zero;
#else
    bytes high[4] = {zero, zero, zero, zero};
#endif
    for (size_t i = 0; i < num_pairs; i++) {
        const uint8_t *line = from + 2 * i * from_step;
        const bytes upper = load_bytes(line);
        const bytes lower = load_bytes(line + (i + 1 < num_pairs ? from_step : last_step));
        const bytes both_first = OF_BITS(unpacklo_epi8)(upper, lower);
        const bytes both_second = OF_BITS(unpackhi_epi8)(upper, lower);
        const bytes words_first = OF_BITS(unpacklo_epi8)(both_first, zero);
        const bytes words_second = OF_BITS(unpackhi_epi8)(both_first, zero);
        const bytes words_third = OF_BITS(unpacklo_epi8)(both_second, zero);
        const bytes words_fourth = OF_BITS(unpackhi_epi8)(both_second, zero);
        const bytes low = broadcast_word(pairs[i].low);
        first = OF_BITS(add_epi32)(first, OF_BITS(madd_epi16)(words_first, low));
        second = OF_BITS(add_epi32)(second, OF_BITS(madd_epi16)(words_second, low));
        third = OF_BITS(add_epi32)(third, OF_BITS(madd_epi16)(words_third, low));
        fourth = OF_BITS(add_epi32)(fourth, OF_BITS(madd_epi16)(words_fourth, low));
        const bytes highs = broadcast_word(pairs[i].high);
#if defined(RINGFEED_AVX2)
        high_first = OF_BITS(add_epi16)(high_first, OF_BITS(maddubs_epi16)(both_first, highs));
        high_second = OF_BITS(add_epi16)(high_second, OF_BITS(maddubs_epi16)(both_second, highs));
#else
        const bytes wide = OF_BITS(srai_epi16)(OF_BITS(unpacklo_epi8)(highs, highs), 8);
        high[0] = OF_BITS(add_epi32)(high[0], OF_BITS(madd_epi16)(words_first, wide));
        high[1] = OF_BITS(add_epi32)(high[1], OF_BITS(madd_epi16)(words_second, wide));
        high[2] = OF_BITS(add_epi32)(high[2], OF_BITS(madd_epi16)(words_third, wide));
        high[3] = OF_BITS(add_epi32)(high[3], OF_BITS(madd_epi16)(words_fourth, wide));
#endif
    }
#if defined(RINGFEED_AVX2)
    first = OF_BITS(add_epi32)(first, OF_BITS(unpacklo_epi16)(zero, high_first));
    second = OF_BITS(add_epi32)(second, OF_BITS(unpackhi_epi16)(zero, high_first));
    third = OF_BITS(add_epi32)(third, OF_BITS(unpacklo_epi16)(zero, high_second));
    fourth = OF_BITS(add_epi32)(fourth, OF_BITS(unpackhi_epi16)(zero, high_second));
#else
    first = OF_BITS(add_epi32)(first, OF_BITS(slli_epi32)(high[0], 16));
    second = OF_BITS(add_epi32)(second, OF_BITS(slli_epi32)(high[1], 16));
    third = OF_BITS(add_epi32)(third, OF_BITS(slli_epi32)(high[2], 16));
    fourth = OF_BITS(add_epi32)(fourth, OF_BITS(slli_epi32)(high[3], 16));
#endif
    const bytes low_words = OF_BITS(packs_epi32)(OF_BITS(srai_epi32)(first, FRACTION_BITS),
                                                 OF_BITS(srai_epi32)(second, FRACTION_BITS));
    const bytes high_words = OF_BITS(packs_epi32)(OF_BITS(srai_epi32)(third, FRACTION_BITS),
                                                  OF_BITS(srai_epi32)(fourth, FRACTION_BITS));
    store_bytes(to, OF_BITS(packus_epi16)(low_words, high_words));
}

#else

/* One byte after the other, in loops that compilers know how to vectorise. */
#define BLOCK_LINES 16

INLINE void turn_lines(const uint8_t *const lines[BLOCK_LINES], size_t at, uint8_t *columns)
{
    for (size_t line = 0; line < BLOCK_LINES; line++)
        for (size_t column = 0; column < BLOCK_COLUMNS; column++)
            columns[BLOCK_LINES * column + line] = lines[line][at + column];
}

INLINE void turn_columns(const uint8_t *columns, uint8_t *const lines[BLOCK_LINES])
{
    for (size_t line = 0; line < BLOCK_LINES; line++)
        for (size_t column = 0; column < BLOCK_COLUMNS; column++)
            lines[line][column] = columns[BLOCK_LINES * column + line];
}

INLINE void blend_bytes(const uint8_t *from, size_t from_step, const struct tap_pair *pairs,
                        size_t num_pairs, size_t last_step, uint8_t *to)
{
    int32_t sums[BLOCK_LINES];
    for (size_t i = 0; i < BLOCK_LINES; i++)
        sums[i] = 1 << (FRACTION_BITS - 1);
    for (size_t pair = 0; pair < num_pairs; pair++) {
        const uint8_t *upper = from + 2 * pair * from_step;
        const uint8_t *lower = upper + (pair + 1 < num_pairs ? from_step : last_step);
        const int32_t one = coefficient_of(&pairs[pair], 0);
        const int32_t other = coefficient_of(&pairs[pair], 1);
        for (size_t i = 0; i < BLOCK_LINES; i++)
            sums[i] += one * upper[i] + other * lower[i];
    }
    for (size_t i = 0; i < BLOCK_LINES; i++) {
        const int32_t value = sums[i] >> FRACTION_BITS;
        to[i] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
    }
}

#endif

#endif
