/* Finding records inside the mapping of an LMDB file, and copying spans of it together.
 *
 * The pages are those of prefetch/_pages.py: a header of 16 bytes, then the offset of each node in
 * key order; a node is its size, flags and key length in 8 bytes, the key, and the value or the
 * number of the page that a long value begins at. The file is hostile input, and a writer may be at
 * it: every offset is compared with what it must lie in, and each is read once. */
#include "spans.h"

enum {
    HEADER_BYTES = 16,
    NODE_BYTES = 8,
    LEAF = 0x02,
    OVERFLOW_PAGES = 0x04,
    KINDS = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40,
    LONG_VALUE = 0x01,
    NODE_FLAGS = 0x01 | 0x02 | 0x04
};

static uint16_t load16(const uint8_t *at)
{
    return (uint16_t)(at[0] | at[1] << 8);
}

static uint32_t load32(const uint8_t *at)
{
    return load16(at) | (uint32_t)load16(at + 2) << 16;
}

static uint64_t load64(const uint8_t *at)
{
    return load32(at) | (uint64_t)load32(at + 4) << 32;
}

/* The page of a number if it lies inside and says that it is that one, of a kind; else NULL. */
static const uint8_t *find_page(const struct mapping *mapping, uint64_t number, uint16_t kind)
{
    if (number >= mapping->size / mapping->page_bytes)
        return NULL;
    const uint8_t *page = mapping->at + number * mapping->page_bytes;
    return load64(page) == number && (load16(page + 10) & KINDS) == kind ? page : NULL;
}

bool find_record(const struct mapping *mapping, int64_t page_number, int64_t slot,
                 struct span *key, struct span *value)
{
    const size_t page_bytes = mapping->page_bytes;
    const uint8_t *page = find_page(mapping, (uint64_t)page_number, LEAF);
    if (page == NULL || slot < 0 || slot >= (int64_t)(page_bytes / 2))
        return false;
    const size_t lower = load16(page + 12);
    const size_t place = HEADER_BYTES + 2 * (size_t)slot;
    if (lower > page_bytes || place + 2 > lower)
        return false;
    const size_t node = load16(page + place);
    if (node < lower || node > page_bytes - NODE_BYTES)
        return false;
    const size_t value_size = load32(page + node);
    const unsigned flags = load16(page + node + 4);
    const size_t key_size = load16(page + node + 6);
    const size_t room = page_bytes - node - NODE_BYTES;
    if (key_size > room)
        return false;
    const size_t begin = (size_t)(page - mapping->at) + node + NODE_BYTES;
    *key = (struct span){begin, key_size};
    if ((flags & NODE_FLAGS) == 0) {
        *value = (struct span){begin + key_size, value_size};
        return value_size <= room - key_size;
    }
    if ((flags & NODE_FLAGS) != LONG_VALUE || room - key_size < 8)
        return false;
    const uint8_t *first = find_page(mapping, load64(page + node + NODE_BYTES + key_size),
                                     OVERFLOW_PAGES);
    if (first == NULL)
        return false;
    const size_t offset = (size_t)(first - mapping->at) + HEADER_BYTES;
    const uint64_t own_bytes = (uint64_t)load32(first + 12) * page_bytes;
    *value = (struct span){offset, value_size};
    return value_size <= mapping->size - offset && own_bytes >= HEADER_BYTES &&
           value_size <= own_bytes - HEADER_BYTES;
}

bool is_inside(const struct mapping *mapping, int64_t begin, int64_t size)
{
    return begin >= 0 && size >= 0 && (uint64_t)begin <= mapping->size &&
           (uint64_t)size <= mapping->size - (uint64_t)begin;
}
