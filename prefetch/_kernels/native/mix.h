/* Mixing a batch with itself: row i with row n - 1 - i, in place. */
#ifndef RINGFEED_MIX_H
#define RINGFEED_MIX_H

#include "kernels.h"

/* Weighted sums: x * lam + partner * (1 - lam), in float32 with a rounding after each step. Rows are
 * num_values of a type other than uint8, without gaps, of any alignment. */
void mix_rows(uint8_t *rows, size_t num_rows, size_t num_values, enum element element, float lam);

/* Rows of bytes: planes of lines. */
struct lines {
    size_t num_planes, num_lines, line_bytes;
};

/* Some lines of each plane, and some bytes of each of those. */
struct byte_box {
    size_t top, bottom, left, right;
};

/* Exchange the box of each row with its partner's. */
void swap_boxes(uint8_t *rows, size_t num_rows, const struct lines *lines, const struct byte_box *box);

#endif
