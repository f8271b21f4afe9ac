/* The window of an image that goes into a row: which pixels, and what is done to each channel. */
#ifndef RINGFEED_WINDOW_H
#define RINGFEED_WINDOW_H

#include "kernels.h"

struct window {
    size_t top, left, num_rows, num_columns;
    bool mirrored;
};

static inline bool swaps_channels(const struct shape *shape, const struct recipe *recipe)
{
    return recipe->swap_channels && (shape->channels == 3 || shape->channels == 4);
}

/* Which stored channel is delivered at this place. */
static inline size_t stored_channel(size_t delivered, const struct shape *shape,
                             const struct recipe *recipe)
{
    return swaps_channels(shape, recipe) && delivered < 3 ? 2 - delivered : delivered;
}

static inline float value_of_channel(const uint8_t *values, int64_t num, size_t channel)
{
    float value;
    memcpy(&value, values + (num > 1 ? 4 * channel : 0), sizeof value);
    return value;
}

/* Describe a channel's window, but for where it comes from and goes to. */
static inline struct plane plan_plane(const struct image *image, const struct window *window,
                               const struct recipe *recipe, size_t delivered)
{
    const size_t height = (size_t)image->shape.height, width = (size_t)image->shape.width;
    const size_t stored = stored_channel(delivered, &image->shape, recipe);
    struct plane plane = {
        .scale = value_of_channel(recipe->scales, recipe->num_scales, delivered),
        .multiplies = recipe->multiplies,
        .unit_range = recipe->unit_range,
    };
    if (recipe->mean_image != NULL) {
        const size_t row = stored * height + window->top;
        plane.mean_image = recipe->mean_image + 4 * (row * width + window->left);
        plane.mean_step = 4 * width;
    } else if (recipe->num_mean_values > 0) {
        plane.subtracts = true;
        plane.mean = value_of_channel(recipe->mean_values, recipe->num_mean_values, delivered);
    }
    return plane;
}

/* Where a pixel of the window is. */
static inline const uint8_t *pixel_at(const struct image *image, const struct window *window,
                                      size_t row, size_t column, size_t stored)
{
    return image->pixels + stored * image->channel_step + (window->top + row) * image->row_step +
           (window->left + column) * image->pixel_step;
}

static inline void compute_plane(const struct image *image, const struct plane *plane)
{
    if (image->is_float)
        chosen_loops->plane_from_floats(plane);
    else
        chosen_loops->plane_from_bytes(plane);
}

/* lines.c: fill a row of any layout and type, line by line. */
void fill_lines(const struct image *image, const struct window *window,
                const struct recipe *recipe, enum element element, uint8_t *row);

#endif
