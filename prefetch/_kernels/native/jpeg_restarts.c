#include "jpeg_restarts.h"

#include <stdlib.h>

#include "jpeg_stamp.h"

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* Copy part of the file behind what is kept. */
static void keep(struct kept_header *kept, const uint8_t *from, size_t size)
{
    if (kept->to != NULL)
        memcpy(kept->to + kept->num_kept, from, size);
    kept->num_kept += size;
}

/* Return whether a segment before the scan has a say in what the pixels are. */
static bool bears_on_pixels(uint8_t marker)
{
    return marker == APP0_MARKER || marker == APP14_MARKER ||
           (marker != COM_MARKER && (marker < APP0_MARKER || marker > APP15_MARKER));
}

/* Read the header of a scan of all components. */
static bool read_scan(const uint8_t *bytes, const struct jpeg_segment *segment,
                      const struct jpeg_frame *frame)
{
    const uint32_t num = frame->num_components;
    const uint8_t *from = bytes + segment->begin + 4;
    if (segment->end - segment->begin != 8 + 2 * (size_t)num || from[0] != num)
        return false;
    for (uint32_t i = 0; i < num; i++) {
        if (from[1 + 2 * i] != frame->components[i].id)
            return false;
    }
    const uint8_t *spectrum = from + 1 + 2 * num;
    return spectrum[0] == 0 && spectrum[1] == BLOCK_SIZE - 1 && spectrum[2] == 0;
}

static bool cut_in_segments(struct jpeg_restarts *restarts)
{
    const struct jpeg_frame *frame = &restarts->frame;
    const uint32_t interval = restarts->interval;
    if (interval == 0)
        return false;
    restarts->segment_height = frame->mcu_height;
    restarts->segment_width = frame->mcu_width * interval;
    restarts->rows = frame->mcu_rows;
    restarts->columns = frame->mcu_columns / interval;
    if (frame->mcu_columns % interval == 0)
        return true;
    const uint32_t num_rows = interval / frame->mcu_columns;
    restarts->segment_height = frame->mcu_height * num_rows;
    restarts->segment_width = frame->mcu_width * frame->mcu_columns;
    restarts->columns = 1;
    if (interval % frame->mcu_columns != 0)
        return false;
    restarts->rows = divide_up(frame->mcu_rows, num_rows);
    return true;
}

bool read_restarts(const uint8_t *bytes, size_t size, struct jpeg_restarts *restarts,
                   struct kept_header *kept)
{
    if (size < 4 || size > UINT32_MAX || bytes[0] != 0xFF || bytes[1] != SOI_MARKER)
        return false;
    bool has_frame = false;
    size_t stamp = 0; /* where one ends that begins at restarts->stamp */
    *restarts = (struct jpeg_restarts){0};
    keep(kept, bytes, 2);
    struct jpeg_segment segment = {0, 0, 2};
    while (find_segment(bytes, size, segment.end, &segment)) {
        const size_t begin = segment.begin, length = segment.end - begin;
        switch (segment.marker) {
        case SOF0_MARKER:
        case SOF1_MARKER:
            if (has_frame || !read_frame(bytes, &segment, &restarts->frame))
                return false;
            has_frame = true;
            kept->size_at = kept->num_kept + 5;
            break;
        case DRI_MARKER:
            if (length != 6)
                return false;
            restarts->interval = load_big16(bytes + begin + 4);
            break;
        case COM_MARKER:
            if (is_stamp(bytes, &segment)) {
                restarts->stamp = begin;
                stamp = segment.end;
            }
            break;
        case SOS_MARKER:
            restarts->is_stamped = stamp != 0 && stamp == begin;
            restarts->scan = segment.end;
            keep(kept, bytes + begin, length);
            return has_frame && read_scan(bytes, &segment, &restarts->frame) &&
                   cut_in_segments(restarts);
        case DHT_MARKER:
        case DQT_MARKER:
            break;
        default:
            if (segment.marker < APP0_MARKER || segment.marker > APP15_MARKER)
                return false;
        }
        if (bears_on_pixels(segment.marker))
            keep(kept, bytes + begin, length);
    }
    return false;
}

/* Return where the next 0xFF stands that is not followed by 0x00, or size - 1. */
static size_t find_marker(const uint8_t *bytes, size_t size, size_t at)
{
#if defined(__SSE2__)
    const __m128i ones = _mm_set1_epi8((char)0xFF), zeros = _mm_setzero_si128();
    for (; size - at > 16; at += 16) {
        const __m128i here = _mm_loadu_si128((const __m128i *)(bytes + at));
        const __m128i next = _mm_loadu_si128((const __m128i *)(bytes + at + 1));
        const __m128i found =
            _mm_andnot_si128(_mm_cmpeq_epi8(next, zeros), _mm_cmpeq_epi8(here, ones));
        if (_mm_movemask_epi8(found) != 0)
            break;
    }
#endif
    for (; at + 1 < size; at++) {
        if (bytes[at] == 0xFF && bytes[at + 1] != 0)
            return at;
    }
    return at;
}

/* Store where segments begin, and where the last ends, each less the marker before the next. */
static bool find_segments(const uint8_t *bytes, size_t size, const struct jpeg_restarts *restarts,
                          uint32_t *begins)
{
    const size_t num = (size_t)restarts->rows * restarts->columns;
    size_t at = restarts->scan;
    for (size_t i = 0;; i++) {
        begins[i] = (uint32_t)at;
        at = find_marker(bytes, size, at);
        if (at + 2 > size)
            return false;
        const uint8_t marker = bytes[at + 1];
        at += 2;
        if (i + 1 == num) {
            begins[num] = (uint32_t)at;
            return marker == EOI_MARKER && at == size;
        }
        if (marker != RST0_MARKER + i % NUM_RESTARTS)
            return false;
    }
}

