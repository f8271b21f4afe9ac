/* Sums of images, pixel by pixel. */
#ifndef RINGFEED_SUMS_H
#define RINGFEED_SUMS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An image's pixels without gaps: uint8, or float32 of any alignment. */
struct addend {
    const uint8_t *pixels;
    bool is_float;
};

/* Add num_pixels of each image, from pixel `first` on, to sums of float32, or float64 if they are
 * wide. Each sum is formed in the order of the images, with a rounding after each. */
void add_images(const struct addend *images, size_t num_images, size_t first, size_t num_pixels,
                uint8_t *sums, bool is_wide);

#endif
