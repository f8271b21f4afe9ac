/* The weighted sum of lines, a vector of bytes at a time. It is exact, so that all chips give the
 * same bytes. */
#ifndef RINGFEED_BLEND_H
#define RINGFEED_BLEND_H

#include "byte_vectors.h"
#include "taps.h"

#if defined(OF_BITS)

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
        const bytes both_first = interleave_low(upper, lower);
        const bytes both_second = interleave_high(upper, lower);
        const bytes words_first = interleave_low(both_first, zero);
        const bytes words_second = interleave_high(both_first, zero);
        const bytes words_third = interleave_low(both_second, zero);
        const bytes words_fourth = interleave_high(both_second, zero);
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
        const bytes wide = OF_BITS(srai_epi16)(interleave_low(highs, highs), 8);
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

#elif defined(HAS_BYTE_VECTORS)

/* Sums of eight bytes, times low halves and times high halves. */
struct byte_sums {
    int32x4_t low[2], high[2];
};

INLINE void add_bytes(struct byte_sums *sums, uint8x8_t line, const struct tap_pair *pair,
                      size_t which)
{
    const int16x8_t words = vreinterpretq_s16_u16(vmovl_u8(line));
    const int16x4_t first = vget_low_s16(words), second = vget_high_s16(words);
    sums->low[0] = vmlal_n_s16(sums->low[0], first, pair->low[which]);
    sums->low[1] = vmlal_n_s16(sums->low[1], second, pair->low[which]);
    sums->high[0] = vmlal_n_s16(sums->high[0], first, pair->high[which]);
    sums->high[1] = vmlal_n_s16(sums->high[1], second, pair->high[which]);
}

INLINE uint8x8_t finish_sums(const struct byte_sums *sums)
{
    const int32x4_t first = vaddq_s32(sums->low[0], vshlq_n_s32(sums->high[0], 16));
    const int32x4_t second = vaddq_s32(sums->low[1], vshlq_n_s32(sums->high[1], 16));
    return vqmovun_s16(vcombine_s16(vqmovn_s32(vshrq_n_s32(first, FRACTION_BITS)),
                                    vqmovn_s32(vshrq_n_s32(second, FRACTION_BITS))));
}

INLINE void blend_bytes(const uint8_t *from, size_t from_step, const struct tap_pair *pairs,
                        size_t num_pairs, size_t last_step, uint8_t *to)
{
    const int32x4_t zero = vdupq_n_s32(0), half = vdupq_n_s32(1 << (FRACTION_BITS - 1));
    struct byte_sums left = {{half, half}, {zero, zero}}, right = left;
    for (size_t i = 0; i < num_pairs; i++) {
        const uint8_t *line = from + 2 * i * from_step;
        const bytes upper = load_bytes(line);
        const bytes lower = load_bytes(line + (i + 1 < num_pairs ? from_step : last_step));
        add_bytes(&left, vget_low_u8(upper), &pairs[i], 0);
        add_bytes(&right, vget_high_u8(upper), &pairs[i], 0);
        add_bytes(&left, vget_low_u8(lower), &pairs[i], 1);
        add_bytes(&right, vget_high_u8(lower), &pairs[i], 1);
    }
    store_bytes(to, vcombine_u8(finish_sums(&left), finish_sums(&right)));
}

#else

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
