/* The two passes of resizing, each over what the other one needs of it. */
#include "resize.h"

#include <stdlib.h>

#include "resize_loops.h"

/* Pixels of uint8 on the way: planar, or with all channels of a pixel side by side. */
struct pixels {
    const uint8_t *from;
    size_t num_planes, plane_step, row_step;
    size_t num_channels; /* side by side, in each plane */
};

/* Rows or columns that an output's taps reach: those from `first` up to `end`. */
struct range {
    size_t first, end;
};

static struct range range_of(const struct taps *taps, size_t first, size_t num)
{
    return (struct range){taps->firsts[first], taps->firsts[first + num - 1] + taps->num_taps};
}

/* Let scratch memory hold so many lines of some bytes; they begin where vectors may. */
static uint8_t *hold(struct scratch_bytes *scratch, size_t num_lines, size_t line_bytes)
{
    enum { ALIGNMENT = 64 };
    if (line_bytes > (SIZE_MAX - ALIGNMENT) / num_lines)
        return NULL;
    const size_t size = num_lines * line_bytes + ALIGNMENT;
    if (scratch->size < size) {
        free(scratch->bytes);
        scratch->bytes = malloc(size);
        scratch->size = scratch->bytes == NULL ? 0 : size;
        if (scratch->bytes == NULL)
            return NULL;
    }
    return scratch->bytes + (ALIGNMENT - (uintptr_t)scratch->bytes % ALIGNMENT) % ALIGNMENT;
}

/* Make some rows of the resized image from those that the first of them begins with. */
static void resample_rows(const struct pixels *pixels, const struct taps *taps, size_t first,
                          size_t num, size_t row_bytes, uint8_t *to)
{
    for (size_t plane = 0; plane < pixels->num_planes; plane++) {
        for (size_t row = 0; row < num; row++, to += row_bytes) {
            const size_t output = first + row;
            const size_t begin = taps->firsts[output] - taps->firsts[first];
            const struct line_blend blend = {
                .from = pixels->from + plane * pixels->plane_step + begin * pixels->row_step,
                .from_step = pixels->row_step,
                .pairs = taps->pairs + output * taps->num_pairs,
                .num_taps = taps->num_taps,
                .num_bytes = row_bytes,
                .to = to,
            };
            chosen_loops->blend_lines(&blend);
        }
    }
}

/* Make some columns of the resized image, planar ones. */
static bool resample_columns(const struct pixels *pixels, size_t num_rows, const struct taps *taps,
                             size_t first, size_t num, struct scratch_bytes *scratch, uint8_t *to)
{
    const struct range range = range_of(taps, first, num);
    uint8_t *columns =
        hold(scratch, range.end - range.first, MAX_BLOCK_LINES * pixels->num_channels);
    if (columns == NULL)
        return false;
    for (size_t plane = 0; plane < pixels->num_planes; plane++) {
        const struct line_resampling task = {
            .from = pixels->from + plane * pixels->plane_step,
            .from_step = pixels->row_step,
            .num_lines = num_rows,
            .num_channels = pixels->num_channels,
            .taps = taps,
            .first = first,
            .num = num,
            .columns = columns,
            .to = to + plane * num_rows * num,
            .to_step = num,
            .to_channel_step = num_rows * num,
        };
        chosen_loops->resample_lines(&task);
    }
    return true;
}

/* Which pass is first matters, since pixels between the two are rounded and clipped: Pillow's rule
 * (resizes_rows_first of the twin). */
static bool is_rows_first(const struct box *box, size_t height, size_t width)
{
    if (height >= box->height)
        return false;
    return width >= box->width || box->height - height > 2 * (box->width - width);
}

static struct image planar_image(const uint8_t *pixels, size_t channels, size_t height,
                                 size_t width)
{
    return (struct image){
        .pixels = pixels,
        .shape = {(int64_t)channels, (int64_t)height, (int64_t)width},
        .channel_step = height * width,
        .row_step = width,
        .pixel_step = 1,
    };
}

/* Rows first: these as they lie in the image, of as many columns as are needed then. */
static bool resize_rows_first(const struct pixels *pixels, const struct box *part,
                              struct resize_scratch *scratch, uint8_t *to)
{
    const struct range columns = range_of(&scratch->column_taps, part->left, part->width);
    const size_t row_bytes = (columns.end - columns.first) * pixels->num_channels;
    uint8_t *between = hold(&scratch->between, pixels->num_planes * part->height, row_bytes);
    if (between == NULL)
        return false;
    struct pixels of_image = *pixels;
    of_image.from += scratch->row_taps.firsts[part->top] * pixels->row_step +
                     columns.first * pixels->num_channels;
    resample_rows(&of_image, &scratch->row_taps, part->top, part->height, row_bytes, between);
    const struct pixels resampled = {
        .from = between,
        .num_planes = pixels->num_planes,
        .plane_step = part->height * row_bytes,
        .row_step = row_bytes,
        .num_channels = pixels->num_channels,
    };
    return resample_columns(&resampled, part->height, &scratch->column_taps, part->left,
                            part->width, &scratch->columns, to);
}

static bool resize_columns_first(const struct pixels *pixels, const struct box *part,
                                 struct resize_scratch *scratch, uint8_t *to)
{
    const struct range rows = range_of(&scratch->row_taps, part->top, part->height);
    const size_t num_rows = rows.end - rows.first;
    const size_t num_channels = pixels->num_planes * pixels->num_channels;
    uint8_t *between = hold(&scratch->between, num_channels * num_rows, part->width);
    if (between == NULL)
        return false;
    struct pixels of_image = *pixels;
    of_image.from += rows.first * pixels->row_step +
                     scratch->column_taps.firsts[part->left] * pixels->num_channels;
    if (!resample_columns(&of_image, num_rows, &scratch->column_taps, part->left, part->width,
                          &scratch->columns, between))
        return false;
    const struct pixels resampled = {
        .from = between,
        .num_planes = num_channels,
        .plane_step = num_rows * part->width,
        .row_step = part->width,
        .num_channels = 1,
    };
    resample_rows(&resampled, &scratch->row_taps, part->top, part->height, part->width, to);
    return true;
}

bool resize_image(const struct image *image, struct box box, size_t height, size_t width,
                  struct box part, enum interpolation interpolation,
                  struct resize_scratch *scratch, struct image *result)
{
    const size_t channels = (size_t)image->shape.channels;
    const bool is_planar = image->pixel_step == 1;
    const struct pixels pixels = {
        .from = image->pixels + box.top * image->row_step + box.left * image->pixel_step,
        .num_planes = is_planar ? channels : 1,
        .plane_step = image->channel_step,
        .row_step = image->row_step,
        .num_channels = is_planar ? 1 : channels,
    };
    if (!find_taps(&scratch->row_taps, box.height, height, interpolation) ||
        !find_taps(&scratch->column_taps, box.width, width, interpolation))
        return false;
    uint8_t *to = hold(&scratch->pixels, channels * part.height, part.width);
    if (to == NULL)
        return false;
    *result = planar_image(to, channels, part.height, part.width);
    if (is_rows_first(&box, height, width))
        return resize_rows_first(&pixels, &part, scratch, to);
    return resize_columns_first(&pixels, &part, scratch, to);
}

void free_resize_scratch(struct resize_scratch *scratch)
{
    free_taps(&scratch->row_taps);
    free_taps(&scratch->column_taps);
    free(scratch->between.bytes);
    free(scratch->columns.bytes);
    free(scratch->pixels.bytes);
    memset(scratch, 0, sizeof *scratch);
}
