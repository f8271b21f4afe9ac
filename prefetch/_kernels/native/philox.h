/* The random words of records. */
#ifndef RINGFEED_PHILOX_H
#define RINGFEED_PHILOX_H

#include <stddef.h>
#include <stdint.h>

/* For each of num int64 record indices store words 0, 1 and 2 of Philox4x32-10 under a key, the
 * counter being the index, and then the four words of each of num_blocks blocks, int64, the third
 * word of whose counter is their number: what CounterDraws of prefetch/_plan/draws.py does. */
void draw_words(uint32_t key0, uint32_t key1, const uint8_t *records, size_t num,
                const uint8_t *blocks, size_t num_blocks, uint8_t *words);

#endif
