#include "jpeg_scan.h"

struct scan {
    struct bits bits;
    uint32_t num_components;
    uint32_t numbers[JPEG_COMPONENTS]; /* of the components in the frame */
    const struct code_table *dc[JPEG_COMPONENTS], *ac[JPEG_COMPONENTS];
    uint32_t first, last;  /* coefficients */
    uint32_t shift;        /* lower bits that this scan lacks */
    bool refines;          /* it adds one bit to what earlier scans have told */
    bool is_progressive;
    int32_t before[JPEG_COMPONENTS]; /* the last block's DC */
    uint32_t num_empty; /* blocks of which it says no more */
};

static bool store(int16_t *to, int32_t value)
{
    *to = (int16_t)value;
    return *to == value;
}

static bool take_dc(struct scan *scan, uint32_t i, int16_t *block)
{
    if (scan->refines) {
        block[0] = (int16_t)(block[0] | (int16_t)(take_bits(&scan->bits, 1) << scan->shift));
        return true;
    }
    const int length = take_code(&scan->bits, scan->dc[i]);
    if (length < 0 || length > 15)
        return false;
    scan->before[i] += take_number(&scan->bits, (uint32_t)length);
    return scan->before[i] >= INT16_MIN && scan->before[i] <= INT16_MAX &&
           store(block, scan->before[i] * (1 << scan->shift));
}

static bool take_ac(struct scan *scan, uint32_t i, int16_t *block)
{
    if (scan->num_empty > 0) {
        scan->num_empty--;
        return true;
    }
    for (uint32_t at = scan->first > 0 ? scan->first : 1; at <= scan->last; at++) {
        const int code = take_code(&scan->bits, scan->ac[i]);
        if (code < 0)
            return false;
        const uint32_t run = (uint32_t)code >> 4, length = (uint32_t)code & 15;
        if (length == 0 && run < 15) {
            if (!scan->is_progressive)
                return run == 0;
            scan->num_empty = (1u << run) + take_bits(&scan->bits, run) - 1;
            return true;
        }
        at += run;
        if (at > scan->last)
            return false;
        if (length > 0 &&
            !store(block + at, take_number(&scan->bits, length) * (1 << scan->shift)))
            return false;
    }
    return true;
}

/* Take the next bit of a coefficient that is known not to be 0. */
static void refine(struct scan *scan, int16_t *value)
{
    const int16_t bit = (int16_t)(1 << scan->shift);
    if (take_bits(&scan->bits, 1) && (*value & bit) == 0)
        *value = (int16_t)(*value < 0 ? *value - bit : *value + bit);
}

static bool refine_ac(struct scan *scan, uint32_t i, int16_t *block)
{
    uint32_t at = scan->first;
    while (at <= scan->last && scan->num_empty == 0) {
        const int code = take_code(&scan->bits, scan->ac[i]);
        if (code < 0 || (code & 15) > 1)
            return false;
        uint32_t run = (uint32_t)code >> 4;
        int32_t value = 0;
        if ((code & 15) == 1)
            value = take_bits(&scan->bits, 1) ? 1 << scan->shift : -(1 << scan->shift);
        else if (run < 15) {
            scan->num_empty = (1u << run) + take_bits(&scan->bits, run);
            break;
        }
        for (; at <= scan->last; at++) {
            if (block[at] != 0)
                refine(scan, block + at);
            else if (run-- == 0)
                break;
        }
        if (at > scan->last)
            return code == 0xF0;
        if (value != 0)
            block[at] = (int16_t)value;
        at++;
    }
    if (scan->num_empty > 0) {
        for (; at <= scan->last; at++) {
            if (block[at] != 0)
                refine(scan, block + at);
        }
        scan->num_empty--;
    }
    return true;
}

static bool take_block(struct scan *scan, uint32_t i, int16_t *block)
{
    if (scan->first == 0 && !take_dc(scan, i, block))
        return false;
    const bool has_ac = scan->last > 0;
    const bool is_sound = !has_ac || (scan->refines ? refine_ac(scan, i, block)
                                                    : take_ac(scan, i, block));
    return is_sound && scan->bits.num_invented <= scan->bits.num_ahead;
}

/* End a segment: no more than the rest of a byte may be left. */
static bool end_segment(struct scan *scan)
{
    struct bits *bits = &scan->bits;
    const bool is_sound = bits->num_invented <= bits->num_ahead &&
                          bits->num_ahead - bits->num_invented < 8 && scan->num_empty == 0;
    bits->ahead = bits->num_ahead = bits->num_invented = 0;
    memset(scan->before, 0, sizeof scan->before);
    return is_sound;
}

