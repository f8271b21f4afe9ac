/* Records inside the mapping of an LMDB file. */
#ifndef RINGFEED_SPANS_H
#define RINGFEED_SPANS_H

#include "kernels.h"

/* The bytes of a database's file, whole pages from the first on. */
struct mapping {
    const uint8_t *at;
    size_t size;
    size_t page_bytes;
};

/* Some bytes of a mapping. */
struct span {
    size_t begin, size;
};

/* Find the key and the value of a leaf page's record; false where the pages contradict that. */
bool find_record(const struct mapping *mapping, int64_t page_number, int64_t slot,
                 struct span *key, struct span *value);

/* Whether some bytes lie inside of a mapping. */
bool is_inside(const struct mapping *mapping, int64_t begin, int64_t size);

#endif
