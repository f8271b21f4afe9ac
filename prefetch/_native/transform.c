/* A record's window into its row: crop, mirror, order of channels, layout and type. The arithmetic
 * is in loops.h. */
#include <string.h>

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define HAS_STREAMING 1
#else
#define HAS_STREAMING 0
#endif

#include "kernels.h"

/* Pixels of a line that are in work at once: their floats are 4 kB of the 32 kB of a core's cache. */
#define LINE 1024

/* A payload of at least this many bytes is stored past the caches: 1.5 times faster for 3x256x256,
 * whose batch will have left the caches before it is read; slower for records of a few kB. */
#define STREAMED_BYTES 65536

static const struct loops *loops = &baseline_loops;

void choose_loops(void)
{
#if HAS_AVX2_LOOPS
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx2"))
        loops = &avx2_loops;
#endif
}

struct window {
    size_t top, left, num_rows, num_columns;
    bool mirrored;
};

/* What a line of pixels is on its way through. */
struct workbench {
    uint8_t bytes[3][LINE];
    uint8_t turned[LINE];
    uint8_t floats[4 * LINE];
    uint8_t halves[2 * LINE];
};

static uint32_t reduce(uint32_t word, int64_t extent, bool modulo)
{
    const uint64_t range = (uint64_t)extent;
    return (uint32_t)(modulo ? word % range : (word * range) >> 32);
}

static struct window choose_window(const struct shape *shape, const uint32_t words[3],
                                   const struct recipe *recipe)
{
    struct window window = {0, 0, (size_t)shape->height, (size_t)shape->width, false};
    if (recipe->crop_size > 0) {
        const int64_t spare_rows = shape->height - recipe->crop_size;
        const int64_t spare_columns = shape->width - recipe->crop_size;
        if (recipe->random_crop) {
            window.top = reduce(words[1], spare_rows + 1, recipe->modulo);
            window.left = reduce(words[2], spare_columns + 1, recipe->modulo);
        } else {
            window.top = (size_t)spare_rows / 2;
            window.left = (size_t)spare_columns / 2;
        }
        window.num_rows = window.num_columns = (size_t)recipe->crop_size;
    }
    window.mirrored = recipe->mirror && reduce(words[0], 2, recipe->modulo) == 1;
    return window;
}

static bool swaps(const struct shape *shape, const struct recipe *recipe)
{
    return recipe->swap_channels && (shape->channels == 3 || shape->channels == 4);
}

/* Which stored channel is delivered at this place. */
static size_t stored_channel(size_t delivered, const struct shape *shape,
                             const struct recipe *recipe)
{
    return swaps(shape, recipe) && delivered < 3 ? 2 - delivered : delivered;
}

static float value_of_channel(const uint8_t *values, int64_t num, size_t channel)
{
    float value;
    memcpy(&value, values + (num > 1 ? 4 * channel : 0), sizeof value);
    return value;
}

/* Describe a channel's window, but for where it comes from and goes to. */
static struct plane plan_plane(const struct image *image, const struct window *window,
                               const struct recipe *recipe, size_t delivered)
{
    const size_t height = (size_t)image->shape.height, width = (size_t)image->shape.width;
    const size_t stored = stored_channel(delivered, &image->shape, recipe);
    struct plane plane = {.scale = 1.0f, .multiplies = recipe->multiplies};
    if (recipe->mean_image != NULL) {
        const size_t row = stored * height + window->top;
        plane.mean_image = recipe->mean_image + 4 * (row * width + window->left);
        plane.mean_step = 4 * width;
    } else if (recipe->num_mean_values > 0) {
        plane.subtracts = true;
        plane.mean = value_of_channel(recipe->mean_values, recipe->num_mean_values, delivered);
    }
    if (recipe->multiplies)
        plane.scale = value_of_channel(recipe->scales, recipe->num_scales, delivered);
    return plane;
}

static const uint8_t *corner(const struct image *image, const struct window *window,
                             size_t stored)
{
    return image->at + stored * image->channel_step + window->top * image->row_step +
           window->left * image->pixel_step;
}

static void compute(const struct image *image, const struct plane *plane)
{
    if (image->is_float)
        loops->plane_from_floats(plane);
    else
        loops->plane_from_bytes(plane);
}

/* Fill float32 planes, whose lines are computed where they belong. */
static void fill_planes(const struct image *image, const struct window *window,
                        const struct recipe *recipe, uint8_t *row)
{
    const size_t num_pixels = window->num_rows * window->num_columns;
    const bool is_whole = recipe->crop_size == 0 && !window->mirrored;
    for (size_t delivered = 0; delivered < (size_t)image->shape.channels; delivered++) {
        struct plane plane = plan_plane(image, window, recipe, delivered);
        plane.from = corner(image, window, stored_channel(delivered, &image->shape, recipe));
        plane.from_step = image->row_step;
        plane.pixel_step = image->pixel_step;
        plane.to = row + 4 * num_pixels * delivered;
        plane.num_rows = is_whole ? 1 : window->num_rows;
        plane.num_columns = is_whole ? num_pixels : window->num_columns;
        plane.mirrored = window->mirrored;
        compute(image, &plane);
    }
}

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

/* Return a line's bytes without gaps, where they are or on the bench. */
static const uint8_t *gather(const struct image *image, const uint8_t *from, size_t num,
                             size_t stored, struct workbench *bench)
{
    if (image->pixel_step == 1)
        return from;
    if (image->pixel_step == 3) /* split already, for all three channels at once */
        return bench->bytes[stored];
    for (size_t i = 0; i < num; i++)
        bench->bytes[0][i] = from[i * image->pixel_step];
    return bench->bytes[0];
}

