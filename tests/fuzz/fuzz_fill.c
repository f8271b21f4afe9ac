/* Fuzzes the kernels without Python: any bytes are a record, under a number of recipes, and a
 * mapped file of small pages.
 *
 * With clang's libFuzzer:  clang -fsanitize=fuzzer,address,undefined -DWITH_LIBFUZZER ...
 * Without:                 gcc -fsanitize=address,undefined ... ; fuzz_fill SECONDS SEED CORPUS...
 *
 * The sanitizers judge reads and writes: a record and a row are blocks of exactly their size. What
 * they cannot see is asserted here. An input that fails is written to ./crash.
 */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "advise.h"
#include "kernels.h"
#include "mix.h"
#include "spans.h"

#define MAX_SIDE 48
#define PAGE_BYTES 256
#define NUM_RECORDS 3

struct setup {
    enum element element;
    enum label_kind label_kind;
    size_t label_size;
    int64_t crop_size;
    int64_t num_mean_values, num_scales;
    bool has_mean_image, flag;
    int64_t resized, pad; /* side that images are resized to, 0 for none; pixels around */
    enum resize_kind kind;
    bool jitters, erases;
    enum erasing_mode mode;
};

/* num_mean_values and num_scales: -1 stands for one a channel. */
static const struct setup setups[] = {
    {FLOAT32, NO_LABELS, 0, 0, 0, 1, false, false},
    {FLOAT32, INTEGER_LABELS, 8, 0, 1, -1, false, true},
    {FLOAT32, INTEGER_LABELS, 1, 2, -1, 1, false, true},
    {FLOAT32, INTEGER_LABELS, 4, 9, 0, 1, true, false},
    {FLOAT16, FLOAT_LABELS, 2, 0, 0, 1, true, true},
    {FLOAT16, FLOAT_LABELS, 8, 2, -1, -1, false, true},
    {FLOAT16, FLOAT_LABELS, 4, 0, 7, 1, false, false},
    {BFLOAT16, INTEGER_LABELS, 8, 2, -1, -1, false, true},
    {BFLOAT16, NO_LABELS, 0, 0, 7, 1, true, false},
    {UINT8, INTEGER_LABELS, 2, 0, 0, 1, false, false},
    {UINT8, INTEGER_LABELS, 8, 0, 0, 1, false, true},
    {UINT8, NO_LABELS, 0, 2, 0, 1, false, true},
    {FLOAT32, INTEGER_LABELS, 8, 0, 1, -1, false, true, 7, 0, RANDOM_CROP_RESIZED},
    {UINT8, NO_LABELS, 0, 3, 0, 1, false, false, 5, 0, SHORTER_SIDE_RESIZED},
    {FLOAT16, NO_LABELS, 0, 4, -1, 1, false, true, 2, 2, BOTH_SIDES_RESIZED},
    {FLOAT32, NO_LABELS, 0, 0, 0, 1, false, false, 0, 1, BOTH_SIDES_RESIZED},
    {FLOAT32, NO_LABELS, 0, 0, 0, 1, false, false, 0, 0, 0, true, true, ERASES_TO_NUMBERS},
    {FLOAT16, NO_LABELS, 0, 3, 0, 1, false, true, 0, 1, 0, true, true, ERASES_TO_NUMBERS},
    {BFLOAT16, NO_LABELS, 0, 2, 0, 1, false, false, 7, 0, 0, true, true, ERASES_TO_ONE_NUMBER},
    {FLOAT32, NO_LABELS, 0, 0, 0, 1, true, true, 0, 0, 0, false, true, ERASES_TO_ZERO},
    {UINT8, NO_LABELS, 0, 4, 0, 1, false, true, 0, 0, 0, true, false, 0},
};

static void *block(const void *bytes, size_t size)
{
    void *copy = malloc(size);
    assert(copy != NULL || size == 0);
    if (bytes != NULL && size > 0)
        memcpy(copy, bytes, size);
    else if (size > 0)
        memset(copy, 0, size);
    return copy;
}

