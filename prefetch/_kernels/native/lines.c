/* Rows whose lines have to be arranged: other layouts, other types than float32, mirrored bytes.
 * Each line passes over a bench that stays in the core's cache. */
#include "window.h"

/* Pixels of a line that are in work at once: their floats are 4 kB of a core's cache of 32 kB. */
#define LINE 1024

struct bench {
    uint8_t bytes[3][LINE];
    uint8_t turned[3][LINE];
    uint8_t floats[4 * LINE];
    uint8_t shorts[2 * LINE];
};

/* Part of a line of the window. */
struct segment {
    size_t row, column; /* where it begins */
    size_t num;         /* pixels, at most LINE */
    size_t place;       /* of its first pixel as delivered, counted from the first of the row */
};

static uint64_t swapped(uint64_t word)
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
        word = swapped(word); /* one instruction; compilers know it */
        memcpy(to + num - 8 - at, &word, 8);
    }
    for (; at < num; at++)
        to[num - 1 - at] = from[at];
}

/* Put elements of some size where they belong, `step` elements apart. */
static void put(const uint8_t *from, size_t num, size_t size, uint8_t *to, size_t step)
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

/* Return a channel's bytes without gaps, where they are or on the bench. */
static const uint8_t *gather(const struct image *image, const uint8_t *from, size_t num,
                             size_t stored, struct bench *bench)
{
    if (image->pixel_step == 1)
        return from;
    if (image->pixel_step == 3) /* on the bench, all three at once */
        return bench->bytes[stored];
    for (size_t i = 0; i < num; i++)
        bench->bytes[0][i] = from[i * image->pixel_step];
    return bench->bytes[0];
}

static void fill_bytes(const struct image *image, const struct window *window,
                       const struct recipe *recipe, const struct segment *segment,
                       size_t channel_step, uint8_t *row, struct bench *bench)
{
    const size_t num_channels = (size_t)image->shape.channels;
    const size_t pixel_step = recipe->channels_last ? num_channels : 1;
    const bool joins = recipe->channels_last && num_channels == 3;
    const uint8_t *lines[3];
    for (size_t delivered = 0; delivered < num_channels; delivered++) {
        const size_t stored = stored_channel(delivered, &image->shape, recipe);
        const uint8_t *from = place_of(image, window, segment->row, segment->column, stored);
        const uint8_t *line = gather(image, from, segment->num, stored, bench);
        if (window->mirrored) {
            uint8_t *turned = bench->turned[joins ? delivered : 0];
            reverse_bytes(line, segment->num, turned);
            line = turned;
        }
        if (joins)
            lines[delivered] = line;
        else
            put(line, segment->num, 1,
                row + segment->place * pixel_step + delivered * channel_step, pixel_step);
    }
    if (joins)
        loops->join_three(lines[0], lines[1], lines[2], segment->num, row + 3 * segment->place);
}

static void fill_floats(const struct image *image, const struct window *window,
                        const struct recipe *recipe, const struct segment *segment,
                        size_t channel_step, enum element element, uint8_t *row,
                        struct bench *bench)
{
    const size_t num_channels = (size_t)image->shape.channels;
    const size_t size = element == FLOAT32 ? 4 : 2;
    const size_t pixel_step = recipe->channels_last ? num_channels : 1;
    void (*const shorten)(const uint8_t *, size_t, uint8_t *) =
        element == FLOAT16 ? loops->halve : loops->shorten;
    for (size_t delivered = 0; delivered < num_channels; delivered++) {
        const size_t stored = stored_channel(delivered, &image->shape, recipe);
        const uint8_t *from = place_of(image, window, segment->row, segment->column, stored);
        uint8_t *to = row + size * (segment->place * pixel_step + delivered * channel_step);
        struct plane line = plan_plane(image, window, recipe, delivered);
        if (line.mean_image != NULL)
            line.mean_image += segment->row * line.mean_step + 4 * segment->column;
        line.from = image->is_float ? from : gather(image, from, segment->num, stored, bench);
        line.pixel_step = image->is_float ? image->pixel_step : 1;
        line.to = size == 4 && pixel_step == 1 ? to : bench->floats;
        line.num_rows = 1;
        line.num_columns = segment->num;
        line.mirrored = window->mirrored;
        compute(image, &line);
        if (size == 2) {
            line.to = pixel_step == 1 ? to : bench->shorts;
            shorten(bench->floats, segment->num, line.to);
        }
        if (line.to != to)
            put(line.to, segment->num, size, to, pixel_step);
    }
}

/* Ask for the same segment of a later line: of every plane, or of the pixels side by side. */
static void look_ahead(const struct image *image, const struct window *window,
                       const struct segment *segment)
{
    const size_t num_channels = (size_t)image->shape.channels;
    const bool is_planar = image->channel_step > image->pixel_step;
    for (size_t stored = 0; stored < (is_planar ? num_channels : 1); stored++)
        look_further(place_of(image, window, segment->row, segment->column, stored),
                     image->row_step, segment->num * image->pixel_step);
}

void fill_lines(const struct image *image, const struct window *window,
                const struct recipe *recipe, enum element element, uint8_t *row)
{
    const size_t channel_step = recipe->channels_last ? 1 : window->num_rows * window->num_columns;
    struct bench bench;
    for (size_t y = 0; y < window->num_rows; y++) {
        for (size_t x = 0; x < window->num_columns; x += LINE) {
            const size_t left = window->num_columns - x;
            struct segment segment = {.row = y, .column = x, .num = left < LINE ? left : LINE};
            segment.place =
                y * window->num_columns + (window->mirrored ? left - segment.num : x);
            look_ahead(image, window, &segment);
            if (!image->is_float && image->pixel_step == 3)
                loops->split_three(place_of(image, window, y, x, 0), segment.num, bench.bytes[0],
                                   bench.bytes[1], bench.bytes[2]);
            if (element == UINT8)
                fill_bytes(image, window, recipe, &segment, channel_step, row, &bench);
            else
                fill_floats(image, window, recipe, &segment, channel_step, element, row, &bench);
        }
    }
}
