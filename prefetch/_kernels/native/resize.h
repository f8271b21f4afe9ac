/* Resizing: a pass of its own before the fused one of transform.c, into memory of the thread. Its
 * definition is prefetch/_kernels/resize.py. */
#ifndef RINGFEED_RESIZE_H
#define RINGFEED_RESIZE_H

#include "kernels.h"
#include "taps.h"

/* Memory that grows and is used again; all zero at first. What it holds is lost when it grows. */
struct scratch_bytes {
    uint8_t *bytes;
    size_t size;
};

/* What a thread resizes with; all zero at first. Taps stay for the next image of the same sizes. */
struct resize_scratch {
    struct taps row_taps, column_taps;
    struct scratch_bytes between; /* pixels after the first pass */
    struct scratch_bytes columns; /* some lines, turned */
    struct scratch_bytes pixels;  /* the result */
};

/* Resize a box of an image of uint8 to height x width, and compute the given part of that: the same
 * bytes as of the whole. Neither box nor part may be empty, or reach out of what it is a part of.
 * An image is planar, or of pixels whose channels are side by side; what results is planar, without
 * gaps, and lies in the scratch memory until that is next used. False: out of memory. */
bool resize_image(const struct image *image, struct box box, size_t height, size_t width,
                  struct box part, enum interpolation interpolation,
                  struct resize_scratch *scratch, struct image *result);

void free_resize_scratch(struct resize_scratch *scratch);

#endif
