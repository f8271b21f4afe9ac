/* Pixels that are made of other pixels, before the crop: in memory that each thread keeps. */
#include <pthread.h>
#include <stdlib.h>

#include "jitter.h"
#include "kernels.h"
#include "resize.h"

struct made_scratch {
    struct resize_scratch resize;
    struct scratch_bytes padded, jittered;
};

static pthread_key_t scratch_key;
static pthread_once_t scratch_once = PTHREAD_ONCE_INIT;
static bool has_key;

static void free_scratch(void *pointer)
{
    struct made_scratch *scratch = pointer;
    free_resize_scratch(&scratch->resize);
    free(scratch->padded.bytes);
    free(scratch->jittered.bytes);
    free(scratch);
}

static void make_key(void)
{
    has_key = pthread_key_create(&scratch_key, free_scratch) == 0;
}

/* Return this thread's memory, which is freed where the thread ends; NULL: there is none. An image
 * of 224 x 224 pixels is large enough that malloc() would ask the kernel for it each time. */
static struct made_scratch *find_scratch(void)
{
    pthread_once(&scratch_once, make_key);
    if (!has_key)
        return NULL;
    struct made_scratch *scratch = pthread_getspecific(scratch_key);
    if (scratch == NULL && (scratch = calloc(1, sizeof *scratch)) != NULL &&
        pthread_setspecific(scratch_key, scratch) != 0) {
        free(scratch);
        scratch = NULL;
    }
    return scratch;
}

/* Make of the image of a box the whole: its pixels outside of the box are nowhere. */
static void place_in_whole(struct image *image, struct box box, struct shape whole)
{
    const uintptr_t before = box.top * image->row_step + box.left * image->pixel_step;
    image->pixels = (const uint8_t *)((uintptr_t)image->pixels - before);
    image->shape = whole;
}

static bool resize_pixels(struct image *image, const uint32_t *words, const struct recipe *recipe,
                          struct made_scratch *scratch)
{
    const struct resizing *resizing = &recipe->resizing;
    struct recipe unpadded = *recipe;
    unpadded.pad = 0;
    const struct shape whole = find_whole_shape(&image->shape, &unpadded);
    const struct box from = choose_resized_box(&image->shape, words, resizing);
    /* Where it is padded the crop may take any of it. */
    struct box wanted = {0, 0, (size_t)whole.height, (size_t)whole.width};
    if (recipe->pad == 0)
        wanted = choose_crop_box(&whole, words, recipe);
    struct image resized;
    if (!resize_image(image, from, (size_t)whole.height, (size_t)whole.width, wanted,
                      resizing->bicubic ? BICUBIC : BILINEAR, &scratch->resize, &resized))
        return false;
    *image = resized;
    place_in_whole(image, wanted, whole);
    return true;
}

/* Return memory for so many pixels; NULL: there is none. */
static uint8_t *hold_pixels(struct scratch_bytes *scratch, size_t rows, size_t columns,
                            size_t pixel_bytes)
{
    /* Sizes are below 2^31 each; three of them may be more than there are numbers for. */
    if (rows > SIZE_MAX / columns / pixel_bytes)
        return NULL;
    const size_t size = rows * columns * pixel_bytes;
    if (size > scratch->size) {
        uint8_t *grown = realloc(scratch->bytes, size);
        if (grown == NULL)
            return NULL;
        scratch->bytes = grown;
        scratch->size = size;
    }
    return scratch->bytes;
}

static bool pad_pixels(struct image *image, size_t pad, struct made_scratch *scratch)
{
    const size_t channels = (size_t)image->shape.channels;
    const size_t height = (size_t)image->shape.height, width = (size_t)image->shape.width;
    const size_t pixel_size = image->is_float ? 4 : 1;
    const size_t rows = height + 2 * pad, columns = width + 2 * pad;
    uint8_t *pixels = hold_pixels(&scratch->padded, rows, columns, channels * pixel_size);
    if (pixels == NULL)
        return false;
    memset(pixels, 0, rows * columns * channels * pixel_size);
    /* Interleaved pixels stay so: a line of them is copied in one piece. */
    const bool is_planar = image->is_float || image->pixel_step == 1;
    struct image padded = *image;
    padded.pixels = pixels;
    padded.pixel_step = is_planar ? pixel_size : channels;
    padded.row_step = columns * padded.pixel_step;
    padded.channel_step = is_planar ? rows * padded.row_step : 1;
    padded.shape.height = (int64_t)rows;
    padded.shape.width = (int64_t)columns;
    padded.prefetch_distance = 0;
    for (size_t channel = 0; channel < (is_planar ? channels : 1); channel++) {
        for (size_t y = 0; y < height; y++) {
            const uint8_t *from =
                image->pixels + channel * image->channel_step + y * image->row_step;
            uint8_t *to = pixels + channel * padded.channel_step +
                          (y + pad) * padded.row_step + pad * padded.pixel_step;
            if (image->pixel_step == padded.pixel_step)
                memcpy(to, from, width * padded.pixel_step);
            else /* floats of a record that are stored with gaps */
                for (size_t x = 0; x < width; x++)
                    memcpy(to + x * pixel_size, from + x * image->pixel_step, pixel_size);
        }
    }
    *image = padded;
    return true;
}

static bool jitter_pixels(struct image *image, const uint32_t *words,
                          const struct recipe *recipe, struct made_scratch *scratch)
{
    const struct box box = choose_crop_box(&image->shape, words, recipe);
    uint8_t *planes = hold_pixels(&scratch->jittered, box.height, box.width,
                                  (size_t)image->shape.channels);
    if (planes == NULL)
        return false;
    jitter_box(image, box, words + recipe->jitter_at, &recipe->jitter, planes);
    image->pixels = planes;
    image->pixel_step = 1;
    image->row_step = box.width;
    image->channel_step = box.height * box.width;
    image->prefetch_distance = 0;
    place_in_whole(image, box, image->shape);
    return true;
}

bool make_pixels(struct image *image, const uint32_t *words, const struct recipe *recipe)
{
    struct made_scratch *scratch = find_scratch();
    if (scratch == NULL)
        return false;
    if (recipe->resizes && !resize_pixels(image, words, recipe, scratch))
        return false;
    if (recipe->pad > 0 && !pad_pixels(image, (size_t)recipe->pad, scratch))
        return false;
    return !recipe->jitters || jitter_pixels(image, words, recipe, scratch);
}
