/* Coefficients into a baseline file with restart markers: once to count symbols, once to write. */
#include <stdlib.h>

#include "jpeg_codes.h"
#include "jpeg_coefficients.h"
#include "jpeg_stamp.h"

enum { NUM_KINDS = 2 /* luma, or the first component; chroma */ };

/* Two passes take the same way through the blocks: `to` is NULL in the first. */
struct writer {
    struct codes dc[NUM_KINDS], ac[NUM_KINDS];
    uint64_t num_bits; /* beside the codes, in the first pass */
    uint8_t *to;
    size_t size;
    uint64_t ahead; /* bits that are not written yet, its lowest num_ahead */
    uint32_t num_ahead;
};

static void put_byte(struct writer *writer, uint8_t byte)
{
    writer->to[writer->size++] = byte;
    if (byte == 0xFF)
        writer->to[writer->size++] = 0;
}

static void put_bits(struct writer *writer, uint32_t bits, uint32_t num)
{
    writer->ahead = writer->ahead << num | bits;
    writer->num_ahead += num;
    while (writer->num_ahead >= 8) {
        writer->num_ahead -= 8;
        put_byte(writer, (uint8_t)(writer->ahead >> writer->num_ahead));
    }
}

/* Fill the last byte of a segment with ones. */
static void end_byte(struct writer *writer)
{
    if (writer->num_ahead > 0)
        put_bits(writer, 0xFFu >> writer->num_ahead, 8 - writer->num_ahead);
}

static void put_marker(struct writer *writer, uint8_t marker)
{
    writer->to[writer->size++] = 0xFF;
    writer->to[writer->size++] = marker;
}

static uint32_t count_bits(uint32_t value)
{
    uint32_t num = 0;
    for (; value > 0; value >>= 1)
        num++;
    return num;
}

/* Put a symbol, and the bits of a number whose length the symbol tells. */
static void put_number(struct writer *writer, struct codes *codes, uint32_t run, int32_t number)
{
    const uint32_t num = count_bits((uint32_t)(number < 0 ? -number : number));
    const uint32_t symbol = run << 4 | num;
    if (writer->to == NULL) {
        codes->counts[symbol]++;
        writer->num_bits += num;
        return;
    }
    put_bits(writer, codes->codes[symbol], codes->lengths[symbol]);
    const uint32_t bits = (uint32_t)(number < 0 ? number - 1 : number);
    put_bits(writer, bits & ((1u << num) - 1), num);
}

/* False where a number is too long for any code. */
static bool put_block(struct writer *writer, uint32_t kind, const int16_t *block, int32_t *before)
{
    const int32_t difference = block[0] - *before;
    *before = block[0];
    if (difference < -INT16_MAX || difference > INT16_MAX)
        return false;
    put_number(writer, &writer->dc[kind], 0, difference);
    struct codes *codes = &writer->ac[kind];
    uint32_t run = 0;
    for (uint32_t at = 1; at < BLOCK_SIZE; at++) {
        if (block[at] == 0) {
            run++;
            continue;
        }
        if (block[at] == INT16_MIN)
            return false;
        for (; run > 15; run -= 16)
            put_number(writer, codes, 15, 0);
        put_number(writer, codes, run, block[at]);
        run = 0;
    }
    if (run > 0)
        put_number(writer, codes, 0, 0);
    return true;
}

/* Put all blocks, those that only fill up an MCU too; false where one cannot be. */
static bool put_mcus(struct writer *writer, const struct jpeg_coefficients *image,
                     uint32_t interval)
{
    const struct jpeg_frame *frame = &image->frame;
    int32_t before[JPEG_COMPONENTS] = {0};
    uint32_t num_done = 0;
    for (uint32_t row = 0; row < frame->mcu_rows; row++) {
        for (uint32_t column = 0; column < frame->mcu_columns; column++, num_done++) {
            if (num_done > 0 && num_done % interval == 0) {
                memset(before, 0, sizeof before);
                if (writer->to != NULL) {
                    end_byte(writer);
                    put_marker(writer, (uint8_t)(RST0_MARKER +
                                                 (num_done / interval - 1) % NUM_RESTARTS));
                }
            }
            for (uint32_t i = 0; i < frame->num_components; i++) {
                const struct jpeg_component *component = &frame->components[i];
                for (uint32_t j = 0; j < component->down * component->across; j++) {
                    const uint32_t y = row * component->down + j / component->across;
                    const uint32_t x = column * component->across + j % component->across;
                    if (!put_block(writer, i > 0, find_block(image, i, y, x), &before[i]))
                        return false;
                }
            }
        }
    }
    if (writer->to != NULL)
        end_byte(writer);
    return true;
}

