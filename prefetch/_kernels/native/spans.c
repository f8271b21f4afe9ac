/* Finding records inside the mapping of an LMDB file, and copying spans of it together.
 *
 * The pages are those of prefetch/_source/lmdb/pages.py: a header of 16 bytes, then the offset of
 * each node in key order; a node is its size, flags and key length in 8 bytes, the key, and the
 * value or the number of the page that a long value begins at. The file is hostile input, and a
 * writer may be at it: every offset is compared with what it must lie in, and each is read once. */
#include "spans.h"

enum {
    FIRST_PAGE = 2, /* after the two metas */
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
    const uint8_t *page = mapping->bytes + number * mapping->page_bytes;
    return load64(page) == number && (load16(page + 10) & KINDS) == kind ? page : NULL;
}

/* A record's entry in its leaf page. */
struct node {
    struct span key, value; /* of a long value only the size is known */
    bool is_long;
    uint64_t long_page; /* the page that a long value begins at, unchecked */
};

static bool find_node(const struct mapping *mapping, int64_t page_number, int64_t slot,
                      struct node *found)
{
    const size_t page_bytes = mapping->page_bytes;
    const uint8_t *page = find_page(mapping, (uint64_t)page_number, LEAF);
    if (page == NULL || slot < 0 || slot >= (int64_t)(page_bytes / 2))
        return false;
    const size_t lower = load16(page + 12), upper = load16(page + 14);
    const size_t place = HEADER_BYTES + 2 * (size_t)slot;
    if (lower % 2 != 0 || lower > upper || upper > page_bytes || place + 2 > lower)
        return false;
    const size_t node = load16(page + place);
    if (node < upper || node > page_bytes - NODE_BYTES)
        return false;
    const size_t value_size = load32(page + node);
    const unsigned flags = load16(page + node + 4);
    const size_t key_size = load16(page + node + 6);
    const size_t room = page_bytes - node - NODE_BYTES;
    if (key_size > room)
        return false;
    const size_t begin = (size_t)(page - mapping->bytes) + node + NODE_BYTES;
    found->key = (struct span){begin, key_size};
    found->value = (struct span){begin + key_size, value_size};
    found->is_long = (flags & NODE_FLAGS) == LONG_VALUE;
    if ((flags & NODE_FLAGS) == 0)
        return value_size <= room - key_size;
    if (!found->is_long || room - key_size < 8)
        return false;
    found->long_page = load64(page + node + NODE_BYTES + key_size);
    return true;
}

bool find_record(const struct mapping *mapping, int64_t page_number, int64_t slot,
                 struct span *key, struct span *value)
{
    struct node node;
    if (!find_node(mapping, page_number, slot, &node))
        return false;
    *key = node.key;
    *value = node.value;
    if (!node.is_long)
        return true;
    const uint64_t number = node.long_page;
    const uint8_t *first = find_page(mapping, number, OVERFLOW_PAGES);
    if (first == NULL || number < FIRST_PAGE)
        return false;
    const size_t page_bytes = mapping->page_bytes;
    const uint64_t num_pages = load32(first + 12);
    value->begin = (size_t)(first - mapping->bytes) + HEADER_BYTES;
    return num_pages > 0 && num_pages <= mapping->size / page_bytes - number &&
           value->size <= num_pages * page_bytes - HEADER_BYTES;
}

struct span find_value_ahead(const struct mapping *mapping, int64_t page_number, int64_t slot)
{
    struct node node;
    if (!find_node(mapping, page_number, slot, &node))
        return (struct span){0, 0};
    const size_t num_pages = mapping->size / mapping->page_bytes;
    if (!node.is_long)
        return node.value;
    if (node.long_page < FIRST_PAGE || node.long_page >= num_pages)
        return (struct span){0, 0};
    const size_t begin = (size_t)node.long_page * mapping->page_bytes;
    const size_t left = mapping->size - begin, size = node.value.size + HEADER_BYTES;
    return (struct span){begin, size < left ? size : left};
}

void store_spans(uint8_t *spans, size_t num, size_t i, const struct span *key,
                 const struct span *value)
{
    const int64_t found[4] = {(int64_t)key->begin, (int64_t)key->size, (int64_t)value->begin,
                              (int64_t)value->size};
    for (size_t row = 0; row < 4; row++)
        memcpy(spans + 8 * (row * num + i), &found[row], 8);
}

