/* A vector of bytes, in the terms of the chip that a file is compiled for: BLOCK_LINES of them, and
 * how squares of bytes are turned, columns into lines. */
#ifndef RINGFEED_BYTE_VECTORS_H
#define RINGFEED_BYTE_VECTORS_H

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

INLINE bytes interleave_low(bytes first, bytes second)
{
    return OF_BITS(unpacklo_epi8)(first, second);
}

INLINE bytes interleave_high(bytes first, bytes second)
{
    return OF_BITS(unpackhi_epi8)(first, second);
}

#elif defined(__aarch64__) && defined(__ARM_NEON)

#define BLOCK_LINES 16
typedef uint8x16_t bytes;

INLINE bytes load_bytes(const uint8_t *from)
{
    return vld1q_u8(from);
}

INLINE void store_bytes(uint8_t *to, bytes value)
{
    vst1q_u8(to, value);
}

INLINE bytes load_of_lines(const uint8_t *const lines[BLOCK_LINES], size_t line, size_t at)
{
    return vld1q_u8(lines[line] + at);
}

INLINE void store_of_lines(uint8_t *const lines[BLOCK_LINES], size_t line, bytes value)
{
    vst1q_u8(lines[line], value);
}

INLINE bytes interleave_low(bytes first, bytes second)
{
    return vzip1q_u8(first, second);
}

INLINE bytes interleave_high(bytes first, bytes second)
{
    return vzip2q_u8(first, second);
}

#endif

#if defined(BLOCK_LINES)
#define HAS_BYTE_VECTORS

#define INTERLEAVE(i)                                         \
    to[2 * (i)] = interleave_low(from[i], from[(i) + 8]);     \
    to[2 * (i) + 1] = interleave_high(from[i], from[(i) + 8])

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

#endif

#endif