static void put_tables(struct writer *writer, uint32_t num_kinds)
{
    for (uint32_t kind = 0; kind < 2 * num_kinds; kind++) {
        put_marker(writer, DHT_MARKER);
        uint8_t *to = writer->to + writer->size;
        const bool is_ac = (kind & 1) != 0;
        const struct codes *codes = is_ac ? &writer->ac[kind / 2] : &writer->dc[kind / 2];
        const size_t size = 3 + write_codes(codes, to + 3);
        store_big16(to, (uint32_t)size);
        to[2] = (uint8_t)((is_ac ? 0x10 : 0) | kind / 2);
        writer->size += size;
    }
}

static void put_scan_header(struct writer *writer, const struct jpeg_frame *frame)
{
    put_marker(writer, SOS_MARKER);
    uint8_t *to = writer->to + writer->size;
    const uint32_t num = frame->num_components;
    store_big16(to, 6 + 2 * num);
    to[2] = (uint8_t)num;
    for (uint32_t i = 0; i < num; i++) {
        to[3 + 2 * i] = frame->components[i].id;
        to[4 + 2 * i] = i > 0 ? 0x11 : 0;
    }
    to += 3 + 2 * num;
    to[0] = 0;
    to[1] = BLOCK_SIZE - 1;
    to[2] = 0;
    writer->size += 6 + 2 * num;
}

/* Return how many bytes the file takes at the most. */
static size_t find_most(const struct writer *writer, const struct jpeg_coefficients *image,
                        uint32_t num_kinds, size_t num_segments)
{
    uint64_t num_bits = writer->num_bits;
    for (uint32_t kind = 0; kind < num_kinds; kind++) {
        for (uint32_t i = 0; i < NUM_SYMBOLS; i++) {
            num_bits += writer->dc[kind].counts[i] * writer->dc[kind].lengths[i];
            num_bits += writer->ac[kind].counts[i] * writer->ac[kind].lengths[i];
        }
    }
    /* Each byte may be followed by a zero; a segment's last one is filled up. */
    const size_t scan = (size_t)(num_bits / 8 + 1) * 2 + num_segments * 4;
    const size_t tables = 2 * num_kinds * (5 + MAX_CODE_BITS + NUM_SYMBOLS);
    return image->header_size + tables + 6 /* DRI */ + STAMP_SIZE + 16 /* SOS */ + scan + 2;
}

static void put_file(struct writer *writer, const struct jpeg_coefficients *image,
                     uint32_t interval, uint32_t num_kinds)
{
    memcpy(writer->to, image->header, image->header_size);
    writer->size = image->header_size;
    put_marker(writer, DRI_MARKER);
    store_big16(writer->to + writer->size, 4);
    store_big16(writer->to + writer->size + 2, interval);
    writer->size += 4;
    put_tables(writer, num_kinds);
    const size_t stamp_at = writer->size;
    writer->size += STAMP_SIZE;
    put_scan_header(writer, &image->frame);
    (void)put_mcus(writer, image, interval);
    put_marker(writer, EOI_MARKER);
    write_stamp(writer->to, writer->size, stamp_at);
}

enum recoding write_coefficients(const struct jpeg_coefficients *image, uint32_t interval,
                                 uint8_t **file, size_t *size)
{
    const struct jpeg_frame *frame = &image->frame;
    const uint32_t num_kinds = frame->num_components > 1 ? 2 : 1;
    struct writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL)
        return NO_RECODING_MEMORY;
    enum recoding outcome = UNUSUAL_FILE;
    if (put_mcus(writer, image, interval)) {
        for (uint32_t kind = 0; kind < num_kinds; kind++) {
            find_codes(&writer->dc[kind]);
            find_codes(&writer->ac[kind]);
        }
        const size_t num_mcus = (size_t)frame->mcu_rows * frame->mcu_columns;
        const size_t most = find_most(writer, image, num_kinds, num_mcus / interval + 1);
        writer->to = malloc(most);
        outcome = writer->to == NULL ? NO_RECODING_MEMORY : RECODED;
    }
    if (outcome == RECODED) {
        put_file(writer, image, interval, num_kinds);
        *file = writer->to;
        *size = writer->size;
    }
    free(writer);
    return outcome;
}
