/* What the benchmarks compare the kernels, and the whole feed, with: the work without parsing, without
 * checks and without choices, over addresses that are known already. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

void copy_payloads(const uint8_t *const *payloads, size_t num, size_t size, uint8_t *rows)
{
    for (size_t i = 0; i < num; i++)
        memcpy(rows + i * size, payloads[i], size);
}

/* Crop at drawn places, mirror by a drawn coin, (pixel - mean) * scale. */
void crop_and_normalise(const uint8_t *const *payloads, size_t num, const uint32_t *words,
                        size_t channels, size_t height, size_t width, size_t crop,
                        const float *means, float scale, float *rows)
{
    for (size_t i = 0; i < num; i++) {
        const size_t top = words[3 * i + 1] % (height - crop + 1);
        const size_t left = words[3 * i + 2] % (width - crop + 1);
        for (size_t c = 0; c < channels; c++) {
            for (size_t y = 0; y < crop; y++) {
                const uint8_t *from = payloads[i] + (c * height + top + y) * width + left;
                float *to = rows + ((i * channels + c) * crop + y) * crop;
                if (words[3 * i] % 2 == 1)
                    for (size_t x = 0; x < crop; x++)
                        to[x] = ((float)from[crop - 1 - x] - means[c]) * scale;
                else
                    for (size_t x = 0; x < crop; x++)
                        to[x] = ((float)from[x] - means[c]) * scale;
            }
        }
    }
}
