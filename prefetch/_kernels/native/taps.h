/* What an axis is resampled by: which pixels of a line, and how much of each, make a pixel of the
 * resized one. Taps of prefetch/_kernels/resize.py, to the bit. */
#ifndef RINGFEED_TAPS_H
#define RINGFEED_TAPS_H

#include "kernels.h"

/* Interpolation of prefetch/_kernels/resize.py. */
enum interpolation { BILINEAR, BICUBIC, NUM_INTERPOLATIONS };

/* Bits of a coefficient behind the point. */
enum { FRACTION_BITS = 22 };

/* Two coefficients, as the loops multiply by them: each is high * 2^16 + low. The high halves stand
 * there twice, so that both pairs of a word of 32 bits are the same. A coefficient is hardly above
 * 1, which is 64 * 2^16, and those of a pixel hardly above 1 in sum, so that the highs of any two
 * times 255 fit into 16 bits. */
struct tap_pair {
    int16_t low[2];
    int8_t high[4];
};

struct taps {
    size_t num_in, num_out; /* of the axis; 0 while there is nothing here */
    enum interpolation interpolation;
    size_t num_taps;  /* of every output; num_pairs is half of it, rounded up */
    size_t num_pairs;
    size_t *firsts;          /* (num_out,) ascending: the first pixel of the line */
    struct tap_pair *pairs;  /* (num_out, num_pairs); behind an odd number of taps is a 0 */
    double *weights;         /* (num_taps,) while an output's coefficients are computed */
    size_t num_pairs_held, num_firsts_held, num_weights_held;
};

/* Make the taps those of an axis, unless they are already; false: out of memory. */
bool find_taps(struct taps *taps, size_t num_in, size_t num_out, enum interpolation interpolation);

void free_taps(struct taps *taps);

static inline int32_t coefficient_of(const struct tap_pair *pair, size_t which)
{
    return (int32_t)pair->high[which] * 65536 + pair->low[which];
}

#endif
