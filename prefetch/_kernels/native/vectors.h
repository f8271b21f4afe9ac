/* A vector of floats, in the terms of the chip that a file is compiled for: LANES of them, what can
 * be done with them, and nothing that rounds differently from one float at a time. */
#ifndef RINGFEED_VECTORS_H
#define RINGFEED_VECTORS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__)
#define INLINE static inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define INLINE static __forceinline
#else
#define INLINE static inline
#endif

#if defined(RINGFEED_AVX2)

#include <immintrin.h>
#define LANES 8
typedef __m256 vector;

INLINE vector vector_load_bytes(const uint8_t *from)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)from)));
}

INLINE vector vector_load(const uint8_t *from)
{
    return _mm256_loadu_ps((const float *)(const void *)from);
}

INLINE vector vector_of(float value)
{
    return _mm256_set1_ps(value);
}

INLINE vector vector_subtract(vector left, vector right)
{
    return _mm256_sub_ps(left, right);
}

INLINE vector vector_multiply(vector left, vector right)
{
    return _mm256_mul_ps(left, right);
}

INLINE vector vector_add(vector left, vector right)
{
    return _mm256_add_ps(left, right);
}

/* At least 0 and at most 255. */
INLINE vector vector_clip(vector value)
{
    return _mm256_min_ps(_mm256_max_ps(value, _mm256_setzero_ps()), _mm256_set1_ps(255));
}

/* Without the fraction; of numbers that int32 can hold. */
INLINE vector vector_truncate(vector value)
{
    return _mm256_round_ps(value, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
}

/* Store numbers that int32 can hold, without their fraction, at least 0 and at most 255. */
INLINE void vector_store_bytes(uint8_t *to, vector value)
{
    const __m256i whole = _mm256_cvttps_epi32(value);
    const __m128i words =
        _mm_packs_epi32(_mm256_castsi256_si128(whole), _mm256_extracti128_si256(whole, 1));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(words, words));
}

INLINE vector vector_reverse(vector value)
{
    return _mm256_permutevar8x32_ps(value, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
}

INLINE void vector_store(uint8_t *to, vector value)
{
    _mm256_storeu_ps((float *)(void *)to, value);
}

INLINE void vector_store_halves(uint8_t *to, vector value)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

INLINE __m256i round_to_bfloat(vector value)
{
    const __m256i bits = _mm256_castps_si256(value);
    const __m256i is_odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), is_odd);
    return _mm256_srli_epi32(rounded, 16);
}

/* Store what bfloat_bits() makes of two vectors, but for NaNs, of which it returns a trace. The
 * instruction for it takes subnormals for zeros, and few chips have it. */
INLINE vector vector_store_bfloats(uint8_t *to, vector low, vector high)
{
    const __m256i crossed = _mm256_packus_epi32(round_to_bfloat(low), round_to_bfloat(high));
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_permute4x64_epi64(crossed, 0xD8));
    return _mm256_cmp_ps(low, high, _CMP_UNORD_Q);
}

INLINE vector vector_or(vector left, vector right)
{
    return _mm256_or_ps(left, right);
}

INLINE bool vector_has_bits(vector trace)
{
    return _mm256_movemask_ps(trace) != 0;
}

#elif defined(__SSE2__) || defined(_M_X64)

#include <emmintrin.h>
#define LANES 8
typedef struct {
    __m128 low, high;
} vector;

INLINE vector vector_load_bytes(const uint8_t *from)
{
    const __m128i zero = _mm_setzero_si128();
    const __m128i words = _mm_unpacklo_epi8(_mm_loadl_epi64((const __m128i *)from), zero);
    return (vector){_mm_cvtepi32_ps(_mm_unpacklo_epi16(words, zero)),
                    _mm_cvtepi32_ps(_mm_unpackhi_epi16(words, zero))};
}

INLINE vector vector_load(const uint8_t *from)
{
    const float *floats = (const float *)(const void *)from;
    return (vector){_mm_loadu_ps(floats), _mm_loadu_ps(floats + 4)};
}

INLINE vector vector_of(float value)
{
    return (vector){_mm_set1_ps(value), _mm_set1_ps(value)};
}

INLINE vector vector_subtract(vector left, vector right)
{
    return (vector){_mm_sub_ps(left.low, right.low), _mm_sub_ps(left.high, right.high)};
}

INLINE vector vector_multiply(vector left, vector right)
{
    return (vector){_mm_mul_ps(left.low, right.low), _mm_mul_ps(left.high, right.high)};
}

INLINE vector vector_add(vector left, vector right)
{
    return (vector){_mm_add_ps(left.low, right.low), _mm_add_ps(left.high, right.high)};
}

INLINE vector vector_clip(vector value)
{
    const __m128 least = _mm_setzero_ps(), most = _mm_set1_ps(255);
    return (vector){_mm_min_ps(_mm_max_ps(value.low, least), most),
                    _mm_min_ps(_mm_max_ps(value.high, least), most)};
}

