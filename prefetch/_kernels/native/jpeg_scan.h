/* One scan of a JPEG file: from Huffman codes to coefficients. */
#ifndef RINGFEED_JPEG_SCAN_H
#define RINGFEED_JPEG_SCAN_H

#include "jpeg_coefficients.h"

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

/* Take the coefficients of the scan whose header is given, whose codes begin behind it; store
 * where they end, at a marker. */
bool read_scan_codes(const uint8_t *bytes, size_t size, const struct jpeg_segment *header,
                     const struct code_tables *tables, uint32_t interval, bool is_progressive,
                     struct jpeg_coefficients *image, size_t *end);

#endif