static void fill_line_of_bytes(const struct plane *line, uint8_t *to, size_t step,
                               struct workbench *bench)
{
    const size_t num = line->num_columns;
    if (!line->mirrored) {
        put(line->from, num, 1, to, step);
    } else if (step == 1) {
        reverse_bytes(line->from, num, to);
    } else {
        reverse_bytes(line->from, num, bench->turned);
        put(bench->turned, num, 1, to, step);
    }
}

/* Fill part of a line of one channel. */
static void fill_line(const struct image *image, struct plane *line, enum element element,
                      uint8_t *to, size_t step, struct workbench *bench)
{
    if (element == UINT8) {
        fill_line_of_bytes(line, to, step, bench);
        return;
    }
    line->to = element == FLOAT32 && step == 1 ? to : bench->floats;
    compute(image, line);
    if (line->to == to)
        return;
    if (element == FLOAT32) {
        put(bench->floats, line->num_columns, 4, to, step);
    } else {
        uint8_t *halves = step == 1 ? to : bench->halves;
        loops->halve(bench->floats, line->num_columns, halves);
        if (step != 1)
            put(halves, line->num_columns, 2, to, step);
    }
}

/* Fill a row of any layout and type, line by line. */
static void fill_lines(const struct image *image, const struct window *window,
                       const struct recipe *recipe, enum element element, uint8_t *row)
{
    const size_t num_channels = (size_t)image->shape.channels;
    const size_t size = element == FLOAT32 ? 4 : element == FLOAT16 ? 2 : 1;
    const size_t pixel_step = recipe->channels_last ? num_channels : 1;
    const size_t channel_step = recipe->channels_last ? 1 : window->num_rows * window->num_columns;
    const bool is_split = !image->is_float && image->pixel_step == 3;
    struct workbench bench;
    for (size_t y = 0; y < window->num_rows; y++) {
        for (size_t x = 0; x < window->num_columns; x += LINE) {
            const size_t left = window->num_columns - x;
            const size_t num = left < LINE ? left : LINE;
            const size_t place = y * window->num_columns + (window->mirrored ? left - num : x);
            const size_t offset = y * image->row_step + x * image->pixel_step;
            if (is_split)
                loops->split_three(corner(image, window, 0) + offset, num, bench.bytes[0],
                            bench.bytes[1], bench.bytes[2]);
            for (size_t delivered = 0; delivered < num_channels; delivered++) {
                const size_t stored = stored_channel(delivered, &image->shape, recipe);
                const uint8_t *from = corner(image, window, stored) + offset;
                struct plane line = plan_plane(image, window, recipe, delivered);
                line.from = image->is_float ? from : gather(image, from, num, stored, &bench);
                line.pixel_step = image->is_float ? image->pixel_step : 1;
                if (line.mean_image != NULL)
                    line.mean_image += y * line.mean_step + 4 * x;
                line.num_rows = 1;
                line.num_columns = num;
                line.mirrored = window->mirrored;
                const size_t at = delivered * channel_step + place * pixel_step;
                fill_line(image, &line, element, row + size * at, pixel_step, &bench);
            }
        }
    }
}

#if HAS_STREAMING
static bool copy(uint8_t *to, const uint8_t *from, size_t size)
{
    if (size < STREAMED_BYTES) {
        memcpy(to, from, size);
        return false;
    }
    const size_t head = (16 - (uintptr_t)to % 16) % 16;
    const size_t body = (size - head) / 64 * 64;
    memcpy(to, from, head);
    for (size_t at = head; at < head + body; at += 64) {
        const __m128i first = _mm_loadu_si128((const __m128i *)(from + at));
        const __m128i second = _mm_loadu_si128((const __m128i *)(from + at + 16));
        const __m128i third = _mm_loadu_si128((const __m128i *)(from + at + 32));
        const __m128i fourth = _mm_loadu_si128((const __m128i *)(from + at + 48));
        _mm_stream_si128((__m128i *)(to + at), first);
        _mm_stream_si128((__m128i *)(to + at + 16), second);
        _mm_stream_si128((__m128i *)(to + at + 32), third);
        _mm_stream_si128((__m128i *)(to + at + 48), fourth);
    }
    memcpy(to + head + body, from + head + body, size - head - body);
    return true;
}

void finish_streaming(void)
{
    _mm_sfence();
}
#else
static bool copy(uint8_t *to, const uint8_t *from, size_t size)
{
    memcpy(to, from, size);
    return false;
}

void finish_streaming(void)
{
}
#endif

bool transform(const struct image *image, const uint32_t words[3], const struct recipe *recipe,
               enum element element, uint8_t *row)
{
    const struct window window = choose_window(&image->shape, words, recipe);
    const struct shape *shape = &image->shape;
    const bool is_planar = image->is_float || image->pixel_step == 1;
    const bool stays_planar = !recipe->channels_last || shape->channels == 1;
    if (element == UINT8 && recipe->crop_size == 0 && !window.mirrored && !swaps(shape, recipe) &&
        is_planar == stays_planar)
        return copy(row, image->at, (size_t)(shape->channels * shape->height * shape->width));
    if (element == FLOAT32 && is_planar && stays_planar)
        fill_planes(image, &window, recipe, row);
    else
        fill_lines(image, &window, recipe, element, row);
    return false;
}
