/* Random erasing: after the fused pass of transform.c, in the finished row. Its definition is
 * prefetch/_kernels/erasing.py. */
#ifndef RINGFEED_ERASING_H
#define RINGFEED_ERASING_H

#include "kernels.h"

/* Write over a box of a row of floats of some type, if it is drawn to be. The shape is that of what
 * is delivered, channels first whatever the layout. */
void erase_box(uint8_t *row, enum element element, const struct shape *shape, bool channels_last,
               const uint32_t words[ERASING_WORDS], const struct erasing *options);

#endif
