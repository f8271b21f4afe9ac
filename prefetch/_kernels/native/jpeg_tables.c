/* Tables of Huffman codes, as a file states them, made ready to be looked up. */
#include "jpeg_bits.h"

static bool fill_table(const uint8_t *counts, const uint8_t *values, uint32_t num_values,
                       struct code_table *table)
{
    *table = (struct code_table){.is_there = true, .num_values = (uint8_t)num_values};
    memcpy(table->values, values, num_values);
    int32_t code = 0, number = 0;
    for (uint32_t length = 1; length <= LONGEST_CODE; length++) {
        const int32_t num = counts[length - 1];
        if (code + num > (1 << length))
            return false;
        table->first[length] = code - number;
        for (int32_t i = 0; i < num && length <= FAST_BITS; i++) {
            const uint32_t rest = FAST_BITS - length;
            for (uint32_t j = 0; j < 1u << rest; j++)
                table->fast[((uint32_t)(code + i) << rest) + j] =
                    (uint16_t)(length << 8 | values[number + i]);
        }
        code += num;
        number += num;
        table->end[length] = num > 0 ? code : 0;
        code <<= 1;
    }
    return true;
}

bool read_tables(const uint8_t *bytes, const struct jpeg_segment *segment,
                 struct code_tables *tables)
{
    size_t at = segment->begin + 4;
    while (at < segment->end) {
        if (segment->end - at < 1 + LONGEST_CODE)
            return false;
        const uint8_t kind = bytes[at] >> 4, number = bytes[at] & 15;
        const uint8_t *counts = bytes + at + 1;
        uint32_t num_values = 0;
        for (int i = 0; i < LONGEST_CODE; i++)
            num_values += counts[i];
        at += 1 + LONGEST_CODE;
        if (kind > 1 || number >= NUM_TABLES || num_values > 255 ||
            num_values > segment->end - at)
            return false;
        struct code_table *table = kind == 0 ? &tables->dc[number] : &tables->ac[number];
        if (!fill_table(counts, bytes + at, num_values, table))
            return false;
        at += num_values;
    }
    return true;
}
