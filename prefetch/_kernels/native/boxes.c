/* Which box of an image goes into a row; the description is prefetch/_kernels/boxes.py. */
#include <math.h>

#include "kernels.h"

enum { TRIES = 10, WORDS_A_TRY = 4 };

static struct box middle_box(const struct shape *shape, int64_t height, int64_t width)
{
    return (struct box){(size_t)(shape->height - height) / 2, (size_t)(shape->width - width) / 2,
                        (size_t)height, (size_t)width};
}

static int64_t at_least_one(double size)
{
    return size < 1 ? 1 : (int64_t)size;
}

static struct box choose_fallback(const struct shape *shape, const struct resizing *resizing)
{
    const double ratio = (double)shape->width / (double)shape->height;
    int64_t height = shape->height, width = shape->width;
    if (ratio < resizing->least_ratio)
        height = at_least_one(rint((double)width / resizing->least_ratio));
    else if (ratio > resizing->most_ratio)
        width = at_least_one(rint((double)height * resizing->most_ratio));
    return middle_box(shape, height, width);
}

struct box choose_resized_box(const struct shape *shape, const uint32_t *words,
                              const struct resizing *resizing)
{
    if (resizing->kind != RANDOM_CROP_RESIZED)
        return middle_box(shape, shape->height, shape->width);
    for (int try = 0; try < TRIES; try++) {
        const uint32_t *drawn = words + NUM_WORDS + try * WORDS_A_TRY;
        const double share =
            draw_between(drawn[0], resizing->least_scale, resizing->most_scale);
        const double area = share * (double)shape->height * (double)shape->width;
        const double ratio =
            exp(draw_between(drawn[1], resizing->log_least_ratio, resizing->log_most_ratio));
        const double width = rint(sqrt(area * ratio)), height = rint(sqrt(area / ratio));
        if (0 < width && width <= (double)shape->width && 0 < height &&
            height <= (double)shape->height) {
            const struct box box = {0, 0, (size_t)height, (size_t)width};
            return (struct box){
                reduce_word(drawn[2], shape->height - (int64_t)box.height + 1, false),
                reduce_word(drawn[3], shape->width - (int64_t)box.width + 1, false), box.height,
                box.width};
        }
    }
    return choose_fallback(shape, resizing);
}

struct box choose_crop_box(const struct shape *shape, const uint32_t *words,
                           const struct recipe *recipe)
{
    if (recipe->crop_height == 0)
        return (struct box){0, 0, (size_t)shape->height, (size_t)shape->width};
    if (!recipe->random_crop)
        return middle_box(shape, recipe->crop_height, recipe->crop_width);
    return (struct box){
        reduce_word(words[ROW_WORD], shape->height - recipe->crop_height + 1, recipe->modulo),
        reduce_word(words[COLUMN_WORD], shape->width - recipe->crop_width + 1, recipe->modulo),
        (size_t)recipe->crop_height, (size_t)recipe->crop_width};
}

struct box choose_needed_box(const struct shape *shape, const uint32_t *words,
                             const struct recipe *recipe)
{
    if (recipe->resizes)
        return choose_resized_box(shape, words, &recipe->resizing);
    if (recipe->pad > 0)
        return (struct box){0, 0, (size_t)shape->height, (size_t)shape->width};
    return choose_crop_box(shape, words, recipe);
}

/* The longer side is cut to whole pixels. Sizes are below 2^31, so products are exact. */
static int64_t longer_side(const struct resizing *resizing, int64_t longer, int64_t shorter)
{
    return (int64_t)((double)(resizing->height * longer) / (double)shorter);
}

struct shape find_whole_shape(const struct shape *shape, const struct recipe *recipe)
{
    struct shape whole = *shape;
    if (!recipe->makes_pixels)
        return whole;
    if (recipe->resizes) {
        const struct resizing *resizing = &recipe->resizing;
        whole.height = resizing->height;
        whole.width = resizing->kind == SHORTER_SIDE_RESIZED ? resizing->height : resizing->width;
        if (resizing->kind == SHORTER_SIDE_RESIZED && shape->width <= shape->height)
            whole.height = longer_side(resizing, shape->height, shape->width);
        else if (resizing->kind == SHORTER_SIDE_RESIZED)
            whole.width = longer_side(resizing, shape->width, shape->height);
    }
    whole.height += 2 * recipe->pad;
    whole.width += 2 * recipe->pad;
    return whole;
}
