/* Rows whose lines have to be arranged: other layouts, other types than float32, mirrored bytes.
 * Each line passes through scratch memory that stays in the core's cache. */
#include "window.h"

/* Pixels of a line that are worked on at once: their floats are 4 kB of a core's cache of 32 kB. */
#define LINE_PIXELS 1024

struct line_scratch {
    uint8_t bytes[3][LINE_PIXELS];
    uint8_t reversed[3][LINE_PIXELS];
    uint8_t floats[4 * LINE_PIXELS];
    uint8_t halves[2 * LINE_PIXELS];
};

/* Part of a line of the window. */
struct segment {
    size_t row, column; /* where it begins */
    size_t num; /* pixels, at most LINE_PIXELS */
    size_t place;       /* of its first pixel as delivered, counted from the first of the row */
};

static uint64_t reverse_word(uint64_t word)
{
    word = (word & 0x00FF00FF00FF00FFu) << 8 | (word >> 8 & 0x00FF00FF00FF00FFu);
    word = (word & 0x0000FFFF0000FFFFu) << 16 | (word >> 16 & 0x0000FFFF0000FFFFu);
    return word << 32 | word >> 32;
}

static void reverse_bytes(const uint8_t *from, size_t num, uint8_t *to)
{
    size_t at = 0;
    for (; at + 8 <= num; at += 8) {
        uint64_t word;
        memcpy(&word, from + at, 8);
        word = reverse_word(word); /* one instruction; compilers know it */
        memcpy(to + num - 8 - at, &word, 8);
    }
    for (; at < num; at++)
        to[num - 1 - at] = from[at];
}

/* Store elements of some size `step` elements apart. */
static void put_elements(const uint8_t *from, size_t num, size_t size, uint8_t *to, size_t step)
{
    if (step == 1) {
        memcpy(to, from, num * size);
    } else if (size == 1) {
        for (size_t i = 0; i < num; i++)
            to[i * step] = from[i];
    } else if (size == 2) {
        for (size_t i = 0; i < num; i++)
            memcpy(to + i * step * 2, from + 2 * i, 2);
    } else {
        for (size_t i = 0; i < num; i++)
            memcpy(to + i * step * 4, from + 4 * i, 4);
    }
}

/* Return a channel's bytes without gaps, where they are or in the scratch memory. */
static const uint8_t *gather(const struct image *image, const uint8_t *from, size_t num,
                             size_t stored, struct line_scratch *scratch)
{
    if (image->pixel_step == 1)
        return from;
    if (image->pixel_step == 3) /* split_three() has put all three there */
        return scratch->bytes[stored];
    for (size_t i = 0; i < num; i++)
        scratch->bytes[0][i] = from[i * image->pixel_step];
    return scratch->bytes[0];
}

static void fill_bytes(const struct image *image, const struct window *window,
                       const struct recipe *recipe, const struct segment *segment,
                       size_t channel_step, uint8_t *row, struct line_scratch *scratch)
{
    const size_t num_channels = (size_t)image->shape.channels;
    const size_t pixel_step = recipe->channels_last ? num_channels : 1;
    const bool joins = recipe->channels_last && num_channels == 3;
    const uint8_t *lines[3];
    for (size_t delivered = 0; delivered < num_channels; delivered++) {
        const size_t stored = stored_channel(delivered, &image->shape, recipe);
        const uint8_t *from = pixel_at(image, window, segment->row, segment->column, stored);
        const uint8_t *line = gather(image, from, segment->num, stored, scratch);
        if (window->mirrored) {
            uint8_t *reversed = scratch->reversed[joins ? delivered : 0];
            reverse_bytes(line, segment->num, reversed);
            line = reversed;
        }
        if (joins)
            lines[delivered] = line;
        else
            put_elements(line, segment->num, 1,
                         row + segment->place * pixel_step + delivered * channel_step, pixel_step);
    }
    if (joins)
        chosen_loops->join_three(lines[0], lines[1], lines[2], segment->num,
                                 row + 3 * segment->place);
}

static void fill_floats(const struct image *image, const struct window *window,
                        const struct recipe *recipe, const struct segment *segment,
                        size_t channel_step, enum element element, uint8_t *row,
                        struct line_scratch *scratch)
{
    const size_t num_channels = (size_t)image->shape.channels;
    const size_t size = element == FLOAT32 ? 4 : 2;
    const size_t pixel_step = recipe->channels_last ? num_channels : 1;
    void (*const round_line)(const uint8_t *, size_t, uint8_t *) =
        element == FLOAT16 ? chosen_loops->round_to_halves : chosen_loops->round_to_bfloats;
    for (size_t delivered = 0; delivered < num_channels; delivered++) {
        const size_t stored = stored_channel(delivered, &image->shape, recipe);
        const uint8_t *from = pixel_at(image, window, segment->row, segment->column, stored);
        uint8_t *to = row + size * (segment->place * pixel_step + delivered * channel_step);
        struct plane line = plan_plane(image, window, recipe, delivered);
        if (line.mean_image != NULL)
            line.mean_image += segment->row * line.mean_step + 4 * segment->column;
        line.from = image->is_float ? from : gather(image, from, segment->num, stored, scratch);
        line.pixel_step = image->is_float ? image->pixel_step : 1;
        line.to = size == 4 && pixel_step == 1 ? to : scratch->floats;
        line.num_rows = 1;
        line.num_columns = segment->num;
        line.mirrored = window->mirrored;
        compute_plane(image, &line);
        if (size == 2) {
            line.to = pixel_step == 1 ? to : scratch->halves;
            round_line(scratch->floats, segment->num, line.to);
        }
        if (line.to != to)
            put_elements(line.to, segment->num, size, to, pixel_step);
    }
}

/* Prefetch the same segment of a later line: of every plane, or of the pixels side by side. */
static void prefetch_segment(const struct image *image, const struct window *window,
                             const struct segment *segment)
{
    const size_t num_channels = (size_t)image->shape.channels;
    const bool is_planar = image->channel_step > image->pixel_step;
    for (size_t stored = 0; stored < (is_planar ? num_channels : 1); stored++)
        prefetch_line(pixel_at(image, window, segment->row, segment->column, stored),
                      image->row_step, segment->num * image->pixel_step);
}

void fill_lines(const struct image *image, const struct window *window,
                const struct recipe *recipe, enum element element, uint8_t *row)
{
    const size_t channel_step = recipe->channels_last ? 1 : window->num_rows * window->num_columns;
    struct line_scratch scratch;
    for (size_t y = 0; y < window->num_rows; y++) {
        for (size_t x = 0; x < window->num_columns; x += LINE_PIXELS) {
            const size_t left = window->num_columns - x;
            struct segment segment = {
                .row = y, .column = x, .num = left < LINE_PIXELS ? left : LINE_PIXELS};
            segment.place =
                y * window->num_columns + (window->mirrored ? left - segment.num : x);
            prefetch_segment(image, window, &segment);
            if (!image->is_float && image->pixel_step == 3)
                chosen_loops->split_three(pixel_at(image, window, y, x, 0), segment.num,
                                          scratch.bytes[0], scratch.bytes[1], scratch.bytes[2]);
            if (element == UINT8)
                fill_bytes(image, window, recipe, &segment, channel_step, row, &scratch);
            else
                fill_floats(image, window, recipe, &segment, channel_step, element, row, &scratch);
        }
    }
}
