/* Records inside the mapping of an LMDB file. */
#ifndef RINGFEED_SPANS_H
#define RINGFEED_SPANS_H

#include "kernels.h"

/* The bytes of a database's file, whole pages from the first on. */
struct mapping {
    const uint8_t *bytes;
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

/* Find where the value of a leaf page's record lies, by that page alone: of a long value, which has
 * pages of its own, those are not touched. Nothing (size 0) where the leaf page is damaged. */
struct span find_value_ahead(const struct mapping *mapping, int64_t page_number, int64_t slot);

/* Keep where the i-th of num records is: in four rows of int64, the begin and size of its key and
 * the begin and size of its value. */
void store_spans(uint8_t *spans, size_t num, size_t i, const struct span *key,
                 const struct span *value);

/* Unsigned integers of 1, 2, 4 or 8 bytes, in the machine's byte order. */
struct numbers {
    const uint8_t *bytes;
    size_t num, size; /* how many, and of how many bytes each */
};

/* The packed index of prefetch/_source/lmdb/index.py: the leaf pages in key order, and how many
 * records come before each, which begins with 0 and rises. As many of the one as of the other. */
struct index {
    struct numbers leaves, firsts;
};

/* Find records by their places in key order, int64, and store their spans. Return the position of
 * the first that cannot be found, or num. */
size_t find_records(const struct mapping *mapping, const struct index *index,
                    const uint8_t *records, size_t num, uint8_t *spans);

/* Whether some bytes lie inside of a mapping. */
bool is_inside(const struct mapping *mapping, int64_t begin, int64_t size);

#endif
