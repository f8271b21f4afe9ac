/* The stamp of a JPEG file that has been given restart markers: a comment segment directly before
 * the start of scan, with checksums of all other bytes. A part of the file is decoded only where
 * they are right, so that damage in what is not decoded is noticed too.
 *
 *     FF FE, length 2 + 16 + 16, "ringfeed crc32c\0", four big-endian CRC-32C
 *
 * What follows the segment is cut in four stretches of size / 4 bytes, the last of which takes the
 * rest; each has a checksum of its own, so that they can be formed side by side (a quarter of the
 * time of one). The first goes on from the bytes before the segment. */
#ifndef RINGFEED_JPEG_STAMP_H
#define RINGFEED_JPEG_STAMP_H

#include "jpeg_frame.h"

enum { STAMP_SIZE = 4 + 16 + 16 };

/* Return whether a segment of a file is a stamp, right or wrong. */
bool is_stamp(const uint8_t *bytes, const struct jpeg_segment *segment);

/* Return whether the stamp that begins at a place is right. */
bool check_stamp(const uint8_t *bytes, size_t size, size_t at);

/* Write the stamp into STAMP_SIZE bytes of a file that are left for it. */
void write_stamp(uint8_t *bytes, size_t size, size_t at);

/* Choose how checksums are formed on this chip; call once, before all else. */
void choose_checksums(void);

#endif
