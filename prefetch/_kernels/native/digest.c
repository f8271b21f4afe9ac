/* A digest of bytes at about the speed at which they are read: eight sums, each of the products of
 * 32 bits by 32, which every chip multiplies several of at a time. */
#include "digest.h"

#include <string.h>

#include "kernels.h"
#include "vectors.h"

#define NUM_SUMS 8
#define STRIPE_BYTES (8 * NUM_SUMS)

/* A number without a pattern: the fraction of the golden ratio. */
#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

INLINE uint64_t load_word(const uint8_t *from)
{
    uint64_t word;
    memcpy(&word, from, sizeof word);
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    word = __builtin_bswap64(word);
#endif
    return word;
}

/* The key of a word changes from stripe to stripe, so that stripes cannot change places. A word is
 * also added as it is, to its neighbour's sum: a product tells nothing where one half is 0. */
INLINE void add_stripes(const uint8_t *bytes, size_t num, uint64_t *restrict keys,
                        uint64_t *restrict sums)
{
    for (size_t i = 0; i < num; i++, bytes += STRIPE_BYTES) {
        uint64_t words[NUM_SUMS];
        for (size_t j = 0; j < NUM_SUMS; j++)
            words[j] = load_word(bytes + 8 * j);
        for (size_t j = 0; j < NUM_SUMS; j++) {
            const uint64_t mixed = words[j] ^ keys[j];
            sums[j] += words[j ^ 1] + (mixed & 0xFFFFFFFF) * (mixed >> 32);
            keys[j] += GOLDEN;
        }
    }
}

typedef void add_stripes_function(const uint8_t *bytes, size_t num, uint64_t *restrict keys,
                                  uint64_t *restrict sums);

static void add_stripes_anywhere(const uint8_t *bytes, size_t num, uint64_t *restrict keys,
                                 uint64_t *restrict sums)
{
    add_stripes(bytes, num, keys, sums);
}

#if HAS_AVX2_LOOPS
__attribute__((target("avx2"))) static void add_stripes_avx2(const uint8_t *bytes, size_t num,
                                                             uint64_t *restrict keys,
                                                             uint64_t *restrict sums)
{
    add_stripes(bytes, num, keys, sums);
}
#endif

/* Spread each bit over all; no two words become one. */
INLINE uint64_t mix(uint64_t word)
{
    word = (word ^ (word >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    word = (word ^ (word >> 27)) * UINT64_C(0x94D049BB133111EB);
    return word ^ (word >> 31);
}

void digest_bytes(const uint8_t *bytes, size_t num, uint64_t digest[2])
{
    add_stripes_function *add = add_stripes_anywhere;
#if HAS_AVX2_LOOPS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        add = add_stripes_avx2;
#endif
    uint64_t keys[NUM_SUMS], sums[NUM_SUMS] = {0};
    for (size_t j = 0; j < NUM_SUMS; j++)
        keys[j] = mix((uint64_t)j + 1);
    const size_t num_stripes = num / STRIPE_BYTES, rest = num % STRIPE_BYTES;
    add(bytes, num_stripes, keys, sums);
    if (rest > 0) {
        uint8_t last[STRIPE_BYTES] = {0};
        memcpy(last, bytes + num - rest, rest);
        add_stripes_anywhere(last, 1, keys, sums);
    }
    digest[0] = mix((uint64_t)num);
    digest[1] = mix((uint64_t)num ^ GOLDEN);
    for (size_t j = 0; j < NUM_SUMS; j++) {
        digest[0] = mix(digest[0] ^ sums[j]);
        digest[1] = mix(digest[1] + sums[NUM_SUMS - 1 - j]);
    }
}
