/* The loops of colour jitter and random erasing, for whatever chip the including file is compiled
 * for: loops.h includes it. They are equal to the bit whatever that is. */
#include "kernels.h"
#include "vectors.h"

/* The grey of whole numbers, a whole number too. The sum is below 2^24: exact. */
INLINE vector grey_of(const vector *colours)
{
    const vector weighted =
        vector_add(vector_add(vector_multiply(colours[0], vector_of(19595)),
                              vector_multiply(colours[1], vector_of(38470))),
                   vector_add(vector_multiply(colours[2], vector_of(7471)), vector_of(32768)));
    return vector_truncate(vector_multiply(weighted, vector_of(1.0f / 65536)));
}

/* base + factor * (pixel - base); what is left out of it where the base is 0 changes nothing. */
INLINE void move_colours(const struct jitter_step *step, vector *colours, size_t num_channels)
{
    const vector factor = vector_of(step->factor);
    if (step->base_kind == NO_BASE) {
        for (size_t i = 0; i < num_channels; i++)
            colours[i] = vector_multiply(factor, colours[i]);
        return;
    }
    const vector base = num_channels == 3 && step->base_kind == GREY_BASE ? grey_of(colours)
                                                                         : vector_of(step->base);
    for (size_t i = 0; i < num_channels; i++)
        colours[i] =
            vector_add(base, vector_multiply(factor, vector_subtract(colours[i], base)));
}

/* Do the steps to some pixels at once, and return their grey, if it is asked for. */
INLINE vector jitter_vector(const struct jitter_run *run, size_t at, size_t num_channels,
                            bool sums)
{
    vector colours[3];
    for (size_t i = 0; i < num_channels; i++)
        colours[i] = vector_load_bytes(run->planes[i] + at);
    for (int step = 0; step < run->num_steps; step++) {
        move_colours(&run->steps[step], colours, num_channels);
        if (step + 1 == run->num_steps && !sums)
            break; /* storing does the rest */
        for (size_t i = 0; i < num_channels; i++)
            colours[i] = vector_truncate(vector_clip(colours[i]));
    }
    for (size_t i = 0; i < num_channels; i++)
        vector_store_bytes(run->planes[i] + at, colours[i]);
    if (!sums)
        return vector_of(0);
    return num_channels == 3 ? grey_of(colours) : colours[0];
}

/* Sum up the first `num` numbers of a vector of whole ones. */
INLINE uint64_t sum_lanes(vector numbers, size_t num)
{
    float lanes[LANES];
    uint64_t sum = 0;
    vector_store((uint8_t *)lanes, numbers);
    for (size_t i = 0; i < num; i++)
        sum += (uint64_t)lanes[i];
    return sum;
}

INLINE uint64_t jitter_planes(const struct jitter_run *run, size_t num_channels, bool sums)
{
    const struct jitter_run own = *run; /* known not to change by the stores */
    vector numbers = vector_of(0);
    size_t at = 0;
    for (; at + LANES <= own.num; at += LANES)
        numbers = vector_add(numbers, jitter_vector(&own, at, num_channels, sums));
    uint64_t sum = sum_lanes(numbers, LANES);
    if (at == own.num)
        return sum;
    /* What is left, in memory of its own: no pixel may be changed twice. */
    uint8_t rest[3][LANES] = {{0}};
    struct jitter_run last = own;
    for (size_t i = 0; i < num_channels; i++) {
        memcpy(rest[i], own.planes[i] + at, own.num - at);
        last.planes[i] = rest[i];
    }
    sum += sum_lanes(jitter_vector(&last, 0, num_channels, sums), own.num - at);
    for (size_t i = 0; i < num_channels; i++)
        memcpy(own.planes[i] + at, rest[i], own.num - at);
    return sum;
}

static uint64_t jitter_bytes(const struct jitter_run *run)
{
    if (run->num_channels == 1)
        return jitter_planes(run, 1, true);
    if (run->sums)
        return jitter_planes(run, 3, true);
    return jitter_planes(run, 3, false);
}

/* Blocks of Philox that are computed side by side. */
#define NOISE_BLOCKS (NOISE_NUMBERS / 4)

/* Philox4x32-10, as philox.c has it, for consecutive counters (block, 0, 0, 0) under one key. */
INLINE void draw_blocks(const uint32_t key[2], uint32_t block, uint32_t words[4][NOISE_BLOCKS])
{
    uint32_t first_key = key[0], second_key = key[1];
    for (uint32_t i = 0; i < NOISE_BLOCKS; i++) {
        words[0][i] = block + i;
        words[1][i] = words[2][i] = words[3][i] = 0;
    }
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < NOISE_BLOCKS; i++) {
            const uint64_t first = (uint64_t)0xD2511F53u * words[0][i];
            const uint64_t second = (uint64_t)0xCD9E8D57u * words[2][i];
            words[0][i] = (uint32_t)(second >> 32) ^ words[1][i] ^ first_key;
            words[1][i] = (uint32_t)second;
            words[2][i] = (uint32_t)(first >> 32) ^ words[3][i] ^ second_key;
            words[3][i] = (uint32_t)first;
        }
        first_key += 0x9E3779B9u;
        second_key += 0xBB67AE85u;
    }
}

static void draw_noise(const uint32_t key[2], uint32_t block, const uint8_t *table, uint8_t *to)
{
    uint32_t words[4][NOISE_BLOCKS];
    draw_blocks(key, block, words);
    for (size_t i = 0; i < NOISE_BLOCKS; i++)
        for (size_t j = 0; j < 4; j++)
            memcpy(to + 4 * (4 * i + j), table + 4 * (size_t)(words[j][i] >> 16), 4);
}