/* Find all segments of a file whose header is read; num + 1 places, to be freed. */
static enum restarts_outcome locate_segments(const uint8_t *bytes, size_t size,
                                             const struct jpeg_restarts *restarts,
                                             uint32_t **begins)
{
    const size_t num = (size_t)restarts->rows * restarts->columns;
    if (num > size / 2) /* their markers alone would take more */
        return NO_RESTARTS;
    if (restarts->is_stamped && !check_stamp(bytes, size, restarts->stamp))
        return NO_RESTARTS;
    *begins = malloc((num + 1) * sizeof **begins);
    if (*begins == NULL)
        return RESTARTS_MEMORY;
    if (find_segments(bytes, size, restarts, *begins))
        return HAS_RESTARTS;
    free(*begins);
    return NO_RESTARTS;
}

enum restarts_outcome check_restarts(const uint8_t *bytes, size_t size,
                                     const struct jpeg_restarts *restarts)
{
    uint32_t *begins;
    const enum restarts_outcome outcome = locate_segments(bytes, size, restarts, &begins);
    if (outcome == HAS_RESTARTS)
        free(begins);
    return outcome;
}

/* Numbers of segments, in one direction. */
struct stretch {
    uint32_t begin, end;
};

/* Find the segments that cover part of one side of the image, and what its upsampling looks at. */
static struct stretch cover(int64_t begin, int64_t length, bool has_margin, uint32_t segment,
                            uint32_t side)
{
    /* Of chroma at half the resolution each pixel is made of its own sample and of that of the
     * pixel beside it; of chroma at a quarter, of its own alone. */
    const int64_t margin = has_margin ? 1 : 0;
    const int64_t first = begin > margin ? begin - margin : 0;
    const int64_t last = begin + length + margin < side ? begin + length + margin : side;
    struct stretch found = {(uint32_t)(first / segment), divide_up((uint32_t)last, segment)};
    /* An image narrower than three samples of chroma is upsampled another way: no narrow image is
     * made of the end of a wide one. */
    if (has_margin && found.begin > 0 && side - found.begin * segment < 2 * BLOCK_SIDE)
        found.begin--;
    return found;
}

static void store_segments(const uint8_t *bytes, const uint32_t *begins, uint32_t columns,
                           const struct stretch *down, const struct stretch *across, uint8_t *to,
                           size_t *num_bytes)
{
    size_t num = *num_bytes, number = 0;
    for (uint32_t row = down->begin; row < down->end; row++) {
        /* Those of a row lie one behind the other. */
        const uint32_t *first = begins + (size_t)row * columns + across->begin;
        const uint32_t *end = begins + (size_t)row * columns + across->end;
        memcpy(to + num, bytes + *first, *end - *first);
        for (const uint32_t *next = first + 1; next <= end; next++)
            to[num + (*next - *first) - 1] = (uint8_t)(RST0_MARKER + number++ % NUM_RESTARTS);
        num += *end - *first;
    }
    to[num - 1] = EOI_MARKER;
    *num_bytes = num;
}

enum restarts_outcome splice_window(const uint8_t *bytes, size_t size,
                                    const struct jpeg_window *window, uint8_t *to,
                                    struct jpeg_window *covered, size_t *num_bytes)
{
    struct jpeg_restarts restarts;
    struct kept_header kept = {.to = to};
    if (!read_restarts(bytes, size, &restarts, &kept))
        return NO_RESTARTS;
    const struct jpeg_frame *frame = &restarts.frame;
    if (window->top < 0 || window->left < 0 || window->height < 1 || window->width < 1 ||
        window->height > frame->height || window->top > frame->height - window->height ||
        window->width > frame->width || window->left > frame->width - window->width)
        return NO_RESTARTS;
    const struct stretch down = cover(window->top, window->height, frame->has_margin_above,
                                      restarts.segment_height, frame->height);
    const struct stretch across = cover(window->left, window->width, frame->has_margin_beside,
                                        restarts.segment_width, frame->width);
    if (down.end - down.begin == restarts.rows && across.end - across.begin == restarts.columns)
        return NEEDS_ALL;
    uint32_t *begins;
    const enum restarts_outcome outcome = locate_segments(bytes, size, &restarts, &begins);
    if (outcome != HAS_RESTARTS)
        return outcome;
    covered->top = (int64_t)down.begin * restarts.segment_height;
    covered->left = (int64_t)across.begin * restarts.segment_width;
    const int64_t bottom = (int64_t)down.end * restarts.segment_height;
    const int64_t right = (int64_t)across.end * restarts.segment_width;
    covered->height = (bottom < frame->height ? bottom : frame->height) - covered->top;
    covered->width = (right < frame->width ? right : frame->width) - covered->left;
    store_big16(to + kept.size_at, (uint32_t)covered->height);
    store_big16(to + kept.size_at + 2, (uint32_t)covered->width);
    *num_bytes = kept.num_kept;
    store_segments(bytes, begins, restarts.columns, &down, &across, to, num_bytes);
    free(begins);
    return HAS_RESTARTS;
}