static bool pass_restart(struct scan *scan, uint32_t number)
{
    struct bits *bits = &scan->bits;
    if (!end_segment(scan) || bits->size - bits->at < 2 || bits->bytes[bits->at] != 0xFF ||
        bits->bytes[bits->at + 1] != RST0_MARKER + number % NUM_RESTARTS)
        return false;
    bits->at += 2;
    return true;
}

static bool take_mcu(struct scan *scan, struct jpeg_coefficients *image, uint32_t row,
                     uint32_t column)
{
    if (scan->num_components == 1)
        return take_block(scan, 0, find_block(image, scan->numbers[0], row, column));
    for (uint32_t i = 0; i < scan->num_components; i++) {
        const struct jpeg_component *component = &image->frame.components[scan->numbers[i]];
        for (uint32_t y = row * component->down; y < (row + 1) * component->down; y++) {
            for (uint32_t x = column * component->across; x < (column + 1) * component->across;
                 x++) {
                if (!take_block(scan, i, find_block(image, scan->numbers[i], y, x)))
                    return false;
            }
        }
    }
    return true;
}

static bool read_header(const uint8_t *from, size_t size, const struct code_tables *tables,
                        const struct jpeg_frame *frame, struct scan *scan)
{
    const uint32_t num = size > 0 ? from[0] : 0;
    if (num < 1 || num > frame->num_components || size != 4 + 2 * (size_t)num)
        return false;
    const uint8_t *spectrum = from + 1 + 2 * num;
    scan->num_components = num;
    scan->first = spectrum[0];
    scan->last = spectrum[1];
    scan->refines = spectrum[2] >> 4 != 0;
    scan->shift = spectrum[2] & 15;
    if (scan->is_progressive) {
        const bool is_dc = scan->first == 0 && scan->last == 0;
        const bool is_ac = scan->first > 0 && scan->first <= scan->last && num == 1;
        if ((!is_dc && !is_ac) || scan->last >= BLOCK_SIZE || scan->shift > 13 ||
            (scan->refines && spectrum[2] >> 4 != scan->shift + 1))
            return false;
    } else if (scan->first != 0 || scan->last != BLOCK_SIZE - 1 || spectrum[2] != 0)
        return false;
    for (uint32_t i = 0; i < num; i++) {
        const uint8_t *chosen = from + 1 + 2 * i;
        uint32_t number = i > 0 ? scan->numbers[i - 1] + 1 : 0; /* in the frame's order */
        while (number < frame->num_components && frame->components[number].id != chosen[0])
            number++;
        const uint8_t dc = chosen[1] >> 4, ac = chosen[1] & 15;
        if (number == frame->num_components || dc >= NUM_TABLES || ac >= NUM_TABLES)
            return false;
        scan->numbers[i] = number;
        scan->dc[i] = &tables->dc[dc];
        scan->ac[i] = &tables->ac[ac];
        if ((scan->first == 0 && !scan->refines && !scan->dc[i]->is_there) ||
            (scan->last > 0 && !scan->ac[i]->is_there))
            return false;
    }
    return true;
}

bool read_scan_codes(const uint8_t *bytes, size_t size, const struct jpeg_segment *header,
                     const struct code_tables *tables, uint32_t interval, bool is_progressive,
                     struct jpeg_coefficients *image, size_t *end)
{
    const struct jpeg_frame *frame = &image->frame;
    struct scan scan = {.bits = {.bytes = bytes, .at = header->end, .size = size},
                        .is_progressive = is_progressive};
    if (!read_header(bytes + header->begin + 4, header->end - header->begin - 4, tables, frame,
                     &scan))
        return false;
    uint32_t rows = frame->mcu_rows, columns = frame->mcu_columns;
    if (scan.num_components == 1) {
        rows = frame->components[scan.numbers[0]].num_rows;
        columns = frame->components[scan.numbers[0]].num_columns;
    }
    uint32_t num_done = 0;
    for (uint32_t row = 0; row < rows; row++) {
        for (uint32_t column = 0; column < columns; column++, num_done++) {
            if (interval > 0 && num_done > 0 && num_done % interval == 0 &&
                !pass_restart(&scan, num_done / interval - 1))
                return false;
            if (!take_mcu(&scan, image, row, column))
                return false;
        }
    }
    if (!end_segment(&scan))
        return false;
    *end = scan.bits.at;
    return true;
}
