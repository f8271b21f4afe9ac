/* A record's window into its row: which window it is, and the rows that need no line of their own
 * arranged. */
#include "erasing.h"
#include "window.h"

#if defined(__SSE2__) || defined(_M_X64)
#include <emmintrin.h>
#define HAS_STREAMING 1
#else
#define HAS_STREAMING 0
#endif

/* A payload of at least this many bytes is stored past the caches: 1.2 to 1.5 times faster for
 * 3x256x256, whose batch will have left the caches before it is read; slower for records of a few
 * kB. */
#define STREAMED_BYTES 65536

static struct window choose_window(const struct shape *shape, const uint32_t *words,
                                   const struct recipe *recipe)
{
    const struct box box = choose_crop_box(shape, words, recipe);
    const bool mirrored =
        recipe->mirror && reduce_word(words[MIRROR_WORD], 2, recipe->modulo) == 1;
    return (struct window){box.top, box.left, box.height, box.width, mirrored};
}

/* Fill float32 planes, whose lines are computed where they belong. */
static void fill_planes(const struct image *image, const struct window *window,
                        const struct recipe *recipe, uint8_t *row)
{
    const size_t num_pixels = window->num_rows * window->num_columns;
    /* One line of all pixels, where lines are stored one behind the other and each is short: 0.95
     * of the time for 28x28. Long ones are better asked for ahead line by line: 227x227 would take
     * 1.13 of it. */
    const bool is_whole = window->num_columns < CACHE_LINE_BYTES && !window->mirrored &&
                          window->num_rows == (size_t)image->shape.height &&
                          window->num_columns == (size_t)image->shape.width &&
                          image->row_step == window->num_columns * image->pixel_step;
    for (size_t delivered = 0; delivered < (size_t)image->shape.channels; delivered++) {
        struct plane plane = plan_plane(image, window, recipe, delivered);
        plane.from =
            pixel_at(image, window, 0, 0, stored_channel(delivered, &image->shape, recipe));
        plane.from_step = image->row_step;
        plane.pixel_step = image->pixel_step;
        plane.prefetch_distance = image->prefetch_distance;
        plane.to = row + 4 * num_pixels * delivered;
        plane.num_rows = is_whole ? 1 : window->num_rows;
        plane.num_columns = is_whole ? num_pixels : window->num_columns;
        plane.mirrored = window->mirrored;
        compute_plane(image, &plane);
    }
}

#if HAS_STREAMING
static bool copy_pixels(uint8_t *to, const uint8_t *from, size_t size)
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
static bool copy_pixels(uint8_t *to, const uint8_t *from, size_t size)
{
    memcpy(to, from, size);
    return false;
}

void finish_streaming(void)
{
}
#endif

bool transform_image(const struct image *image, const uint32_t *words,
                     const struct recipe *recipe, enum element element, uint8_t *row)
{
    const struct window window = choose_window(&image->shape, words, recipe);
    const struct shape *shape = &image->shape;
    const bool is_planar = image->is_float || image->pixel_step == 1;
    const bool stays_planar = !recipe->channels_last || shape->channels == 1;
    if (element == UINT8 && recipe->crop_height == 0 && !window.mirrored &&
        !swaps_channels(shape, recipe) && is_planar == stays_planar)
        return copy_pixels(row, image->pixels,
                           (size_t)(shape->channels * shape->height * shape->width));
    if (element == FLOAT32 && is_planar && stays_planar)
        fill_planes(image, &window, recipe, row);
    else
        fill_lines(image, &window, recipe, element, row);
    if (recipe->erases) {
        const struct shape made = {shape->channels, (int64_t)window.num_rows,
                                   (int64_t)window.num_columns};
        erase_box(row, element, &made, recipe->channels_last, words + recipe->erasing_at,
                  &recipe->erasing);
    }
    return false;
}
