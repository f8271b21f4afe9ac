/* A part of a batch, record by record. */
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

/* prefetch_record() asks for this much of the record after next. The loops over small records ask
 * for the pixels of the one after that. */
#define RECORDS_AHEAD 2
#define PREFETCHED_BYTES 4096
#define PIXELS_AHEAD 3

static void store_label(const struct part *part, size_t position, int32_t label)
{
    uint8_t *to = part->labels + (ptrdiff_t)position * part->label_step;
    if (part->label_kind == INTEGER_LABELS) {
        /* Cut or sign-extended, as by a cast. */
        const int64_t wide = label;
        const int32_t middle = label;
        const int16_t narrow = (int16_t)(uint16_t)(uint32_t)label;
        const int8_t byte = (int8_t)(uint8_t)(uint32_t)label;
        switch (part->label_size) {
        case 1:
            memcpy(to, &byte, 1);
            break;
        case 2:
            memcpy(to, &narrow, 2);
            break;
        case 4:
            memcpy(to, &middle, 4);
            break;
        default:
            memcpy(to, &wide, 8);
        }
    } else if (part->label_kind == FLOAT_LABELS) {
        const double wide = label;
        const float single = (float)label;
        uint32_t bits;
        memcpy(&bits, &single, 4);
        const uint16_t half = half_bits(bits); /* twice rounded, as by NumPy */
        switch (part->label_size) {
        case 2:
            memcpy(to, &half, 2);
            break;
        case 4:
            memcpy(to, &single, 4);
            break;
        default:
            memcpy(to, &wide, 8);
        }
    }
}

static void load_words(const struct part *part, size_t position, size_t num, uint32_t *words)
{
    const uint8_t *from = part->words + (ptrdiff_t)position * part->word_steps[0];
    for (ptrdiff_t i = 0; i < (ptrdiff_t)num; i++)
        memcpy(&words[i], from + i * part->word_steps[1], sizeof words[i]);
}

/* Prefetch a record: hardware does so only once it has seen a few of its lines. Of a small one that
 * becomes floats only the ends, where its fields are: the loops ask for its pixels, a line at a
 * time, as they compute the record before. All at once is more than a core can wait for (3x32x32
 * cropped to 28, out of memory and in any order: 0.7 of the time). */
static void prefetch_record(const struct part *part, size_t position)
{
    if (position >= part->num_records)
        return;
    const struct record *record = &part->records[position];
    const uintptr_t begin = (uintptr_t)record->bytes;
    if (part->element != FLOAT32 || record->size >= PREFETCHED_BYTES) {
        prefetch_bytes(begin, record->size < PREFETCHED_BYTES ? record->size : PREFETCHED_BYTES);
    } else if (record->size > 0) {
        prefetch_bytes(begin, 1);
        prefetch_bytes(begin + record->size - 1, 1);
    }
}

/* Bytes from a record to the one whose pixels are prefetched meanwhile; 0 where there is none. */
static uintptr_t distance_to_later(const struct part *part, size_t position)
{
    const struct record *record = &part->records[position];
    return position + PIXELS_AHEAD < part->num_records
               ? (uintptr_t)record[PIXELS_AHEAD].bytes - (uintptr_t)record->bytes
               : 0;
}

/* Fill a record's row and label; false with a fault, which may be that it is encoded. */
static bool fill_row(const struct part *part, const struct recipe *recipe, size_t position,
                     struct float_scratch *scratch, bool *streamed, struct fault *fault)
{
    const struct record *record = &part->records[position];
    struct datum datum;
    struct image image;
    const bool is_datum = parse_datum(record->bytes, record->size, scratch, &datum, fault);
    store_label(part, position, is_datum ? datum.label : 0);
    if (!is_datum)
        return false;
    if (datum.encoded)
        return set_fault(fault, datum.data_size > 0 ? ENCODED : ENCODED_EMPTY, 0, NULL);
    if (!find_pixels(&datum, part->element, &image, fault) ||
        !check_fit(&image.shape, recipe, &part->expected, image.is_float, fault))
        return false;
    image.prefetch_distance = distance_to_later(part, position);
    uint32_t words[MOST_WORDS];
    load_words(part, position, recipe->num_words, words);
    if (recipe->makes_pixels && !make_pixels(&image, words, recipe))
        return set_fault(fault, OUT_OF_MEMORY, 0, NULL);
    if (transform_image(&image, words, recipe, part->element,
                        part->rows + position * part->row_size))
        *streamed = true;
    return true;
}

ptrdiff_t fill_part(const struct part *part, const struct recipe *recipe,
                    struct outcome *outcomes)
{
    struct float_scratch scratch = {NULL, 0};
    bool streamed = false;
    ptrdiff_t num_outcomes = 0;
    for (size_t position = 0; position < part->num_records; position++) {
        prefetch_record(part, position + RECORDS_AHEAD);
        struct outcome *outcome = &outcomes[num_outcomes];
        if (fill_row(part, recipe, position, &scratch, &streamed, &outcome->fault))
            continue;
        if (outcome->fault.reason == OUT_OF_MEMORY) {
            num_outcomes = -1;
            break;
        }
        outcome->position = position;
        num_outcomes++;
    }
    if (streamed)
        finish_streaming();
    free(scratch.bytes);
    return num_outcomes;
}
