/* What is asked of a record that parses. The order is the contract's; see _kernels/reference.py. */
#include "kernels.h"

#define MIN_HWC_SIDE 17

bool find_pixels(const struct datum *datum, enum element element, struct image *image,
                 struct fault *fault)
{
    const int64_t channels = datum->channels, height = datum->height, width = datum->width;
    const bool is_float = datum->data_size == 0;
    const int64_t num_pixels = (int64_t)(is_float ? datum->num_floats : datum->data_size);
    if (num_pixels == 0)
        return set_fault(fault, NO_PIXELS, 0, NULL);
    if (channels < 1 || height < 1 || width < 1)
        return set_fault(fault, BAD_DIMENSIONS, NUMBERS(channels, height, width));
    /* The product of three int32 takes 93 bits. */
    const int64_t plane = height * width;
    const bool is_short = channels > num_pixels / plane;
    if (is_short || channels * plane != num_pixels) {
        enum reason reason = is_short ? DATA_SHORT : DATA_LONG;
        if (is_float)
            reason = is_short ? FLOATS_SHORT : FLOATS_LONG;
        return set_fault(fault, reason, NUMBERS(num_pixels, channels, height, width));
    }
    if (is_float && element == UINT8)
        return set_fault(fault, FLOATS_AS_UINT8, 0, NULL);
    if (!is_float && (width == 3 || width == 4) && channels >= MIN_HWC_SIDE &&
        height >= MIN_HWC_SIDE)
        return set_fault(fault, LOOKS_HWC, NUMBERS(channels, height, width));
    image->pixels = is_float ? datum->floats : datum->data;
    image->is_float = is_float;
    image->shape = (struct shape){channels, height, width};
    image->pixel_step = is_float ? datum->float_step : 1;
    image->row_step = image->pixel_step * (size_t)width;
    image->channel_step = image->row_step * (size_t)height;
    return true;
}

bool check_fit(const struct shape *shape, const struct recipe *recipe,
               const struct shape *expected, bool is_float, struct fault *fault)
{
    const int64_t channels = shape->channels, height = shape->height, width = shape->width;
    const struct shape whole = find_whole_shape(shape, recipe);
    if (channels != expected->channels)
        return set_fault(fault, CHANNELS_DIFFER,
                         NUMBERS(channels, height, width, expected->channels));
    if (recipe->crop_height == 0 &&
        (whole.height != expected->height || whole.width != expected->width))
        return set_fault(fault, SIZE_DIFFERS,
                         NUMBERS(channels, whole.height, whole.width, expected->channels,
                                 expected->height, expected->width));
    if (recipe->num_mean_values > 1 && recipe->num_mean_values != channels)
        return set_fault(fault, MEAN_VALUES_DIFFER, NUMBERS(channels, recipe->num_mean_values));
    if (recipe->num_scales != 1 && recipe->num_scales != channels)
        return set_fault(fault, SCALES_DIFFER, NUMBERS(channels, recipe->num_scales));
    if (recipe->mean_image != NULL) {
        const struct shape *mean = &recipe->mean_shape;
        if (mean->channels != channels || mean->height != height || mean->width != width)
            return set_fault(
                fault, MEAN_IMAGE_DIFFERS,
                NUMBERS(channels, height, width, mean->channels, mean->height, mean->width));
    }
    if (recipe->resizes && is_float)
        return set_fault(fault, FLOATS_FOR_RESIZE, 0, NULL);
    if (recipe->jitters && is_float)
        return set_fault(fault, FLOATS_FOR_JITTER, 0, NULL);
    if (recipe->jitters && channels != 1 && channels != 3)
        return set_fault(fault, CHANNELS_FOR_JITTER, NUMBERS(channels));
    if (whole.height < recipe->crop_height || whole.width < recipe->crop_width)
        return set_fault(
            fault, SMALLER_THAN_CROP,
            NUMBERS(whole.height, whole.width, recipe->crop_height, recipe->crop_width));
    return true;
}
