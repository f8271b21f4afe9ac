#include "jpeg_stamp.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(RINGFEED_BASELINE)
#define HAS_CRC32_INSTRUCTION 1
#include <nmmintrin.h>
#else
#define HAS_CRC32_INSTRUCTION 0
#endif

enum { NUM_STRETCHES = 4, NAME_SIZE = 16 };

static const uint8_t name[NAME_SIZE] = "ringfeed crc32c";

/* Of a byte behind 0 to 7 others, for the polynomial of Castagnoli, reflected. */
static uint32_t tables[8][256];

static void fill_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) ? 0x82F63B78u : 0);
        tables[0][byte] = crc;
    }
    for (uint32_t byte = 0; byte < 256; byte++) {
        for (int i = 1; i < 8; i++)
            tables[i][byte] = tables[i - 1][byte] >> 8 ^ tables[0][tables[i - 1][byte] & 255];
    }
}

static uint32_t add_by_table(uint32_t crc, const uint8_t *from, size_t size)
{
    for (; size >= 8; from += 8, size -= 8) {
        crc ^= (uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
               (uint32_t)from[3] << 24;
        crc = tables[7][crc & 255] ^ tables[6][crc >> 8 & 255] ^ tables[5][crc >> 16 & 255] ^
              tables[4][crc >> 24] ^ tables[3][from[4]] ^ tables[2][from[5]] ^
              tables[1][from[6]] ^ tables[0][from[7]];
    }
    for (; size > 0; from++, size--)
        crc = crc >> 8 ^ tables[0][(crc ^ *from) & 255];
    return crc;
}

/* Go on with the checksums of stretches of one size. */
static void add_stretches_by_table(uint32_t *crcs, const uint8_t *from, size_t size)
{
    for (size_t i = 0; i < NUM_STRETCHES; i++)
        crcs[i] = add_by_table(crcs[i], from + i * size, size);
}

#if HAS_CRC32_INSTRUCTION
static inline uint64_t load64(const uint8_t *from)
{
    uint64_t value;
    memcpy(&value, from, 8);
    return value;
}

__attribute__((target("sse4.2"))) static void add_stretches_by_instruction(uint32_t *crcs,
                                                                           const uint8_t *from,
                                                                           size_t size)
{
    uint64_t first = crcs[0], second = crcs[1], third = crcs[2], fourth = crcs[3];
    size_t at = 0;
    for (; size - at >= 8; at += 8) {
        first = _mm_crc32_u64(first, load64(from + at));
        second = _mm_crc32_u64(second, load64(from + size + at));
        third = _mm_crc32_u64(third, load64(from + 2 * size + at));
        fourth = _mm_crc32_u64(fourth, load64(from + 3 * size + at));
    }
    const uint64_t sums[NUM_STRETCHES] = {first, second, third, fourth};
    for (size_t i = 0; i < NUM_STRETCHES; i++)
        crcs[i] = add_by_table((uint32_t)sums[i], from + i * size + at, size - at);
}
#endif

static void (*add_stretches)(uint32_t *, const uint8_t *, size_t) = add_stretches_by_table;

void choose_checksums(void)
{
    fill_tables();
#if HAS_CRC32_INSTRUCTION
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2"))
        add_stretches = add_stretches_by_instruction;
#endif
}

static void form_checksums(const uint8_t *bytes, size_t size, size_t at, uint8_t *to)
{
    const uint8_t *behind = bytes + at + STAMP_SIZE;
    const size_t num_behind = size - at - STAMP_SIZE, stretch = num_behind / NUM_STRETCHES;
    uint32_t crcs[NUM_STRETCHES] = {~0u, ~0u, ~0u, ~0u};
    crcs[0] = add_by_table(crcs[0], bytes, at);
    add_stretches(crcs, behind, stretch);
    const size_t rest = num_behind - NUM_STRETCHES * stretch;
    crcs[3] = add_by_table(crcs[3], behind + NUM_STRETCHES * stretch, rest);
    for (size_t i = 0; i < NUM_STRETCHES; i++) {
        store_big16(to + 4 * i, ~crcs[i] >> 16);
        store_big16(to + 4 * i + 2, ~crcs[i] & 0xFFFF);
    }
}

bool is_stamp(const uint8_t *bytes, const struct jpeg_segment *segment)
{
    return segment->marker == COM_MARKER && segment->end - segment->begin == STAMP_SIZE &&
           memcmp(bytes + segment->begin + 4, name, NAME_SIZE) == 0;
}

bool check_stamp(const uint8_t *bytes, size_t size, size_t at)
{
    uint8_t expected[4 * NUM_STRETCHES];
    form_checksums(bytes, size, at, expected);
    return memcmp(bytes + at + 4 + NAME_SIZE, expected, sizeof expected) == 0;
}

void write_stamp(uint8_t *bytes, size_t size, size_t at)
{
    uint8_t *to = bytes + at;
    store_big16(to, 0xFF00 | COM_MARKER);
    store_big16(to + 2, STAMP_SIZE - 2);
    memcpy(to + 4, name, NAME_SIZE);
    form_checksums(bytes, size, at, to + 4 + NAME_SIZE);
}
