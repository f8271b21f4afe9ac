/* The loops of resizing, for whatever chip the including file is compiled for: along lines, and
 * across them. Across, a block of lines is turned, so that a column is a vector, and what is done
 * to it is the same as to a line; then it is turned back. */
#include "blend.h"
#include "byte_vectors.h"
#include "resize_loops.h"

/* Call something with the number of pairs known to the compiler where it is small: bilinear has up
 * to 4 pairs down to 0.25 of the size, bicubic to 0.5. */
#define WITH_NUM_PAIRS(num, ...)             \
    do {                                     \
        if ((num) == 1) {                    \
            enum { NUM_PAIRS = 1 };          \
            __VA_ARGS__;                     \
        } else if ((num) == 2) {             \
            enum { NUM_PAIRS = 2 };          \
            __VA_ARGS__;                     \
        } else if ((num) == 3) {             \
            enum { NUM_PAIRS = 3 };          \
            __VA_ARGS__;                     \
        } else if ((num) == 4) {             \
            enum { NUM_PAIRS = 4 };          \
            __VA_ARGS__;                     \
        } else {                             \
            const size_t NUM_PAIRS = (num);  \
            __VA_ARGS__;                     \
        }                                    \
    } while (0)

INLINE size_t pairs_of(size_t num_taps)
{
    return (num_taps + 1) / 2;
}

/* How far the second line of the last pair is from the first: not at all where there is none. */
INLINE size_t last_step_of(size_t num_taps, size_t step)
{
    return num_taps % 2 == 0 ? step : 0;
}

INLINE void blend_line(const struct line_blend *blend, size_t num_pairs)
{
    const struct line_blend own = *blend; /* known not to change by the stores */
    const size_t last_step = last_step_of(own.num_taps, own.from_step);
    const size_t last = own.num_bytes - BLOCK_LINES;
    for (size_t at = 0; at < last; at += BLOCK_LINES)
        blend_bytes(own.from + at, own.from_step, own.pairs, num_pairs, last_step, own.to + at);
    blend_bytes(own.from + last, own.from_step, own.pairs, num_pairs, last_step, own.to + last);
}

/* Of lines too short for a vector nothing behind them may be read: copied, or one by one. */
static void blend_short_line(const struct line_blend *blend)
{
    enum { MAX_COPIED = 16 };
    uint8_t lines[MAX_COPIED * BLOCK_LINES], to[BLOCK_LINES];
    const size_t num_bytes = blend->num_bytes < BLOCK_LINES ? blend->num_bytes : 0;
    if (blend->num_taps <= MAX_COPIED) {
        for (size_t tap = 0; tap < blend->num_taps; tap++)
            memcpy(lines + BLOCK_LINES * tap, blend->from + tap * blend->from_step, num_bytes);
        blend_bytes(lines, BLOCK_LINES, blend->pairs, pairs_of(blend->num_taps),
                    last_step_of(blend->num_taps, BLOCK_LINES), to);
        memcpy(blend->to, to, num_bytes);
        return;
    }
    for (size_t at = 0; at < num_bytes; at++) {
        int32_t sum = 1 << (FRACTION_BITS - 1);
        for (size_t tap = 0; tap < blend->num_taps; tap++)
            sum += coefficient_of(&blend->pairs[tap / 2], tap % 2) *
                   blend->from[tap * blend->from_step + at];
        sum >>= FRACTION_BITS;
        blend->to[at] = (uint8_t)(sum < 0 ? 0 : sum > 255 ? 255 : sum);
    }
}

static void blend_lines(const struct line_blend *blend)
{
    if (blend->num_bytes < BLOCK_LINES)
        blend_short_line(blend);
    else
        WITH_NUM_PAIRS(pairs_of(blend->num_taps), blend_line(blend, NUM_PAIRS));
}

/* Turn lines of any number of bytes into as many columns. */
static void turn_all(const uint8_t *const lines[BLOCK_LINES], size_t num_bytes, uint8_t *columns)
{
    if (num_bytes < BLOCK_COLUMNS) {
        for (size_t line = 0; line < BLOCK_LINES; line++)
            for (size_t at = 0; at < num_bytes; at++)
                columns[BLOCK_LINES * at + line] = lines[line][at];
        return;
    }
    const size_t last = num_bytes - BLOCK_COLUMNS;
    for (size_t at = 0; at < last; at += BLOCK_COLUMNS)
        turn_lines(lines, at, columns + BLOCK_LINES * at);
    turn_lines(lines, last, columns + BLOCK_LINES * last);
}

/* Compute up to 16 outputs of a channel, for a block of lines, and turn them back. */
INLINE void resample_outputs(const struct line_resampling *task, size_t channel, size_t first,
                             size_t num, size_t num_pairs, uint8_t *const lines[BLOCK_LINES])
{
    const struct taps *taps = task->taps;
    const size_t step = BLOCK_LINES * task->num_channels;
    const size_t last_step = last_step_of(taps->num_taps, step);
    const uint8_t *from = task->columns + BLOCK_LINES * channel;
    uint8_t outputs[BLOCK_LINES * BLOCK_COLUMNS];
    for (size_t i = 0; i < num; i++) {
        const size_t output = first + i;
        const size_t pixel = taps->firsts[output] - taps->firsts[task->first];
        blend_bytes(from + step * pixel, step, taps->pairs + output * num_pairs, num_pairs,
                    last_step, outputs + BLOCK_LINES * i);
    }
    if (num == BLOCK_COLUMNS) {
        turn_columns(outputs, lines);
        return;
    }
    for (size_t line = 0; line < BLOCK_LINES; line++)
        for (size_t i = 0; i < num; i++)
            lines[line][i] = outputs[BLOCK_LINES * i + line];
}

INLINE void resample_block(const struct line_resampling *task, size_t first_line, size_t num_pairs)
{
    const size_t num_lines = task->num_lines - first_line;
    const size_t end = task->first + task->num;
    for (size_t channel = 0; channel < task->num_channels; channel++) {
        for (size_t output = task->first; output < end;) {
            const size_t left = end - output;
            uint8_t *lines[BLOCK_LINES];
            uint8_t *to = task->to + channel * task->to_channel_step +
                          first_line * task->to_step + (output - task->first);
            for (size_t line = 0; line < BLOCK_LINES; line++)
                lines[line] = to + (line < num_lines ? line : num_lines - 1) * task->to_step;
            const size_t num = left < BLOCK_COLUMNS ? left : BLOCK_COLUMNS;
            resample_outputs(task, channel, output, num, num_pairs, lines);
            /* The last 16 overlap those before them, where there are so many. */
            output += left > BLOCK_COLUMNS && left < 2 * BLOCK_COLUMNS ? left - BLOCK_COLUMNS : num;
        }
    }
}

static void resample_lines(const struct line_resampling *task)
{
    const struct taps *taps = task->taps;
    const size_t last = task->first + task->num - 1;
    const size_t num_pixels = taps->firsts[last] + taps->num_taps - taps->firsts[task->first];
    for (size_t line = 0; line < task->num_lines; line += BLOCK_LINES) {
        const uint8_t *lines[BLOCK_LINES];
        for (size_t i = 0; i < BLOCK_LINES; i++) {
            const size_t own = line + i < task->num_lines ? line + i : task->num_lines - 1;
            lines[i] = task->from + own * task->from_step;
        }
        turn_all(lines, num_pixels * task->num_channels, task->columns);
        WITH_NUM_PAIRS(taps->num_pairs, resample_block(task, line, NUM_PAIRS));
    }
}
