/* The wire format of a Datum, walked in place. The twin of prefetch/_record/wire.py, step for step:
 * the numbers of a fault depend on the step at which the bytes run out. */
#include <stdlib.h>
#include <string.h>

#include "kernels.h"

enum { VARINT, FIXED64, DELIMITED, GROUP, END_GROUP, FIXED32 };

/* Protobuf gives up on deeper nesting, so that a hostile message cannot exhaust the stack. */
#define MAX_GROUPS 100

#define DATA_TAG 0x22
#define FLOAT_TAG 0x35
#define PACKED_TAG 0x32

struct walk {
    const uint8_t *bytes;
    size_t size;
    size_t position;
    size_t field; /* where the outermost field begins that is being read */
    struct fault *fault;
};

static bool truncated(const struct walk *walk, size_t field)
{
    return set_fault(walk->fault, TRUNCATED, NUMBERS((int64_t)field, (int64_t)walk->size));
}

/* Read an integer of at most so many bytes; bits beyond 64 are dropped. */
static bool read_varint(struct walk *walk, int max_bytes, uint64_t *value)
{
    size_t start = walk->position;
    uint64_t read = 0;
    for (int count = 0; count < max_bytes; count++) {
        if (walk->position >= walk->size)
            return truncated(walk, walk->field);
        uint8_t byte = walk->bytes[walk->position++];
        read |= (uint64_t)(byte & 0x7F) << (7 * count);
        if (byte < 0x80) {
            *value = read;
            return true;
        }
    }
    return set_fault(walk->fault, VARINT_TOO_LONG, NUMBERS((int64_t)start));
}

static bool bad_tag(const struct walk *walk, size_t start)
{
    return set_fault(walk->fault, BAD_TAG, NUMBERS((int64_t)start, walk->bytes[start]));
}

static bool read_tag(struct walk *walk, uint32_t *tag)
{
    size_t start = walk->position;
    uint64_t value;
    if (!read_varint(walk, 5, &value))
        return false;
    if (value > UINT32_MAX)
        return bad_tag(walk, start);
    *tag = (uint32_t)value;
    return true;
}

static bool past_end(const struct walk *walk, size_t start, uint64_t length)
{
    size_t left = walk->size - walk->position;
    return set_fault(walk->fault, LENGTH_PAST_END,
                     NUMBERS((int64_t)start, (int64_t)length, (int64_t)left));
}

static bool read_length(struct walk *walk, size_t *length)
{
    size_t start = walk->position;
    uint64_t value;
    if (!read_varint(walk, 5, &value))
        return false;
    if (value > INT32_MAX)
        return past_end(walk, start, value);
    *length = (size_t)value;
    return true;
}

/* Read a length that the rest of the record has room for. */
static bool read_delimited(struct walk *walk, size_t *length)
{
    size_t start = walk->position;
    if (!read_length(walk, length))
        return false;
    return *length <= walk->size - walk->position || past_end(walk, start, *length);
}

static bool skip_value(struct walk *walk, size_t start, uint32_t tag)
{
    uint64_t value;
    size_t size;
    switch (tag & 7) {
    case VARINT:
        return read_varint(walk, 10, &value);
    case DELIMITED:
        if (!read_delimited(walk, &size))
            return false;
        break;
    case FIXED32:
    case FIXED64:
        size = (tag & 7) == FIXED32 ? 4 : 8;
        if (size > walk->size - walk->position)
            return truncated(walk, start);
        break;
    default:
        return bad_tag(walk, start);
    }
    walk->position += size;
    return true;
}

/* Skip the group that `tag` begins, with all that is nested in it. */
static bool skip_group(struct walk *walk, uint32_t tag)
{
    uint32_t open[MAX_GROUPS];
    int num_open = 1;
    open[0] = tag;
    while (num_open > 0) {
        size_t start = walk->position;
        if (!read_tag(walk, &tag))
            return false;
        if ((tag & 7) == GROUP) {
            if (num_open == MAX_GROUPS)
                return set_fault(walk->fault, GROUPS_TOO_DEEP, NUMBERS((int64_t)start));
            open[num_open++] = tag;
        } else if ((tag & 7) == END_GROUP) {
            if (tag != open[--num_open] + 1)
                return set_fault(walk->fault, BAD_GROUP, NUMBERS((int64_t)start));
        } else if (!skip_value(walk, start, tag)) {
            return false;
        }
    }
    return true;
}

