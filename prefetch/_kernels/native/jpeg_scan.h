/* One scan of a JPEG file: from Huffman codes to coefficients. */
#ifndef RINGFEED_JPEG_SCAN_H
#define RINGFEED_JPEG_SCAN_H

#include "jpeg_bits.h"
#include "jpeg_coefficients.h"

/* Take the coefficients of the scan whose header is given, whose codes begin behind it; store
 * where they end, at a marker. */
bool read_scan_codes(const uint8_t *bytes, size_t size, const struct jpeg_segment *header,
                     const struct code_tables *tables, uint32_t interval, bool is_progressive,
                     struct jpeg_coefficients *image, size_t *end);

#endif
