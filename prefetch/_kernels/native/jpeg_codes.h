/* Huffman codes of at most 16 bits for symbols that occur so and so often. */
#ifndef RINGFEED_JPEG_CODES_H
#define RINGFEED_JPEG_CODES_H

#include "jpeg_frame.h"

enum { NUM_SYMBOLS = 256, MAX_CODE_BITS = 16 };

struct codes {
    uint64_t counts[NUM_SYMBOLS]; /* how often each symbol occurs */
    uint16_t codes[NUM_SYMBOLS];
    uint8_t lengths[NUM_SYMBOLS]; /* 0 for symbols that do not occur */
};

/* Find the shortest codes, but for what the longest may cost too much; none is all ones. */
void find_codes(struct codes *codes);

/* Write the body of a table: how many codes there are of each length, and their symbols. Return
 * how many bytes it takes, at most MAX_CODE_BITS + NUM_SYMBOLS. */
size_t write_codes(const struct codes *codes, uint8_t *to);

#endif