static uint8_t *floats(int64_t num)
{
    uint8_t *values = block(NULL, (size_t)num * 4);
    for (int64_t i = 0; i < num; i++) {
        const float value = (float)(i % 7) - 2.5f;
        memcpy(values + 4 * i, &value, 4);
    }
    return values;
}

/* Make the batch's rows those of the record where that is possible, so that it gets far. */
static struct shape shape_of(const uint8_t *bytes, size_t size)
{
    struct float_scratch scratch = {NULL, 0};
    struct datum datum;
    struct fault fault;
    struct shape shape = {3, 4, 5};
    if (parse_datum(bytes, size, &scratch, &datum, &fault) && datum.channels > 0 &&
        datum.height > 0 && datum.width > 0 && datum.channels <= MAX_SIDE &&
        datum.height <= MAX_SIDE && datum.width <= MAX_SIDE)
        shape = (struct shape){datum.channels, datum.height, datum.width};
    free(scratch.bytes);
    return shape;
}

static void check(const struct part *part, const struct outcome *outcomes, ptrdiff_t num)
{
    assert(num >= 0 && (size_t)num <= part->num_records);
    for (ptrdiff_t i = 0; i < num; i++) {
        const struct fault *fault = &outcomes[i].fault;
        assert(outcomes[i].position < part->num_records);
        assert(i == 0 || outcomes[i].position > outcomes[i - 1].position);
        assert(fault->reason >= ENCODED && fault->reason <= CHANNELS_FOR_JITTER);
        assert(fault->num_numbers >= 0 && fault->num_numbers <= 6);
    }
}

/* Mix what was filled with itself; a box that is exchanged twice is where it was. */
static void mix(const struct part *part, size_t value_size, const uint8_t *bytes, size_t size)
{
    const struct shape *shape = &part->expected;
    const size_t plane_bytes = part->row_size / (size_t)shape->channels;
    const struct lines lines = {(size_t)shape->channels, (size_t)shape->height,
                                plane_bytes / (size_t)shape->height};
    const size_t first = size > 0 ? bytes[0] : 0, last = size > 0 ? bytes[size - 1] : 9;
    struct byte_box box = {.bottom = last % (lines.num_lines + 1),
                           .right = size % (lines.line_bytes + 1)};
    box.top = first % (box.bottom + 1);
    box.left = last % (box.right + 1);
    uint8_t *before = block(part->rows, part->row_size * part->num_records);
    swap_boxes(part->rows, part->num_records, &lines, &box);
    swap_boxes(part->rows, part->num_records, &lines, &box);
    assert(memcmp(before, part->rows, part->row_size * part->num_records) == 0);
    free(before);
    if (part->element != UINT8)
        mix_rows(part->rows, part->num_records - size % 2, part->row_size / value_size,
                 part->element, (float)first / 255);
}

