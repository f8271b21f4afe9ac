/* A digest of bytes, to tell contents apart. */
#ifndef RINGFEED_DIGEST_H
#define RINGFEED_DIGEST_H

#include <stddef.h>
#include <stdint.h>

/* Two words, of which either tells two contents apart but for one case in 2^64. It protects against
 * damage and mistakes, and not against whoever makes two contents of one digest on purpose. The
 * same on every machine; prefetch/_kernels/digest.py is its twin and its description. */
void digest_bytes(const uint8_t *bytes, size_t num, uint64_t digest[2]);

#endif
