/* A JPEG file's marker segments and what its frame header says, read in place. The bytes are
 * hostile: every length is compared with what is left before it is used. */
#ifndef RINGFEED_JPEG_FRAME_H
#define RINGFEED_JPEG_FRAME_H

#include "kernels.h"

enum jpeg_marker {
    SOF0_MARKER = 0xC0, /* baseline */
    SOF1_MARKER = 0xC1, /* extended, sequential */
    SOF2_MARKER = 0xC2, /* progressive */
    DHT_MARKER = 0xC4,
    RST0_MARKER = 0xD0,
    SOI_MARKER = 0xD8,
    EOI_MARKER = 0xD9,
    SOS_MARKER = 0xDA,
    DQT_MARKER = 0xDB,
    DRI_MARKER = 0xDD,
    APP0_MARKER = 0xE0,
    APP14_MARKER = 0xEE,
    APP15_MARKER = 0xEF,
    COM_MARKER = 0xFE
};

enum { BLOCK_SIDE = 8, BLOCK_SIZE = 64, JPEG_COMPONENTS = 3, NUM_RESTARTS = 8 };

/* Bytes begin .. end of a file, from the marker's 0xFF to behind the segment's last byte. */
struct jpeg_segment {
    uint8_t marker;
    size_t begin, end;
};

/* Find the segment that begins exactly at a place; false where none does, or it is cut. */
bool find_segment(const uint8_t *bytes, size_t size, size_t at, struct jpeg_segment *segment);

struct jpeg_component {
    uint8_t id;
    uint32_t across, down;       /* blocks in an MCU of all components */
    uint32_t num_rows, num_columns; /* blocks that hold pixels */
};

/* The frame header of 8-bit images of one or three components. One component alone has MCUs of
 * one block, whatever sampling factors it states. */
struct jpeg_frame {
    uint32_t height, width;
    uint32_t num_components;
    struct jpeg_component components[JPEG_COMPONENTS];
    uint32_t mcu_height, mcu_width; /* in pixels */
    uint32_t mcu_rows, mcu_columns;
    bool has_margin_above, has_margin_beside; /* whether chroma is sampled coarser so */
};

/* Read a frame header; false for any other image, and where it contradicts itself. */
bool read_frame(const uint8_t *bytes, const struct jpeg_segment *segment,
                struct jpeg_frame *frame);

static inline uint32_t load_big16(const uint8_t *from)
{
    return (uint32_t)from[0] << 8 | from[1];
}

static inline void store_big16(uint8_t *to, uint32_t value)
{
    to[0] = (uint8_t)(value >> 8);
    to[1] = (uint8_t)value;
}

static inline uint32_t divide_up(uint32_t dividend, uint32_t divisor)
{
    return dividend / divisor + (dividend % divisor != 0);
}

#endif
