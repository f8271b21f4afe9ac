#include "jpeg_codes.h"

enum { RESERVED = NUM_SYMBOLS, NUM_LEAVES = NUM_SYMBOLS + 1, NUM_NODES = 2 * NUM_LEAVES };

struct leaf {
    uint64_t count;
    uint16_t symbol;
};

/* Sort by count, the rarest first; of equals the later symbol. */
static void sort_leaves(struct leaf *leaves, uint32_t num)
{
    for (uint32_t i = 1; i < num; i++) {
        const struct leaf leaf = leaves[i];
        uint32_t at = i;
        for (; at > 0 && (leaves[at - 1].count > leaf.count ||
                          (leaves[at - 1].count == leaf.count &&
                           leaves[at - 1].symbol < leaf.symbol));
             at--)
            leaves[at] = leaves[at - 1];
        leaves[at] = leaf;
    }
}

/* Find the length of the code of each of at least two leaves, sorted; return the longest. */
static uint32_t find_lengths(const struct leaf *leaves, uint32_t num, uint8_t *lengths)
{
    /* Nodes are made in the order of their counts, so that the two rarest stand at the head of
     * either queue: that of the leaves and that of the nodes. */
    uint64_t counts[NUM_NODES];
    uint32_t parents[NUM_NODES];
    for (uint32_t i = 0; i < num; i++)
        counts[i] = leaves[i].count;
    uint32_t leaf = 0, node = num, end = num;
    for (; end < 2 * num - 1; end++) {
        counts[end] = 0;
        for (int i = 0; i < 2; i++) {
            const bool takes_leaf =
                leaf < num && (node == end || counts[leaf] <= counts[node]);
            const uint32_t taken = takes_leaf ? leaf++ : node++;
            counts[end] += counts[taken];
            parents[taken] = end;
        }
    }
    uint8_t depths[NUM_NODES];
    uint32_t longest = 0;
    depths[end - 1] = 0;
    for (uint32_t i = end - 1; i-- > 0;) {
        depths[i] = (uint8_t)(depths[parents[i]] + 1);
        if (i < num) {
            lengths[leaves[i].symbol] = depths[i];
            longest = depths[i] > longest ? depths[i] : longest;
        }
    }
    return longest;
}

void find_codes(struct codes *codes)
{
    /* A symbol that never occurs takes the code of all ones, which JPEG reserves: with a count of
     * 0 it is the first to be joined, and so has one of the longest codes. */
    struct leaf leaves[NUM_LEAVES];
    uint8_t lengths[NUM_LEAVES] = {0};
    leaves[0] = (struct leaf){0, RESERVED};
    uint32_t num = 1;
    for (uint32_t i = 0; i < NUM_SYMBOLS; i++) {
        if (codes->counts[i] > 0)
            leaves[num++] = (struct leaf){codes->counts[i], (uint16_t)i};
    }
    memset(codes->lengths, 0, sizeof codes->lengths);
    if (num == 1)
        return;
    sort_leaves(leaves, num);
    /* Where codes are too long, rare symbols count for more than they are: 257 equal ones have
     * codes of 8 and 9 bits. */
    while (find_lengths(leaves, num, lengths) > MAX_CODE_BITS) {
        for (uint32_t i = 1; i < num; i++)
            leaves[i].count = (leaves[i].count + 1) / 2;
    }
    memcpy(codes->lengths, lengths, NUM_SYMBOLS);
    uint32_t code = 0;
    for (uint32_t length = 1; length <= MAX_CODE_BITS; length++, code <<= 1) {
        for (uint32_t i = 0; i < NUM_SYMBOLS; i++) {
            if (lengths[i] == length)
                codes->codes[i] = (uint16_t)code++;
        }
    }
}

size_t write_codes(const struct codes *codes, uint8_t *to)
{
    size_t num = MAX_CODE_BITS;
    for (uint32_t length = 1; length <= MAX_CODE_BITS; length++) {
        const size_t before = num;
        for (uint32_t i = 0; i < NUM_SYMBOLS; i++) {
            if (codes->lengths[i] == length)
                to[num++] = (uint8_t)i;
        }
        to[length - 1] = (uint8_t)(num - before);
    }
    return num;
}
