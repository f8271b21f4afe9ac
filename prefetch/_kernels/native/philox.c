/* Philox4x32-10 of Salmon, Moraes, Dror and Shaw (SC11), as prefetch/_plan/philox.py has it. */
#include "philox.h"

#include <string.h>

enum { ROUNDS = 10 };

static void encrypt(uint32_t first_key, uint32_t second_key, uint32_t counter[4])
{
    for (int round = 0; round < ROUNDS; round++) {
        const uint64_t first = (uint64_t)0xD2511F53u * counter[0];
        const uint64_t second = (uint64_t)0xCD9E8D57u * counter[2];
        counter[0] = (uint32_t)(second >> 32) ^ counter[1] ^ first_key;
        counter[1] = (uint32_t)second;
        counter[2] = (uint32_t)(first >> 32) ^ counter[3] ^ second_key;
        counter[3] = (uint32_t)first;
        first_key += 0x9E3779B9u;
        second_key += 0xBB67AE85u;
    }
}

void draw_words(uint32_t key0, uint32_t key1, const uint8_t *records, size_t num,
                const uint8_t *blocks, size_t num_blocks, uint8_t *words)
{
    for (size_t i = 0; i < num; i++) {
        uint64_t record;
        memcpy(&record, records + 8 * i, 8);
        uint32_t first[4] = {(uint32_t)record, (uint32_t)(record >> 32), 0, 0};
        encrypt(key0, key1, first);
        memcpy(words, first, 12);
        words += 12;
        for (size_t j = 0; j < num_blocks; j++) {
            uint64_t block;
            memcpy(&block, blocks + 8 * j, 8);
            uint32_t more[4] = {(uint32_t)record, (uint32_t)(record >> 32), (uint32_t)block, 0};
            encrypt(key0, key1, more);
            memcpy(words, more, 16);
            words += 16;
        }
    }
}
