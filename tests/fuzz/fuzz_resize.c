/* Fuzzes resizing without Python: any bytes say which box of which image becomes which size.
 *
 * With clang's libFuzzer:  clang -fsanitize=fuzzer,address,undefined -DWITH_LIBFUZZER ...
 * Without:                 gcc -fsanitize=address,undefined ... ; fuzz_resize SECONDS SEED
 *
 * The sanitizers judge reads and writes: an image is a block of exactly its size. Asserted here is
 * that a part has the bytes of the whole, and the same ones however the image is arranged, whatever
 * the scratch memory was used for before.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "resize.h"

struct input {
    const uint8_t *bytes;
    size_t size, at;
};

/* A number from 1 to most. */
static size_t take(struct input *input, size_t most)
{
    size_t number = 0;
    for (size_t i = 0; i < 2 && input->at < input->size; i++)
        number = number << 8 | input->bytes[input->at++];
    return 1 + number % most;
}

static struct box take_box(struct input *input, size_t height, size_t width)
{
    struct box box = {.height = take(input, height), .width = take(input, width)};
    box.top = take(input, height - box.height + 1) - 1;
    box.left = take(input, width - box.width + 1) - 1;
    return box;
}

/* Lay an image's pixels out planar, or with the channels side by side. */
static struct image lay_out(const struct shape *shape, bool is_planar, uint8_t **block)
{
    const size_t channels = (size_t)shape->channels, height = (size_t)shape->height;
    const size_t width = (size_t)shape->width;
    struct image image = {.shape = *shape};
    image.pixel_step = is_planar ? 1 : channels;
    image.row_step = width * image.pixel_step;
    image.channel_step = is_planar ? height * width : 1;
    *block = malloc(channels * height * width);
    assert(*block != NULL);
    uint32_t state = 1;
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++)
            for (size_t c = 0; c < channels; c++) {
                state = state * 1664525u + 1013904223u;
                (*block)[c * image.channel_step + y * image.row_step + x * image.pixel_step] =
                    state & 0x80000000u ? (uint8_t)(state >> 16) : (uint8_t)(0 - (state >> 30));
            }
    image.pixels = *block;
    return image;
}

static void compare(const struct image *part, const uint8_t *whole, size_t height, size_t width,
                    const struct box *place)
{
    for (size_t c = 0; c < (size_t)part->shape.channels; c++)
        for (size_t y = 0; y < place->height; y++)
            assert(memcmp(part->pixels + c * part->channel_step + y * part->row_step,
                          whole + (c * height + place->top + y) * width + place->left,
                          place->width) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct resize_scratch kept; /* in the state that the input before left it in */
    choose_loops();
    struct input input = {bytes, size, 0};
    const size_t most = take(&input, 4) == 1 ? 400 : 60;
    struct shape shape;
    shape.channels = (int64_t)take(&input, 5);
    shape.height = (int64_t)take(&input, most);
    shape.width = (int64_t)take(&input, most);
    const struct box box = take_box(&input, (size_t)shape.height, (size_t)shape.width);
    const size_t height = take(&input, 80), width = take(&input, 80);
    const struct box part = take_box(&input, height, width), all = {0, 0, height, width};
    const enum interpolation interpolation =
        (enum interpolation)(take(&input, NUM_INTERPOLATIONS) - 1);
    struct resize_scratch scratch = {0};
    for (int is_planar = 0; is_planar < 2; is_planar++) {
        uint8_t *block;
        struct image image = lay_out(&shape, is_planar, &block), whole, resized;
        assert(resize_image(&image, box, height, width, all, interpolation, &scratch, &whole));
        assert(resize_image(&image, box, height, width, part, interpolation, &kept, &resized));
        assert(resized.shape.height == (int64_t)part.height);
        assert(resized.shape.width == (int64_t)part.width);
        compare(&resized, whole.pixels, height, width, &part);
        free(block);
    }
    free_resize_scratch(&scratch);
    return 0;
}

#ifndef WITH_LIBFUZZER

int main(int num_arguments, char **arguments)
{
    if (num_arguments != 3) {
        fprintf(stderr, "usage: fuzz_resize SECONDS SEED\n");
        return 2;
    }
    uint64_t state = strtoull(arguments[2], NULL, 10) * 2 + 1;
    const clock_t end = clock() + (clock_t)(atof(arguments[1]) * CLOCKS_PER_SEC);
    unsigned long num_runs = 0;
    for (; clock() < end; num_runs++) {
        uint8_t bytes[40];
        for (size_t i = 0; i < sizeof bytes; i++) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            bytes[i] = (uint8_t)(state >> 24);
        }
        LLVMFuzzerTestOneInput(bytes, sizeof bytes);
    }
    printf("%lu inputs\n", num_runs);
    return 0;
}

#endif