static uint64_t number_at(const struct numbers *numbers, size_t i)
{
    const uint8_t *at = numbers->bytes + i * numbers->size;
    uint16_t two;
    uint32_t four;
    uint64_t eight;
    switch (numbers->size) {
    case 1:
        return *at;
    case 2:
        memcpy(&two, at, sizeof two);
        return two;
    case 4:
        memcpy(&four, at, sizeof four);
        return four;
    default:
        memcpy(&eight, at, sizeof eight);
        return eight;
    }
}

/* Whether a record, if there is one of that number, is in a leaf. */
static bool is_in_leaf(const struct index *index, uint64_t record, size_t leaf)
{
    return leaf < index->firsts.num && number_at(&index->firsts, leaf) <= record &&
           (leaf + 1 == index->firsts.num || record < number_at(&index->firsts, leaf + 1));
}

/* The last leaf with no more records before it; `last` is the one found before, for this one or the
 * next is it where records are read in order. */
static size_t leaf_of(const struct index *index, uint64_t record, size_t last)
{
    if (is_in_leaf(index, record, last))
        return last;
    if (is_in_leaf(index, record, last + 1))
        return last + 1;
    size_t least = 0, end = index->firsts.num;
    while (end - least > 1) {
        const size_t middle = least + (end - least) / 2;
        if (number_at(&index->firsts, middle) <= record)
            least = middle;
        else
            end = middle;
    }
    return least;
}

/* Records whose pages are prefetched at once: a miss takes as long as copying many records. */
enum { BLOCK = 32 };

struct place {
    uint64_t page;
    int64_t slot;
};

/* Prefetch the head of a record's page, and the entry that says where the record is. */
static void prefetch_page(const struct mapping *mapping, const struct place *place)
{
    const uintptr_t page = (uintptr_t)mapping->bytes + place->page * mapping->page_bytes;
    prefetch_bytes(page, 1);
    prefetch_bytes(page + HEADER_BYTES + 2 * (uint64_t)place->slot, 1);
}

/* Prefetch a record's node, once its page is there; find_record() checks it afterwards. */
static void prefetch_node(const struct mapping *mapping, const struct place *place)
{
    if (place->page >= mapping->size / mapping->page_bytes || place->slot < 0 ||
        (uint64_t)place->slot >= mapping->page_bytes / 2 - HEADER_BYTES)
        return;
    const uint8_t *page = mapping->bytes + place->page * mapping->page_bytes;
    prefetch_bytes((uintptr_t)page + load16(page + HEADER_BYTES + 2 * place->slot), 64);
}

size_t find_records(const struct mapping *mapping, const struct index *index,
                    const uint8_t *records, size_t num, uint8_t *spans)
{
    struct place places[BLOCK];
    size_t leaf = 0;
    if (index->firsts.num == 0)
        return 0;
    for (size_t begin = 0; begin < num; begin += BLOCK) {
        const size_t size = num - begin < BLOCK ? num - begin : BLOCK;
        for (size_t i = 0; i < size; i++) {
            int64_t record;
            memcpy(&record, records + 8 * (begin + i), 8);
            leaf = leaf_of(index, (uint64_t)record, leaf);
            places[i].page = number_at(&index->leaves, leaf);
            places[i].slot = (int64_t)((uint64_t)record - number_at(&index->firsts, leaf));
            prefetch_page(mapping, &places[i]);
        }
        for (size_t i = 0; i < size; i++)
            prefetch_node(mapping, &places[i]);
        for (size_t i = 0; i < size; i++) {
            struct span key, value;
            if (!find_record(mapping, (int64_t)places[i].page, places[i].slot, &key, &value))
                return begin + i;
            store_spans(spans, num, begin + i, &key, &value);
        }
    }
    return num;
}

bool is_inside(const struct mapping *mapping, int64_t begin, int64_t size)
{
    /* What is negative is larger than any size. */
    return (uint64_t)begin <= mapping->size && (uint64_t)size <= mapping->size - (uint64_t)begin;
}
