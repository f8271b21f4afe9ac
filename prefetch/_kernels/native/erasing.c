/* Random erasing. Numbers are rounded before they are written: rounding does not depend on what was
 * there. */
#include "erasing.h"

#include <math.h>

enum { TRIES = 10, WORDS_A_TRY = 4 };

enum erasing_word { GATE_WORD, KEY_WORD, FIRST_TRY = 4 };

static bool choose_box(const struct shape *shape, const uint32_t words[ERASING_WORDS],
                       const struct erasing *options, struct box *box)
{
    if (draw_between(words[GATE_WORD], 0, 1) >= options->probability)
        return false;
    for (int try = 0; try < TRIES; try++) {
        const uint32_t *drawn = words + FIRST_TRY + try * WORDS_A_TRY;
        const double share = draw_between(drawn[0], options->least_scale, options->most_scale);
        const double area = share * (double)shape->height * (double)shape->width;
        const double ratio =
            exp(draw_between(drawn[1], options->log_least_ratio, options->log_most_ratio));
        const double height = rint(sqrt(area * ratio)), width = rint(sqrt(area / ratio));
        if (0 < height && height < (double)shape->height && 0 < width &&
            width < (double)shape->width) {
            box->height = (size_t)height;
            box->width = (size_t)width;
            box->top = (uint64_t)drawn[2] * ((uint64_t)shape->height - box->height + 1) >> 32;
            box->left = (uint64_t)drawn[3] * ((uint64_t)shape->width - box->width + 1) >> 32;
            return true;
        }
    }
    return false;
}

/* The numbers that are written, in their order. */
struct noise {
    const uint32_t *key;
    const uint8_t *table;
    uint32_t next_block;
    size_t num_left; /* in `numbers`, at its end */
    uint8_t numbers[4 * NOISE_NUMBERS];
};

/* Take some of the next numbers, at most `num`; return how many. */
static size_t take_numbers(struct noise *noise, size_t num, const uint8_t **numbers)
{
    if (noise->num_left == 0) {
        chosen_loops->draw_noise(noise->key, noise->next_block, noise->table, noise->numbers);
        noise->next_block += NOISE_NUMBERS / 4;
        noise->num_left = NOISE_NUMBERS;
    }
    *numbers = noise->numbers + 4 * (NOISE_NUMBERS - noise->num_left);
    const size_t num_taken = num < noise->num_left ? num : noise->num_left;
    noise->num_left -= num_taken;
    return num_taken;
}

/* Store floats as elements of some type, `step` elements apart. */
static void put_numbers(const uint8_t *numbers, size_t num, enum element element, uint8_t *to,
                        size_t step)
{
    uint8_t rounded[2 * NOISE_NUMBERS];
    const size_t size = element == FLOAT32 ? 4 : 2;
    if (element == FLOAT16)
        chosen_loops->round_to_halves(numbers, num, rounded);
    else if (element == BFLOAT16)
        chosen_loops->round_to_bfloats(numbers, num, rounded);
    const uint8_t *from = size == 2 ? rounded : numbers;
    if (step == 1) {
        memcpy(to, from, num * size);
        return;
    }
    for (size_t i = 0; i < num; i++)
        memcpy(to + i * step * size, from + i * size, size);
}

/* Write one number over a line. */
static void repeat_number(const uint8_t *number, size_t num, enum element element, uint8_t *to,
                          size_t step)
{
    uint8_t numbers[4 * NOISE_NUMBERS];
    for (size_t i = 0; i < NOISE_NUMBERS; i++)
        memcpy(numbers + 4 * i, number, 4);
    const size_t size = element == FLOAT32 ? 4 : 2;
    for (size_t at = 0; at < num; at += NOISE_NUMBERS)
        put_numbers(numbers, num - at < NOISE_NUMBERS ? num - at : NOISE_NUMBERS, element,
                    to + at * step * size, step);
}

void erase_box(uint8_t *row, enum element element, const struct shape *shape, bool channels_last,
               const uint32_t words[ERASING_WORDS], const struct erasing *options)
{
    static const uint8_t zero[4];
    struct box box;
    if (!choose_box(shape, words, options, &box))
        return;
    const size_t size = element == FLOAT32 ? 4 : 2;
    const size_t num_channels = (size_t)shape->channels, width = (size_t)shape->width;
    const size_t step = channels_last ? num_channels : 1;
    const size_t channel_step = channels_last ? 1 : (size_t)shape->height * width;
    struct noise noise = {.key = words + KEY_WORD, .table = options->noise};
    for (size_t channel = 0; channel < num_channels; channel++) {
        const uint8_t *number = zero;
        if (options->mode == ERASES_TO_ONE_NUMBER)
            take_numbers(&noise, 1, &number);
        for (size_t y = box.top; y < box.top + box.height; y++) {
            uint8_t *to = row + size * ((y * width + box.left) * step + channel * channel_step);
            if (options->mode != ERASES_TO_NUMBERS) {
                repeat_number(number, box.width, element, to, step);
                continue;
            }
            for (size_t at = 0, num; at < box.width; at += num) {
                const uint8_t *numbers;
                num = take_numbers(&noise, box.width - at, &numbers);
                put_numbers(numbers, num, element, to + at * step * size, step);
            }
        }
    }
}
