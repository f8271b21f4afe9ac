#include "jpeg_coefficients.h"

#include <stdlib.h>

#include "jpeg_scan.h"
#include "jpeg_stamp.h"

enum { MAX_SCANS = 64 /* encoders make at most a dozen */ };

/* A file of which segments were read so far. */
struct reading {
    const uint8_t *bytes;
    size_t size;
    struct code_tables tables;
    uint32_t interval;
    bool has_frame, is_progressive;
    uint32_t num_scans;
};

/* Make room for the blocks of a frame, of a file of some size. */
static enum recoding make_room(struct jpeg_coefficients *image, size_t size)
{
    const struct jpeg_frame *frame = &image->frame;
    /* Each block's DC takes a bit at the least. */
    if ((uint64_t)frame->components[0].num_rows * frame->components[0].num_columns >
        8 * (uint64_t)size)
        return UNUSUAL_FILE;
    for (uint32_t i = 0; i < frame->num_components; i++) {
        const struct jpeg_component *component = &frame->components[i];
        image->blocks_across[i] = frame->mcu_columns * component->across;
        const size_t num_rows = (size_t)frame->mcu_rows * component->down;
        image->blocks[i] =
            calloc(num_rows * image->blocks_across[i], BLOCK_SIZE * sizeof(int16_t));
        if (image->blocks[i] == NULL)
            return NO_RECODING_MEMORY;
    }
    return RECODED;
}

static void keep_segment(const struct reading *reading, const struct jpeg_segment *segment,
                         struct jpeg_coefficients *image)
{
    const size_t length = segment->end - segment->begin;
    memcpy(image->header + image->header_size, reading->bytes + segment->begin, length);
    image->header_size += length;
}

static enum recoding take_frame(struct reading *reading, const struct jpeg_segment *segment,
                                struct jpeg_coefficients *image)
{
    if (reading->has_frame)
        return UNUSUAL_FILE;
    if (!read_frame(reading->bytes, segment, &image->frame))
        return NO_HUFFMAN_FRAME;
    reading->has_frame = true;
    reading->is_progressive = segment->marker == SOF2_MARKER;
    image->frame_at = image->header_size;
    keep_segment(reading, segment, image);
    return make_room(image, reading->size);
}

static enum recoding take_scan(struct reading *reading, struct jpeg_segment *segment,
                               struct jpeg_coefficients *image)
{
    if (!reading->has_frame || ++reading->num_scans > MAX_SCANS ||
        !read_scan_codes(reading->bytes, reading->size, segment, &reading->tables,
                         reading->interval, reading->is_progressive, image, &segment->end))
        return UNUSUAL_FILE;
    return RECODED;
}

static enum recoding take_segment(struct reading *reading, struct jpeg_segment *segment,
                                  struct jpeg_coefficients *image)
{
    switch (segment->marker) {
    case SOF0_MARKER:
    case SOF1_MARKER:
    case SOF2_MARKER:
        return take_frame(reading, segment, image);
    case DHT_MARKER:
        return read_tables(reading->bytes, segment, &reading->tables) ? RECODED : UNUSUAL_FILE;
    case DRI_MARKER:
        if (segment->end - segment->begin != 6)
            return UNUSUAL_FILE;
        reading->interval = load_big16(reading->bytes + segment->begin + 4);
        return RECODED;
    case SOS_MARKER:
        return take_scan(reading, segment, image);
    case DQT_MARKER:
        if (reading->num_scans > 0) /* some coefficients would mean another thing */
            return UNUSUAL_FILE;
        break;
    default:
        if (segment->marker <= APP0_MARKER - 1)
            return segment->marker < SOI_MARKER ? NO_HUFFMAN_FRAME : UNUSUAL_FILE;
        if (segment->marker > APP15_MARKER && segment->marker != COM_MARKER)
            return UNUSUAL_FILE;
    }
    if (!is_stamp(reading->bytes, segment))
        keep_segment(reading, segment, image);
    else if (!check_stamp(reading->bytes, reading->size, segment->begin))
        return UNUSUAL_FILE; /* a new stamp would call it sound */
    return RECODED;
}

enum recoding read_coefficients(const uint8_t *bytes, size_t size,
                                struct jpeg_coefficients *image)
{
    *image = (struct jpeg_coefficients){0};
    if (size < 4 || size > UINT32_MAX || bytes[0] != 0xFF || bytes[1] != SOI_MARKER)
        return UNUSUAL_FILE;
    struct reading *reading = calloc(1, sizeof *reading);
    image->header = malloc(size);
    enum recoding found = reading == NULL || image->header == NULL ? NO_RECODING_MEMORY : RECODED;
    if (found == RECODED) {
        reading->bytes = bytes;
        reading->size = size;
        memcpy(image->header, bytes, 2);
        image->header_size = 2;
    }
    struct jpeg_segment segment = {0, 0, 2};
    while (found == RECODED && find_segment(bytes, size, segment.end, &segment))
        found = take_segment(reading, &segment, image);
    if (found == RECODED) {
        const size_t at = segment.end;
        if (reading->num_scans == 0 || size - at < 2 || bytes[at] != 0xFF ||
            bytes[at + 1] != EOI_MARKER)
            found = UNUSUAL_FILE;
        else if (size - at > 2)
            found = BYTES_BEHIND_END;
    }
    if (found == RECODED && reading->is_progressive)
        image->header[image->frame_at + 1] = SOF0_MARKER;
    free(reading);
    return found;
}

void release_coefficients(struct jpeg_coefficients *image)
{
    for (int i = 0; i < JPEG_COMPONENTS; i++)
        free(image->blocks[i]);
    free(image->header);
    *image = (struct jpeg_coefficients){0};
}
