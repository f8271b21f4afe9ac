/* Colour jitter: a pass before the fused one of transform.c, into memory of the thread. Its
 * definition is prefetch/_kernels/jitter.py. */
#ifndef RINGFEED_JITTER_H
#define RINGFEED_JITTER_H

#include "kernels.h"

/* Copy a box of an image of uint8, of 1 or 3 channels, and change its brightness, contrast and
 * saturation. `planes` takes the result: the channels in their order, without gaps. */
void jitter_box(const struct image *image, struct box box,
                const uint32_t words[JITTER_WORDS], const struct jitter *options,
                uint8_t *planes);

#endif
