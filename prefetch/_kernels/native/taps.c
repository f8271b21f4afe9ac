/* The arithmetic is float64 in Pillow's order of operations, with a rounding after each. */
#include "taps.h"

#include <stdlib.h>

#if defined(__clang__)
#pragma STDC FP_CONTRACT OFF
#elif defined(_MSC_VER)
#pragma fp_contract(off)
#endif

static double weigh(double distance, enum interpolation interpolation)
{
    const double x = distance < 0.0 ? -distance : distance;
    if (interpolation == BILINEAR)
        return x < 1.0 ? 1.0 - x : 0.0;
    if (x < 1.0)
        return (1.5 * x - 2.5) * x * x + 1.0;
    return x < 2.0 ? (((x - 5.0) * x + 8.0) * x - 4.0) * -0.5 : 0.0;
}

/* Pixels of a line that the filter covers: those from `first` up to `end`. */
struct cover {
    size_t first, end;
};

struct filter {
    double scale, stretch, reach;
    enum interpolation interpolation;
};

static struct filter find_filter(size_t num_in, size_t num_out, enum interpolation interpolation)
{
    const double scale = (double)num_in / (double)num_out;
    const double stretch = scale > 1.0 ? scale : 1.0;
    const double radius = interpolation == BILINEAR ? 1.0 : 2.0;
    return (struct filter){scale, stretch, radius * stretch, interpolation};
}

static struct cover find_cover(const struct filter *filter, size_t num_in, size_t output)
{
    const double center = ((double)output + 0.5) * filter->scale;
    const double first = center - filter->reach + 0.5, end = center + filter->reach + 0.5;
    return (struct cover){first < 0.0 ? 0 : (size_t)first,
                          end > (double)num_in ? num_in : (size_t)end};
}

static int32_t round_coefficient(double weight)
{
    const double scaled = weight * (double)(1 << FRACTION_BITS);
    return (int32_t)(scaled < 0.0 ? scaled - 0.5 : scaled + 0.5);
}

static void store_coefficient(struct tap_pair *pair, size_t which, int32_t coefficient)
{
    const int32_t high = (coefficient + 32768) >> 16; /* rounds: low is from -2^15 below 2^15 */
    pair->low[which] = (int16_t)(coefficient - high * 65536);
    pair->high[which] = pair->high[which + 2] = (int8_t)high;
}

static void compute_output(struct taps *taps, const struct filter *filter, size_t output)
{
    const struct cover cover = find_cover(filter, taps->num_in, output);
    const size_t last_first = taps->num_in - taps->num_taps;
    const size_t first = cover.first < last_first ? cover.first : last_first;
    const double center = ((double)output + 0.5) * filter->scale, shrink = 1.0 / filter->stretch;
    double total = 0.0;
    for (size_t pixel = cover.first; pixel < cover.end; pixel++) {
        const double distance = ((double)pixel - center + 0.5) * shrink;
        const double weight = weigh(distance, filter->interpolation);
        taps->weights[pixel - cover.first] = weight;
        total += weight;
    }
    struct tap_pair *pairs = taps->pairs + output * taps->num_pairs;
    memset(pairs, 0, taps->num_pairs * sizeof *pairs);
    for (size_t pixel = cover.first; pixel < cover.end; pixel++) {
        const int32_t coefficient = round_coefficient(taps->weights[pixel - cover.first] / total);
        const size_t tap = pixel - first;
        store_coefficient(&pairs[tap / 2], tap % 2, coefficient);
    }
    taps->firsts[output] = first;
}

/* Let an array hold so many elements; what it held is lost. */
static bool grow(void **array, size_t *num_held, size_t num, size_t size)
{
    if (num <= *num_held)
        return true;
    free(*array);
    *num_held = 0;
    *array = num <= SIZE_MAX / size ? malloc(num * size) : NULL;
    if (*array == NULL)
        return false;
    *num_held = num;
    return true;
}

static bool grow_taps(struct taps *taps, size_t num_out, size_t num_taps)
{
    const size_t num_pairs = (num_taps + 1) / 2;
    void *firsts = taps->firsts, *pairs = taps->pairs, *weights = taps->weights;
    const bool grown =
        num_pairs <= SIZE_MAX / num_out &&
        grow(&firsts, &taps->num_firsts_held, num_out, sizeof *taps->firsts) &&
        grow(&pairs, &taps->num_pairs_held, num_out * num_pairs, sizeof *taps->pairs) &&
        grow(&weights, &taps->num_weights_held, num_taps, sizeof *taps->weights);
    taps->firsts = firsts;
    taps->pairs = pairs;
    taps->weights = weights;
    return grown;
}

bool find_taps(struct taps *taps, size_t num_in, size_t num_out, enum interpolation interpolation)
{
    if (taps->num_in == num_in && taps->num_out == num_out && taps->interpolation == interpolation)
        return true;
    const struct filter filter = find_filter(num_in, num_out, interpolation);
    size_t num_taps = 0;
    for (size_t output = 0; output < num_out; output++) {
        const struct cover cover = find_cover(&filter, num_in, output);
        if (cover.end - cover.first > num_taps)
            num_taps = cover.end - cover.first;
    }
    taps->num_in = 0; /* nothing, if there is no memory */
    if (!grow_taps(taps, num_out, num_taps))
        return false;
    taps->num_in = num_in;
    taps->num_out = num_out;
    taps->interpolation = interpolation;
    taps->num_taps = num_taps;
    taps->num_pairs = (num_taps + 1) / 2;
    for (size_t output = 0; output < num_out; output++)
        compute_output(taps, &filter, output);
    return true;
}

void free_taps(struct taps *taps)
{
    free(taps->firsts);
    free(taps->pairs);
    free(taps->weights);
    memset(taps, 0, sizeof *taps);
}
