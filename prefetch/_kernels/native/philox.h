/* The random words of records. */
#ifndef RINGFEED_PHILOX_H
#define RINGFEED_PHILOX_H

#include <stddef.h>
#include <stdint.h>

/* For each of num int64 record indices store words 0, 1 and 2 of Philox4x32-10 under a key, the
 * counter being the index: what CounterDraws of prefetch/_plan/draws.py does. */
void draw_words(uint32_t key0, uint32_t key1, const uint8_t *records, size_t num, uint8_t *words);

#endif
