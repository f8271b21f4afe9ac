#include "jpeg_frame.h"

enum { MAX_FACTOR = 4, MAX_BLOCKS = 10 /* in an MCU: T.81, B.2.3 */ };

bool find_segment(const uint8_t *bytes, size_t size, size_t at, struct jpeg_segment *segment)
{
    if (at > size || size - at < 4 || bytes[at] != 0xFF)
        return false;
    const uint8_t marker = bytes[at + 1];
    if (marker < SOF0_MARKER || marker == 0xFF || (marker >= RST0_MARKER && marker <= EOI_MARKER))
        return false; /* these have no length */
    const size_t length = load_big16(bytes + at + 2);
    if (length < 2 || length > size - at - 2)
        return false;
    *segment = (struct jpeg_segment){marker, at, at + 2 + length};
    return true;
}

static bool read_factors(const uint8_t *bytes, struct jpeg_frame *frame)
{
    uint32_t num_blocks = 0, most_across = 1, most_down = 1;
    for (uint32_t i = 0; i < frame->num_components; i++) {
        struct jpeg_component *component = &frame->components[i];
        const uint8_t *from = bytes + 3 * i;
        component->id = from[0];
        component->across = from[1] >> 4;
        component->down = from[1] & 15;
        if (component->across < 1 || component->across > MAX_FACTOR || component->down < 1 ||
            component->down > MAX_FACTOR)
            return false;
        for (uint32_t j = 0; j < i; j++) {
            if (frame->components[j].id == component->id)
                return false;
        }
        if (frame->num_components == 1)
            component->across = component->down = 1;
        num_blocks += component->across * component->down;
        most_across = component->across > most_across ? component->across : most_across;
        most_down = component->down > most_down ? component->down : most_down;
    }
    frame->mcu_height = BLOCK_SIDE * most_down;
    frame->mcu_width = BLOCK_SIDE * most_across;
    frame->has_margin_above = most_down > 1;
    frame->has_margin_beside = most_across > 1;
    return num_blocks <= MAX_BLOCKS;
}

bool read_frame(const uint8_t *bytes, const struct jpeg_segment *segment,
                struct jpeg_frame *frame)
{
    const uint8_t *from = bytes + segment->begin + 4;
    const size_t size = segment->end - segment->begin - 4;
    if (size < 6 || from[0] != 8 || (from[5] != 1 && from[5] != JPEG_COMPONENTS) ||
        size != 6 + 3 * (size_t)from[5])
        return false;
    *frame = (struct jpeg_frame){
        .height = load_big16(from + 1),
        .width = load_big16(from + 3),
        .num_components = size == 9 ? 1 : JPEG_COMPONENTS,
    };
    if (frame->height == 0 || frame->width == 0 || !read_factors(from + 6, frame))
        return false;
    frame->mcu_rows = divide_up(frame->height, frame->mcu_height);
    frame->mcu_columns = divide_up(frame->width, frame->mcu_width);
    for (uint32_t i = 0; i < frame->num_components; i++) {
        struct jpeg_component *component = &frame->components[i];
        component->num_rows = divide_up(frame->height * component->down, frame->mcu_height);
        component->num_columns = divide_up(frame->width * component->across, frame->mcu_width);
    }
    return true;
}
