/* Fuzzes what looks after JPEG files without Python: any bytes are one, cut by a number of windows,
 * and given restart markers. Built and run as fuzz_fill.c is.
 *
 * The sanitizers judge reads and writes: a file and the memory of a small one are blocks of exactly
 * their size. What they cannot see is asserted here: a small file is one of the same kind, and a
 * file with new markers has the coefficients that it had. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "jpeg_coefficients.h"
#include "jpeg_restarts.h"
#include "jpeg_stamp.h"

static bool is_inside(const struct jpeg_window *inner, const struct jpeg_window *outer)
{
    return inner->top >= outer->top && inner->left >= outer->left &&
           inner->top + inner->height <= outer->top + outer->height &&
           inner->left + inner->width <= outer->left + outer->width;
}

static bool read_header(const uint8_t *bytes, size_t size, struct jpeg_restarts *restarts)
{
    struct kept_header kept = {.to = NULL};
    return read_restarts(bytes, size, restarts, &kept);
}

static void splice(const uint8_t *bytes, size_t size, const struct jpeg_window *window)
{
    uint8_t *to = malloc(size);
    assert(to != NULL || size == 0);
    struct jpeg_window covered;
    size_t num_bytes;
    if (splice_window(bytes, size, window, to, &covered, &num_bytes) == HAS_RESTARTS) {
        struct jpeg_restarts restarts;
        assert(num_bytes <= size);
        assert(is_inside(window, &covered));
        assert(read_header(to, num_bytes, &restarts));
        assert(check_restarts(to, num_bytes, &restarts) == HAS_RESTARTS);
        assert(restarts.frame.height == covered.height && restarts.frame.width == covered.width);
    }
    free(to);
}

static void splice_windows(const uint8_t *bytes, size_t size)
{
    struct jpeg_restarts restarts;
    const struct jpeg_window odd[] = {
        {0, 0, 1, 1}, {-1, 0, 5, 5}, {0, 0, 0, 5}, {3, 3, INT64_MAX, INT64_MAX}, {0, 70000, 1, 1}};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++)
        splice(bytes, size, &odd[i]);
    if (!read_header(bytes, size, &restarts))
        return;
    const int64_t height = restarts.frame.height, width = restarts.frame.width;
    for (int64_t i = 0; i < 4; i++) {
        const int64_t top = i * height / 5, left = (3 - i) * width / 5;
        const struct jpeg_window window = {top, left, (height - top + 2) / 3, width - left};
        const struct jpeg_window corner = {height - 1 - top, width - 1 - left, 1, 1 + left};
        splice(bytes, size, &window);
        splice(bytes, size, &corner);
    }
}

static void check_equal(const struct jpeg_coefficients *one, const struct jpeg_coefficients *other)
{
    assert(one->frame.num_components == other->frame.num_components);
    for (uint32_t i = 0; i < one->frame.num_components; i++) {
        const size_t num_rows = (size_t)one->frame.mcu_rows * one->frame.components[i].down;
        assert(one->blocks_across[i] == other->blocks_across[i]);
        assert(memcmp(one->blocks[i], other->blocks[i],
                      num_rows * one->blocks_across[i] * BLOCK_SIZE * sizeof(int16_t)) == 0);
    }
}

static void add_restarts(const uint8_t *bytes, size_t size)
{
    struct jpeg_coefficients image, again;
    if (read_coefficients(bytes, size, &image) == RECODED) {
        for (uint32_t interval = 1; interval <= image.frame.mcu_columns; interval++) {
            if (image.frame.mcu_columns % interval != 0)
                continue;
            uint8_t *file;
            size_t num_bytes;
            if (write_coefficients(&image, interval, &file, &num_bytes) != RECODED)
                continue;
            struct jpeg_restarts restarts;
            assert(read_header(file, num_bytes, &restarts));
            assert(restarts.is_stamped && restarts.interval == interval);
            assert(check_restarts(file, num_bytes, &restarts) == HAS_RESTARTS);
            assert(read_coefficients(file, num_bytes, &again) == RECODED);
            check_equal(&image, &again);
            release_coefficients(&again);
            free(file);
        }
    }
    release_coefficients(&image);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    choose_checksums();
    uint8_t *copy = malloc(size);
    assert(copy != NULL || size == 0);
    if (size > 0)
        memcpy(copy, bytes, size);
    splice_windows(copy, size);
    add_restarts(copy, size);
    free(copy);
    return 0;
}

#include "drive.h"
