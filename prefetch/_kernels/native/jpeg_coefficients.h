/* The quantised coefficients of a Huffman-coded JPEG file, sequential or progressive, and a file
 * made of them: baseline, one scan, with restart markers. Nothing is lost: what decodes the one to
 * pixels decodes the other to the same.
 *
 * The converters' part; a file in which anything is unusual is left as it is. */
#ifndef RINGFEED_JPEG_COEFFICIENTS_H
#define RINGFEED_JPEG_COEFFICIENTS_H

#include "jpeg_frame.h"

enum recoding {
    RECODED,
    NO_HUFFMAN_FRAME, /* arithmetic coding, lossless, 12 bits, CMYK: none of 1 or 3 components */
    BYTES_BEHIND_END, /* the file goes on behind its end marker */
    UNUSUAL_FILE,     /* damaged, or with segments where few files have any */
    NO_RECODING_MEMORY
};

struct jpeg_coefficients {
    struct jpeg_frame frame;
    /* Of each component (blocks_down, blocks_across, BLOCK_SIZE), in zigzag order; whole MCUs. */
    int16_t *blocks[JPEG_COMPONENTS];
    uint32_t blocks_across[JPEG_COMPONENTS];
    /* The file's segments but for tables of Huffman codes, restart intervals, stamps and scans. */
    uint8_t *header;
    size_t header_size;
    size_t frame_at; /* where in it the frame's marker is */
};

/* Read a file; what was read must be released, also where it fails. */
enum recoding read_coefficients(const uint8_t *bytes, size_t size,
                                struct jpeg_coefficients *image);
void release_coefficients(struct jpeg_coefficients *image);

/* Write a file with a restart marker after each so many MCUs, and a stamp; `*file` is to be
 * freed. */
enum recoding write_coefficients(const struct jpeg_coefficients *image, uint32_t interval,
                                 uint8_t **file, size_t *size);

static inline int16_t *find_block(const struct jpeg_coefficients *image, uint32_t component,
                                  uint32_t row, uint32_t column)
{
    const size_t number = (size_t)row * image->blocks_across[component] + column;
    return image->blocks[component] + number * BLOCK_SIZE;
}

#endif
