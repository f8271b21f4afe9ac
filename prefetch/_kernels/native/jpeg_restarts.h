/* JPEG files whose restart markers cut them into segments that decode each by itself, and small
 * files made of those that a window of the image needs.
 *
 * A file is of use where all of this holds: Huffman-coded, 8 bits, baseline or extended; one scan
 * of all of its one or three components; a restart interval that divides the MCUs of a row, or
 * that rows of MCUs make up; all of the segments that this takes, in order; behind them the end
 * marker, and nothing more; and a stamp (jpeg_stamp.h), where there is one, that is right. */
#ifndef RINGFEED_JPEG_RESTARTS_H
#define RINGFEED_JPEG_RESTARTS_H

#include "jpeg_frame.h"

/* In pixels. */
struct jpeg_window {
    int64_t top, left, height, width;
};

enum restarts_outcome {
    HAS_RESTARTS,
    NO_RESTARTS,    /* decode the whole file */
    NEEDS_ALL,      /* of use, but a window needs all segments: decode the whole file */
    RESTARTS_MEMORY /* none to work in */
};

struct jpeg_restarts {
    struct jpeg_frame frame;
    uint32_t interval;      /* MCUs in a segment */
    uint32_t rows, columns; /* of segments */
    uint32_t segment_height, segment_width; /* in pixels; those at the ends may be smaller */
    bool is_stamped;
    size_t scan; /* where its coded pixels begin */
    size_t stamp; /* where its stamp begins, if it has one */
};

/* A copy of what stands before the coded pixels, as far as it bears on them. */
struct kept_header {
    uint8_t *to; /* NULL for none; at least as many bytes as the file has */
    size_t num_kept;
    size_t size_at; /* where in it the frame's height and width are */
};

/* Find out by its header whether a file is of use, and how it is cut. */
bool read_restarts(const uint8_t *bytes, size_t size, struct jpeg_restarts *restarts,
                   struct kept_header *kept);

/* Check all else of a file whose header is read. */
enum restarts_outcome check_restarts(const uint8_t *bytes, size_t size,
                                     const struct jpeg_restarts *restarts);

/* Make a small file of the segments that a window needs, in at least `size` bytes; store what its
 * pixels cover of the image, and its size in bytes. Window and image must fit each other. */
enum restarts_outcome splice_window(const uint8_t *bytes, size_t size,
                                    const struct jpeg_window *window, uint8_t *to,
                                    struct jpeg_window *covered, size_t *num_bytes);

#endif