static bool skip_field(struct walk *walk, size_t start, uint32_t tag)
{
    if (tag < 8)
        return bad_tag(walk, start);
    if ((tag & 7) == GROUP)
        return skip_group(walk, tag);
    if ((tag & 7) == END_GROUP)
        return set_fault(walk->fault, BAD_GROUP, NUMBERS((int64_t)start));
    return skip_value(walk, start, tag);
}

static void append_floats(uint8_t *to, const uint8_t *from, size_t num, size_t step)
{
    for (size_t i = 0; i < num; i++)
        memcpy(to + 4 * i, from + i * step, 4);
}

/* Add a run of floats to those that the record had before it. */
static bool add_floats(const struct walk *walk, struct datum *datum, struct float_scratch *scratch,
                       const uint8_t *from, size_t num, size_t step)
{
    if (datum->num_floats == 0) {
        datum->floats = from;
        datum->num_floats = num;
        datum->float_step = step;
        return true;
    }
    if (datum->floats != scratch->bytes) {
        if (scratch->size < walk->size) { /* room for all floats of the record, come what may */
            free(scratch->bytes);
            scratch->bytes = malloc(walk->size);
            scratch->size = scratch->bytes == NULL ? 0 : walk->size;
            if (scratch->bytes == NULL)
                return set_fault(walk->fault, OUT_OF_MEMORY, 0, NULL);
        }
        append_floats(scratch->bytes, datum->floats, datum->num_floats, datum->float_step);
        datum->floats = scratch->bytes;
        datum->float_step = 4;
    }
    append_floats(scratch->bytes + 4 * datum->num_floats, from, num, step);
    datum->num_floats += num;
    return true;
}

/* Read the run of single floats that begins behind the tag just read. */
static bool read_single_floats(struct walk *walk, struct datum *datum,
                               struct float_scratch *scratch)
{
    const uint8_t *last_tag = walk->bytes + walk->position - 1;
    size_t most = (walk->size - walk->position + 1) / 5;
    size_t num = 1;
    if (most == 0)
        return truncated(walk, walk->field);
    while (num < most && last_tag[5 * num] == FLOAT_TAG)
        num++;
    walk->position += 5 * num - 1;
    return add_floats(walk, datum, scratch, last_tag + 1, num, 5);
}

static bool read_packed_floats(struct walk *walk, struct datum *datum,
                               struct float_scratch *scratch)
{
    size_t size;
    if (!read_delimited(walk, &size))
        return false;
    size_t begin = walk->position;
    if (size % 4 != 0)
        return set_fault(walk->fault, BAD_PACKED_FLOATS, NUMBERS((int64_t)begin, (int64_t)size));
    walk->position += size;
    return add_floats(walk, datum, scratch, walk->bytes + begin, size / 4, 4);
}

static bool read_data(struct walk *walk, struct datum *datum)
{
    if (!read_length(walk, &datum->data_size))
        return false;
    if (datum->data_size > walk->size - walk->position)
        return past_end(walk, walk->field, datum->data_size);
    datum->data = walk->bytes + walk->position;
    walk->position += datum->data_size;
    return true;
}

static bool read_int32(struct walk *walk, int32_t *field)
{
    uint64_t value;
    if (!read_varint(walk, 10, &value))
        return false;
    uint32_t low = (uint32_t)value;
    memcpy(field, &low, sizeof low);
    return true;
}

static bool read_bool(struct walk *walk, bool *field)
{
    uint64_t value;
    if (!read_varint(walk, 10, &value))
        return false;
    *field = value != 0;
    return true;
}

static bool read_field(struct walk *walk, struct datum *datum, struct float_scratch *scratch)
{
    uint32_t tag;
    if (!read_tag(walk, &tag))
        return false;
    switch (tag) {
    case 0x08:
        return read_int32(walk, &datum->channels);
    case 0x10:
        return read_int32(walk, &datum->height);
    case 0x18:
        return read_int32(walk, &datum->width);
    case DATA_TAG:
        return read_data(walk, datum);
    case 0x28:
        return read_int32(walk, &datum->label);
    case PACKED_TAG:
        return read_packed_floats(walk, datum, scratch);
    case FLOAT_TAG:
        return read_single_floats(walk, datum, scratch);
    case 0x38:
        return read_bool(walk, &datum->encoded);
    default:
        return skip_field(walk, walk->field, tag);
    }
}

bool parse_datum(const uint8_t *record, size_t size, struct float_scratch *scratch,
                 struct datum *datum, struct fault *fault)
{
    struct walk walk = {.bytes = record, .size = size, .fault = fault};
    memset(datum, 0, sizeof *datum);
    while (walk.position < size) {
        walk.field = walk.position;
        if (!read_field(&walk, datum, scratch))
            return false;
    }
    return true;
}
