/* Huffman codes of a JPEG file, read bit by bit. */
#ifndef RINGFEED_JPEG_BITS_H
#define RINGFEED_JPEG_BITS_H

#include "jpeg_frame.h"

enum { NUM_TABLES = 4, FAST_BITS = 9, LONGEST_CODE = 16 };

/* Codes of one table, to be looked up. */
struct code_table {
    bool is_there;
    uint8_t num_values;
    uint8_t values[256];
    uint16_t fast[1 << FAST_BITS]; /* length << 8 | value, by the next bits; 0 for longer codes */
    int32_t end[LONGEST_CODE + 1];   /* behind the last code of each length; 0 where there is none */
    int32_t first[LONGEST_CODE + 1]; /* less this, a code of each length is its value's number */
};

struct code_tables {
    struct code_table dc[NUM_TABLES], ac[NUM_TABLES];
};

/* Take the tables of a segment. */
bool read_tables(const uint8_t *bytes, const struct jpeg_segment *segment,
                 struct code_tables *tables);

/* Codes from the bit at a place on. */
struct bits {
    const uint8_t *bytes;
    size_t at, size;
    uint64_t ahead; /* the next num_ahead bits are its lowest */
    uint32_t num_ahead;
    uint32_t num_invented; /* zeros among them that stand for what the file lacks */
};

static inline void look_ahead(struct bits *bits)
{
    while (bits->num_ahead <= 48) { /* so that a shift by num_ahead is one by less than 64 */
        uint8_t byte = 0;
        const bool is_there = bits->at < bits->size;
        if (is_there && bits->bytes[bits->at] != 0xFF)
            byte = bits->bytes[bits->at++];
        else if (is_there && bits->size - bits->at > 1 && bits->bytes[bits->at + 1] == 0) {
            byte = 0xFF;
            bits->at += 2;
        } else
            bits->num_invented += 8;
        bits->ahead = bits->ahead << 8 | byte;
        bits->num_ahead += 8;
    }
}

/* At most 16 bits. */
static inline uint32_t take_bits(struct bits *bits, uint32_t num)
{
    if (bits->num_ahead < num)
        look_ahead(bits);
    bits->num_ahead -= num;
    return (uint32_t)(bits->ahead >> bits->num_ahead) & ((1u << num) - 1);
}

/* Take a number that is stored in so many bits, the first of which tells its sign. */
static inline int32_t take_number(struct bits *bits, uint32_t num)
{
    if (num == 0)
        return 0;
    const int32_t value = (int32_t)take_bits(bits, num);
    return value >> (num - 1) ? value : value - (int32_t)(1u << num) + 1;
}

/* Take a code and return its value; -1 where there is no such code. */
static inline int take_code(struct bits *bits, const struct code_table *table)
{
    if (bits->num_ahead < LONGEST_CODE)
        look_ahead(bits);
    const uint32_t next =
        (uint32_t)(bits->ahead >> (bits->num_ahead - LONGEST_CODE)) & 0xFFFF;
    const uint16_t fast = table->fast[next >> (LONGEST_CODE - FAST_BITS)];
    if (fast != 0) {
        bits->num_ahead -= fast >> 8;
        return fast & 255;
    }
    for (uint32_t length = FAST_BITS + 1; length <= LONGEST_CODE; length++) {
        const int32_t code = (int32_t)(next >> (LONGEST_CODE - length));
        if (code < table->end[length]) {
            bits->num_ahead -= length;
            return table->values[(code - table->first[length]) & 255];
        }
    }
    return -1;
}

#endif
