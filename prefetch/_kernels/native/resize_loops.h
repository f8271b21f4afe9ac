/* What the loops of resizing are asked for; resize.c asks, and byte_loops.h does it. */
#ifndef RINGFEED_RESIZE_LOOPS_H
#define RINGFEED_RESIZE_LOOPS_H

#include "taps.h"

/* Lines, of which the weighted sum of the first num_taps becomes one. */
struct line_blend {
    const uint8_t *from;
    size_t from_step; /* bytes between lines */
    const struct tap_pair *pairs;
    size_t num_taps, num_bytes;
    uint8_t *to;
};

/* Lines, each of which becomes one of some outputs of an axis. */
struct line_resampling {
    const uint8_t *from; /* at the first pixel that the first output needs */
    size_t from_step, num_lines;
    size_t num_channels; /* that lie side by side in a line, and come apart */
    const struct taps *taps;
    size_t first, num; /* outputs */
    uint8_t *columns;  /* scratch: MAX_BLOCK_LINES for each byte of a line that is needed */
    uint8_t *to;
    size_t to_step, to_channel_step;
};

/* Lines that are worked on together, at most. */
enum { MAX_BLOCK_LINES = 32 };

#endif