static void run(const struct setup *setup, const struct shape *stored, const uint8_t *bytes,
                size_t size)
{
    static const size_t sizes[] = {[FLOAT32] = 4, [FLOAT16] = 2, [BFLOAT16] = 2, [UINT8] = 1};
    const int64_t channels = stored->channels;
    struct recipe recipe = {
        .crop_height = setup->crop_size,
        .crop_width = setup->crop_size,
        .unit_range = setup->pad > 1,
        .resizes = setup->resized > 0,
        .resizing = {setup->kind, setup->resized, setup->resized, setup->flag, 0.08, 1, 0.75, 4.0 / 3,
                     log(0.75), log(4.0 / 3)},
        .pad = setup->pad,
        .jitters = setup->jitters,
        .jitter = {{0, 0.5, 1}, {2, 0.5, 1e6}, setup->flag},
        .erases = setup->erases,
        .erasing = {0.9, 0.02, 1, log(0.3), log(1 / 0.3), setup->mode, NULL},
        .makes_pixels = setup->resized > 0 || setup->pad > 0 || setup->jitters,
        .num_words = MOST_WORDS,
        .jitter_at = NUM_WORDS + RESIZED_CROP_WORDS,
        .erasing_at = MOST_WORDS - ERASING_WORDS,
        .random_crop = setup->flag,
        .mirror = true,
        .modulo = setup->flag,
        .swap_channels = setup->flag,
        .channels_last = setup->flag,
        .num_mean_values = setup->num_mean_values < 0 ? channels : setup->num_mean_values,
        .num_scales = setup->num_scales < 0 ? channels : setup->num_scales,
        .multiplies = setup->element != UINT8,
    };
    uint8_t *means = floats(recipe.num_mean_values), *scales = floats(recipe.num_scales);
    uint8_t *mean_image = NULL;
    static uint8_t *noise; /* the same for all: to make it takes longer than all else */
    if (noise == NULL)
        noise = floats(NUM_QUANTILES);
    recipe.erasing.noise = noise;
    recipe.mean_values = means;
    recipe.scales = scales;
    if (setup->has_mean_image) {
        recipe.mean_shape = *stored;
        recipe.mean_image = mean_image = floats(channels * stored->height * stored->width);
    }
    struct shape expected = find_whole_shape(stored, &recipe);
    if (setup->crop_size > 0)
        expected.height = expected.width = setup->crop_size;

    uint32_t words[MOST_WORDS * NUM_RECORDS];
    struct record records[NUM_RECORDS];
    uint8_t *copies[NUM_RECORDS];
    for (size_t i = 0; i < NUM_RECORDS; i++) {
        const size_t own = i == 1 ? size / 2 : size;
        copies[i] = block(bytes, own);
        records[i] = (struct record){copies[i], own};
        for (size_t j = 0; j < MOST_WORDS; j++)
            words[MOST_WORDS * i + j] =
                (uint32_t)(size * 2654435761u + (MOST_WORDS * i + j) * 40503u);
    }
    struct part part = {
        .num_records = NUM_RECORDS,
        .records = records,
        .words = (const uint8_t *)words,
        .word_steps = {4 * MOST_WORDS, 4},
        .row_size = sizes[setup->element] *
                    (size_t)(expected.channels * expected.height * expected.width),
        .element = setup->element,
        .expected = expected,
        .label_step = (ptrdiff_t)setup->label_size,
        .label_size = setup->label_size,
        .label_kind = setup->label_kind,
    };
    part.rows = block(NULL, part.row_size * NUM_RECORDS);
    part.labels = block(NULL, setup->label_size * NUM_RECORDS);
    struct outcome outcomes[NUM_RECORDS];
    check(&part, outcomes, fill_part(&part, &recipe, outcomes));
    mix(&part, sizes[setup->element], bytes, size);
    for (size_t i = 0; i < NUM_RECORDS; i++)
        free(copies[i]);
    free(part.rows);
    free(part.labels);
    free(means);
    free(scales);
    free(mean_image);
}

/* Look for records in a file, and read what is found. */
static void look_up(const uint8_t *bytes, size_t size)
{
    uint8_t *copy = block(bytes, size);
    const struct mapping mapping = {copy, size, PAGE_BYTES};
    volatile uint8_t sum = 0;
    for (int64_t page = -1; page <= (int64_t)(size / PAGE_BYTES); page++) {
        for (int64_t slot = -1; slot < 6; slot++) {
            struct span found[2];
            const struct span ahead = find_value_ahead(&mapping, page, slot);
            assert(is_inside(&mapping, (int64_t)ahead.begin, (int64_t)ahead.size));
            if (slot == 0)
                advise_span(&mapping, (int64_t)ahead.begin, (int64_t)ahead.size);
            if (!find_record(&mapping, page, slot, &found[0], &found[1]))
                continue;
            for (size_t i = 0; i < 2; i++) {
                assert(is_inside(&mapping, (int64_t)found[i].begin, (int64_t)found[i].size));
                for (size_t at = 0; at < found[i].size; at++)
                    sum ^= copy[found[i].begin + at];
            }
        }
    }
    free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    choose_loops();
    const struct shape stored = shape_of(bytes, size);
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++)
        run(&setups[i], &stored, bytes, size);
    look_up(bytes, size);
    return 0;
}

#include "drive.h"