INLINE vector vector_truncate(vector value)
{
    return (vector){_mm_cvtepi32_ps(_mm_cvttps_epi32(value.low)),
                    _mm_cvtepi32_ps(_mm_cvttps_epi32(value.high))};
}

INLINE void vector_store_bytes(uint8_t *to, vector value)
{
    const __m128i words =
        _mm_packs_epi32(_mm_cvttps_epi32(value.low), _mm_cvttps_epi32(value.high));
    _mm_storel_epi64((__m128i *)(void *)to, _mm_packus_epi16(words, words));
}

INLINE vector vector_reverse(vector value)
{
    return (vector){_mm_shuffle_ps(value.high, value.high, _MM_SHUFFLE(0, 1, 2, 3)),
                    _mm_shuffle_ps(value.low, value.low, _MM_SHUFFLE(0, 1, 2, 3))};
}

INLINE void vector_store(uint8_t *to, vector value)
{
    float *floats = (float *)(void *)to;
    _mm_storeu_ps(floats, value.low);
    _mm_storeu_ps(floats + 4, value.high);
}

#elif defined(__aarch64__) && defined(__ARM_NEON)

#include <arm_neon.h>
#define LANES 8
typedef float32x4x2_t vector;

INLINE vector vector_load_bytes(const uint8_t *from)
{
    const uint16x8_t words = vmovl_u8(vld1_u8(from));
    return (vector){{vcvtq_f32_u32(vmovl_u16(vget_low_u16(words))),
                     vcvtq_f32_u32(vmovl_u16(vget_high_u16(words)))}};
}

INLINE vector vector_load(const uint8_t *from)
{
    return (vector){{vreinterpretq_f32_u8(vld1q_u8(from)),
                     vreinterpretq_f32_u8(vld1q_u8(from + 16))}};
}

INLINE vector vector_of(float value)
{
    return (vector){{vdupq_n_f32(value), vdupq_n_f32(value)}};
}

INLINE vector vector_subtract(vector left, vector right)
{
    return (vector){{vsubq_f32(left.val[0], right.val[0]), vsubq_f32(left.val[1], right.val[1])}};
}

INLINE vector vector_multiply(vector left, vector right)
{
    return (vector){{vmulq_f32(left.val[0], right.val[0]), vmulq_f32(left.val[1], right.val[1])}};
}

INLINE vector vector_add(vector left, vector right)
{
    return (vector){{vaddq_f32(left.val[0], right.val[0]), vaddq_f32(left.val[1], right.val[1])}};
}

INLINE vector vector_clip(vector value)
{
    const float32x4_t least = vdupq_n_f32(0), most = vdupq_n_f32(255);
    return (vector){{vminq_f32(vmaxq_f32(value.val[0], least), most),
                     vminq_f32(vmaxq_f32(value.val[1], least), most)}};
}

INLINE vector vector_truncate(vector value)
{
    return (vector){{vrndq_f32(value.val[0]), vrndq_f32(value.val[1])}};
}

INLINE void vector_store_bytes(uint8_t *to, vector value)
{
    const int16x8_t words = vcombine_s16(vqmovn_s32(vcvtq_s32_f32(value.val[0])),
                                         vqmovn_s32(vcvtq_s32_f32(value.val[1])));
    vst1_u8(to, vqmovun_s16(words));
}

INLINE float32x4_t reverse_half(float32x4_t value)
{
    const float32x4_t pairs = vrev64q_f32(value);
    return vextq_f32(pairs, pairs, 2);
}

INLINE vector vector_reverse(vector value)
{
    return (vector){{reverse_half(value.val[1]), reverse_half(value.val[0])}};
}

INLINE void vector_store(uint8_t *to, vector value)
{
    vst1q_u8(to, vreinterpretq_u8_f32(value.val[0]));
    vst1q_u8(to + 16, vreinterpretq_u8_f32(value.val[1]));
}

#else

/* One float: the loops over vectors become loops that compilers know how to vectorise. */
#define LANES 1
typedef float vector;

INLINE vector vector_load_bytes(const uint8_t *from)
{
    return *from;
}

INLINE vector vector_load(const uint8_t *from)
{
    float value;
    memcpy(&value, from, sizeof value);
    return value;
}

INLINE vector vector_of(float value)
{
    return value;
}

INLINE vector vector_subtract(vector left, vector right)
{
    return left - right;
}

INLINE vector vector_multiply(vector left, vector right)
{
    return left * right;
}

INLINE vector vector_add(vector left, vector right)
{
    return left + right;
}

INLINE vector vector_clip(vector value)
{
    const float positive = value > 0 ? value : 0;
    return positive < 255 ? positive : 255;
}

INLINE vector vector_truncate(vector value)
{
    return (float)(int32_t)value;
}

INLINE void vector_store_bytes(uint8_t *to, vector value)
{
    *to = (uint8_t)vector_clip(value);
}

INLINE vector vector_reverse(vector value)
{
    return value;
}

INLINE void vector_store(uint8_t *to, vector value)
{
    memcpy(to, &value, sizeof value);
}

#endif

#endif
