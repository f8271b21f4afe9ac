/* Colour jitter. All that can be done to a pixel while it is in a register is done there: contrast
 * has to know the mean of what comes before it, so there are at most two passes. */
#include "jitter.h"

enum operation { BRIGHTNESS, CONTRAST, SATURATION, NUM_OPERATIONS };

enum { NUM_ORDERS = 6 };

/* As itertools.permutations has them. */
static const enum operation orders[NUM_ORDERS][NUM_OPERATIONS] = {
    {BRIGHTNESS, CONTRAST, SATURATION}, {BRIGHTNESS, SATURATION, CONTRAST},
    {CONTRAST, BRIGHTNESS, SATURATION}, {CONTRAST, SATURATION, BRIGHTNESS},
    {SATURATION, BRIGHTNESS, CONTRAST}, {SATURATION, CONTRAST, BRIGHTNESS},
};

static const int base_kinds[NUM_OPERATIONS] = {
    [BRIGHTNESS] = NO_BASE, [CONTRAST] = ONE_BASE, [SATURATION] = GREY_BASE};

/* Pixels that are changed as soon as they were copied: still in the core's nearest cache. */
#define COPIED_PIXELS 4096

struct plan {
    struct jitter_run first, second; /* up to contrast, and from it on */
    bool has_second;
};

static struct plan plan_steps(const uint32_t words[JITTER_WORDS],
                              const struct jitter *options, bool has_colour)
{
    struct plan plan = {.has_second = false};
    const enum operation *order = orders[(uint64_t)words[0] * NUM_ORDERS >> 32];
    for (int i = 0; i < NUM_OPERATIONS; i++) {
        const enum operation operation = order[i];
        const double low = options->low[operation], high = options->high[operation];
        if ((low == 1 && high == 1) || (operation == SATURATION && !has_colour))
            continue;
        plan.has_second = plan.has_second || operation == CONTRAST;
        struct jitter_run *run = plan.has_second ? &plan.second : &plan.first;
        run->steps[run->num_steps++] = (struct jitter_step){
            .base_kind = base_kinds[operation],
            .factor = (float)draw_between(words[1 + operation], low, high),
        };
    }
    plan.first.sums = plan.has_second;
    return plan;
}

/* Copy a row of the box to its place in the planes. */
static void copy_row(const struct image *image, struct box box, size_t row, uint8_t *planes)
{
    const size_t num_channels = (size_t)image->shape.channels;
    const size_t plane_size = box.height * box.width;
    const uint8_t *from =
        image->pixels + (box.top + row) * image->row_step + box.left * image->pixel_step;
    uint8_t *to = planes + row * box.width;
    if (num_channels == 3 && image->pixel_step == 3 && image->channel_step == 1) {
        chosen_loops->split_three(from, box.width, to, to + plane_size, to + 2 * plane_size);
        return;
    }
    for (size_t channel = 0; channel < num_channels; channel++) {
        const uint8_t *line = from + channel * image->channel_step;
        uint8_t *target = to + channel * plane_size;
        if (image->pixel_step == 1)
            memcpy(target, line, box.width);
        else
            for (size_t x = 0; x < box.width; x++)
                target[x] = line[x * image->pixel_step];
    }
}

/* Change the pixels from `begin` to `end` of each plane; return the sum of their grey. */
static uint64_t run_steps(struct jitter_run *run, uint8_t *const planes[3], size_t begin,
                          size_t end)
{
    uint64_t sum = 0;
    for (size_t at = begin; at < end; at += run->num) {
        run->num = end - at < MOST_JITTERED ? end - at : MOST_JITTERED;
        for (size_t i = 0; i < run->num_channels; i++)
            run->planes[i] = planes[i] + at;
        sum += chosen_loops->jitter_bytes(run);
    }
    return sum;
}

void jitter_box(const struct image *image, struct box box,
                const uint32_t words[JITTER_WORDS], const struct jitter *options,
                uint8_t *planes)
{
    const size_t num_channels = (size_t)image->shape.channels, num = box.height * box.width;
    uint8_t *colours[3];
    for (size_t i = 0; i < num_channels; i++)
        colours[i] = planes + num * (options->red_first ? i : num_channels - 1 - i);
    struct plan plan = plan_steps(words, options, num_channels == 3);
    plan.first.num_channels = plan.second.num_channels = num_channels;
    const bool has_first = plan.first.num_steps > 0 || plan.has_second;
    uint64_t sum = 0;
    size_t done = 0;
    for (size_t row = 0; row < box.height; row++) {
        copy_row(image, box, row, planes);
        const size_t copied = (row + 1) * box.width;
        if (has_first && (copied - done >= COPIED_PIXELS || copied == num)) {
            sum += run_steps(&plan.first, colours, done, copied);
            done = copied;
        }
    }
    if (plan.has_second) {
        plan.second.steps[0].base = (float)(int)((double)sum / (double)num + 0.5);
        run_steps(&plan.second, colours, 0, num);
    }
}
