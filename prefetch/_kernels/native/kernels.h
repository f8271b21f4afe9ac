/* What the kernels are made of: records in, rows of a batch out, and nothing of Python.
 *
 * The contract is that of prefetch/_kernels/reference.py, to the bit and to the last number of a
 * fault; what is checked in which order, and why, stands there. Here it is only done without the
 * GIL.
 *
 * Rules of all files:
 * - A record's bytes are hostile, and another process may be writing them: every length is
 *   compared with what is left before it is used, and nothing is read twice to be trusted the
 *   second time.
 * - Arrays of the caller are byte pointers, loaded and stored by memcpy: nothing is assumed of
 *   their alignment. Compilers make single instructions of it.
 * - Floats are float32 with a rounding after each operation. Contraction into fused multiply-adds
 *   would be a rounding less, so the build switches it off (setup.py), and arithmetic in a wider
 *   type is refused.
 */
#ifndef RINGFEED_KERNELS_H
#define RINGFEED_KERNELS_H

#include <float.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "float arithmetic is wider than float here (x87?), so results would not equal Caffe's"
#endif

/* Reason of prefetch/_record/faults.py, and ENCODED of _kernels/contract.py. */
enum reason {
    ENCODED = 0,
    TRUNCATED = 1,
    VARINT_TOO_LONG = 2,
    BAD_TAG = 3,
    LENGTH_PAST_END = 4,
    BAD_PACKED_FLOATS = 5,
    BAD_GROUP = 6,
    GROUPS_TOO_DEEP = 7,
    NO_PIXELS = 20,
    BAD_DIMENSIONS = 21,
    DATA_SHORT = 22,
    DATA_LONG = 23,
    FLOATS_SHORT = 24,
    FLOATS_LONG = 25,
    LOOKS_HWC = 26,
    CHANNELS_DIFFER = 27,
    SIZE_DIFFERS = 28,
    ENCODED_EMPTY = 40,
    SMALLER_THAN_CROP = 60,
    MEAN_VALUES_DIFFER = 61,
    SCALES_DIFFER = 62,
    MEAN_IMAGE_DIFFERS = 63,
    FLOATS_AS_UINT8 = 64,
    FLOATS_FOR_RESIZE = 65,
    FLOATS_FOR_JITTER = 66,
    CHANNELS_FOR_JITTER = 67,
    OUT_OF_MEMORY = 1000 /* no fault of a record: fill_part() stops */
};

struct fault {
    enum reason reason;
    int num_numbers;
    int64_t numbers[6];
};

/* Store what is wrong with a record; always false, so that a check can end with it. */
static inline bool set_fault(struct fault *fault, enum reason reason, int num_numbers,
                             const int64_t *numbers)
{
    fault->reason = reason;
    fault->num_numbers = num_numbers;
    for (int i = 0; i < num_numbers; i++)
        fault->numbers[i] = numbers[i];
    return false;
}

#define NUMBERS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}

/* datum.c: DatumView of prefetch/_record/datum_view.py. */

struct datum {
    int32_t channels, height, width, label; /* as stored; 0 where absent */
    bool encoded;
    const uint8_t *data; /* data_size bytes of the record */
    size_t data_size;    /* 0 where absent, too */
    const uint8_t *floats; /* little-endian float32, float_step bytes apart */
    size_t num_floats;
    size_t float_step;
};

/* Where floats that a record holds in several pieces are joined; grows, and is used again. */
struct float_scratch {
    uint8_t *bytes;
    size_t size;
};

/* Read a record in place; what it refers to lives as long as the record and the scratch do. */
bool parse_datum(const uint8_t *record, size_t size, struct float_scratch *scratch,
                 struct datum *datum, struct fault *fault);

/* check.c */

struct shape {
    int64_t channels, height, width;
};

enum element { FLOAT32, FLOAT16, BFLOAT16, UINT8 };

/* What each random word of a record is for: Word of prefetch/_plan/random_words.py. */
enum word { MIRROR_WORD, ROW_WORD, COLUMN_WORD, NUM_WORDS };

/* Behind them, in columns of their own, those of the operations that draw more, where they do. */
enum {
    RESIZED_CROP_WORDS = 40,
    JITTER_WORDS = 4,
    ERASING_WORDS = 44,
    MOST_WORDS = NUM_WORDS + RESIZED_CROP_WORDS + JITTER_WORDS + ERASING_WORDS
};

/* Images are resized to at most so many pixels a side. */
enum { MOST_RESIZED = 65535 };

/* A box of an image, in pixels. */
struct box {
    size_t top, left, height, width;
};

enum resize_kind { RANDOM_CROP_RESIZED, SHORTER_SIDE_RESIZED, BOTH_SIDES_RESIZED };

/* Resizing of _kernels/contract.py. */
struct resizing {
    enum resize_kind kind;
    int64_t height, width;
    bool bicubic;
    double least_scale, most_scale, least_ratio, most_ratio, log_least_ratio, log_most_ratio;
};

/* Jitter of _kernels/contract.py: the least and greatest factors of brightness, contrast and
 * saturation; both 1: left out. */
struct jitter {
    double low[3], high[3];
    bool red_first;
};

enum { MOST_FACTOR = 1000000 };

/* Quantiles of the normal distribution that noise is made of. */
enum { NUM_QUANTILES = 65536 };

enum erasing_mode { ERASES_TO_ZERO, ERASES_TO_ONE_NUMBER, ERASES_TO_NUMBERS };

/* Erasing of _kernels/contract.py. */
struct erasing {
    double probability, least_scale, most_scale, log_least_ratio, log_most_ratio;
    enum erasing_mode mode;
    const uint8_t *noise; /* float32 (NUM_QUANTILES,) of any alignment; NULL where zeros are written */
};

/* Recipe of _kernels/contract.py. Arrays are float32, of any alignment. */
struct recipe {
    int64_t crop_height, crop_width; /* 0 for none */
    bool random_crop, mirror, modulo, swap_channels, channels_last;
    bool unit_range;
    const uint8_t *mean_values; /* num_mean_values: 0, 1 or one a channel */
    int64_t num_mean_values;
    const uint8_t *scales; /* num_scales: 1 or one a channel */
    int64_t num_scales;
    bool multiplies;           /* whether any scale is not 1 */
    const uint8_t *mean_image; /* NULL for none; of mean_shape */
    struct shape mean_shape;
    bool resizes;
    struct resizing resizing;
    int64_t pad;
    bool jitters;
    struct jitter jitter;
    bool erases;
    struct erasing erasing;
    bool makes_pixels; /* whether it resizes, pads or jitters */
    size_t num_words;  /* of a record, NUM_WORDS at least */
    size_t jitter_at, erasing_at; /* their first words' columns */
};

/* Pixels in memory: those of a record, or of a decoded image. Steps are in bytes. */
struct image {
    const uint8_t *pixels;
    bool is_float; /* float32, else uint8 */
    struct shape shape;
    size_t channel_step, row_step, pixel_step;
    /* Byte distance to the same pixel of a later record of this shape, for prefetching; 0: none. */
    uintptr_t prefetch_distance;
};

/* Find the pixels of a raw record (DatumView.pixels of the twin). */
bool find_pixels(const struct datum *datum, enum element element, struct image *image,
                 struct fault *fault);

/* Check that pixels fit the batch, whose rows are `expected`, and the recipe (check_fit). */
bool check_fit(const struct shape *shape, const struct recipe *recipe,
               const struct shape *expected, bool is_float, struct fault *fault);

/* boxes.c: which box of an image goes into a row; prefetch/_kernels/boxes.py. */

/* Find the size that the crop is taken from: of the image as it is, or resized and padded. */
struct shape find_whole_shape(const struct shape *shape, const struct recipe *recipe);

/* Choose the box that is resized. */
struct box choose_resized_box(const struct shape *shape, const uint32_t *words,
                              const struct resizing *resizing);

/* Choose the box that the crop takes of pixels of some shape. */
struct box choose_crop_box(const struct shape *shape, const uint32_t *words,
                           const struct recipe *recipe);

/* Choose the box of an image that its row is made of. */
struct box choose_needed_box(const struct shape *shape, const uint32_t *words,
                             const struct recipe *recipe);

/* Reduce a random word to one of `extent` values: reduce_word of _plan/random_words.py. */
static inline uint32_t reduce_word(uint32_t word, int64_t extent, bool modulo)
{
    const uint64_t range = (uint64_t)extent;
    return (uint32_t)(modulo ? word % range : (word * range) >> 32);
}

/* Return a number between two, evenly drawn: draw_between of _plan/random_words.py. Doubles have a
 * rounding after each operation, as Python's. */
static inline double draw_between(uint32_t word, double low, double high)
{
    return low + word / 4294967296.0 * (high - low);
}

/* made_pixels.c */

/* Make the pixels that the crop is taken from, of those of an image: resized, padded, and, of those
 * in the crop, of other colours. The image then is of memory of this thread, until the next call.
 * Where a crop follows, its pixels alone are made. Only for a recipe that makes_pixels. False: out
 * of memory. */
bool make_pixels(struct image *image, const uint32_t *words, const struct recipe *recipe);

/* transform.c */

/* Fill a row from pixels that fit; true where finish_streaming() must be called before other
 * threads read the row. */
bool transform_image(const struct image *image, const uint32_t *words,
                     const struct recipe *recipe, enum element element, uint8_t *row);

/* Make what was stored past the caches visible to other threads. */
void finish_streaming(void);

/* loops.h: the loops over pixels, one plane or line at a time. */

#if defined(__x86_64__) && defined(__GNUC__) && !defined(RINGFEED_BASELINE)
#define HAS_AVX2_LOOPS 1
#else
#define HAS_AVX2_LOOPS 0
#endif

struct plane {
    const uint8_t *from; /* uint8 or float32 */
    size_t from_step;    /* bytes between rows */
    size_t pixel_step;   /* bytes between pixels; of uint8 always 1 */
    uintptr_t prefetch_distance; /* as an image's */
    const uint8_t *mean_image; /* float32; NULL for none */
    size_t mean_step;          /* bytes between rows */
    float mean, scale;         /* 0 and 1 for none, which change no uint8 pixel */
    bool subtracts, multiplies;
    bool unit_range; /* pixels are multiplied by UNIT first; never with a mean image */
    uint8_t *to; /* float32, without gaps */
    size_t num_rows, num_columns;
    bool mirrored;
};

/* 1/255 of float32: UNIT of _kernels/reference.py. */
#define UNIT 0.003921569f

struct line_blend;
struct line_resampling;

/* A step of colour jitter: each pixel becomes base + factor * (pixel - base). */
struct jitter_step {
    enum { NO_BASE, ONE_BASE, GREY_BASE } base_kind; /* GREY_BASE: of three channels only */
    float base, factor;
};

/* At most so many pixels are jittered in a run, so that float32 holds the sum of their grey. */
enum { MOST_JITTERED = 65536 };

struct jitter_run {
    uint8_t *planes[3]; /* red, green and blue; or one plane */
    size_t num_channels; /* 1 or 3 */
    size_t num;          /* pixels, at most MOST_JITTERED */
    struct jitter_step steps[3];
    int num_steps;
    bool sums; /* whether the sum is asked for */
};

/* Numbers of noise that are drawn at once. */
enum { NOISE_NUMBERS = 64 };

struct loops {
    /* (pixel - mean) * scale. */
    void (*plane_from_bytes)(const struct plane *plane);
    void (*plane_from_floats)(const struct plane *plane);
    void (*round_to_halves)(const uint8_t *floats, size_t num, uint8_t *halves); /* float16 */
    void (*round_to_bfloats)(const uint8_t *floats, size_t num, uint8_t *shorts); /* bfloat16 */
    void (*split_three)(const uint8_t *from, size_t num, uint8_t *first, uint8_t *second,
                        uint8_t *third);
    void (*join_three)(const uint8_t *first, const uint8_t *second, const uint8_t *third,
                       size_t num, uint8_t *to);
    /* resize_loops.h */
    void (*blend_lines)(const struct line_blend *blend);
    void (*resample_lines)(const struct line_resampling *resampling);
    /* Change pixels in place; return the sum of their grey, if it is asked for. */
    uint64_t (*jitter_bytes)(const struct jitter_run *run);
    /* Store NOISE_NUMBERS float32 of the table: those of a key's words from a block of four on. */
    void (*draw_noise)(const uint32_t key[2], uint32_t block, const uint8_t *table, uint8_t *to);
};

extern const struct loops baseline_loops;
extern const struct loops avx2_loops;

/* loops_choice.c: the loops for this chip. */

extern const struct loops *chosen_loops;

/* Choose them; call once, before all else. */
void choose_loops(void);

/* Ask the chip for bytes before they are needed. The address may be invalid: nothing is read. */
static inline void prefetch_bytes(uintptr_t from, size_t size)
{
#if defined(__GNUC__)
    for (size_t at = 0; at < size; at += 64)
        __builtin_prefetch((const void *)(from + at));
#else
    (void)from;
    (void)size;
#endif
}

enum { CACHE_LINE_BYTES = 64 };

/* Prefetch a line some lines further on, which may lie past the plane's end: there the next plane
 * begins. The chip's own prefetching stops at the end of each memory page, every 16 lines of 256
 * pixels (crops of 227 take 0.78 of the time). Short lines need no help. */
static inline void prefetch_line(const uint8_t *line, size_t line_step, size_t num_bytes)
{
    if (num_bytes >= CACHE_LINE_BYTES)
        prefetch_bytes((uintptr_t)line + 8 * line_step, num_bytes);
}

/* Choose without a branch. */
static inline uint32_t select_bits(bool condition, uint32_t yes, uint32_t no)
{
    const uint32_t mask = 0 - (uint32_t)condition;
    return (yes & mask) | (no & ~mask);
}

/* Round float32 bits to the nearest float16's, ties to even; a NaN becomes a quiet one and keeps
 * what payload it can, as the instructions of x86 and ARM have it. Compared with F16C's for all
 * 2^32 of them. Without branches, so that it vectorises; the cases are too large or no number,
 * subnormal, and normal. Adding 0.5 rounds a subnormal at the right bit. */
static inline uint16_t half_bits(uint32_t bits)
{
    const uint32_t sign = bits & 0x80000000u, size = bits ^ sign;
    const uint32_t nan = 0x7E00u | ((size & 0x007FFFFFu) >> 13);
    const uint32_t large = select_bits(size > 0x7F800000u, nan, 0x7C00u);
    const uint32_t normal = (size - 0x38000000u + 0xFFFu + ((size >> 13) & 1)) >> 13;
    const uint32_t small_size = select_bits(size < 0x38800000u, size, 0);
    float small;
    uint32_t subnormal;
    memcpy(&small, &small_size, sizeof small);
    small += 0.5f;
    memcpy(&subnormal, &small, sizeof small);
    subnormal -= 0x3F000000u;
    const uint32_t finite = select_bits(size < 0x38800000u, subnormal, normal);
    return (uint16_t)(select_bits(size >= 0x47800000u, large, finite) | sign >> 16);
}

/* Round float32 bits to the nearest bfloat16's, ties to even; a NaN as for float16. */
static inline uint16_t bfloat_bits(uint32_t bits)
{
    const uint32_t rounded = bits + 0x7FFFu + ((bits >> 16) & 1);
    const bool is_nan = (bits & 0x7FFFFFFFu) > 0x7F800000u;
    return (uint16_t)(select_bits(is_nan, bits | 0x00400000u, rounded) >> 16);
}

/* part.c */

struct record {
    const uint8_t *bytes;
    size_t size;
};

enum label_kind { NO_LABELS, INTEGER_LABELS, FLOAT_LABELS };

struct part {
    size_t num_records;
    const struct record *records;
    const uint8_t *words; /* uint32 (num_records, recipe's num_words) of any steps */
    ptrdiff_t word_steps[2];
    uint8_t *rows; /* without gaps */
    size_t row_size;
    enum element element;
    struct shape expected; /* of a row, channels first whatever the layout */
    uint8_t *labels;
    ptrdiff_t label_step;
    size_t label_size;
    enum label_kind label_kind;
};

struct outcome {
    size_t position;
    struct fault fault;
};

/* Fill a part; return how many outcomes there are, at most one a record, or -1: out of memory. */
ptrdiff_t fill_part(const struct part *part, const struct recipe *recipe,
                    struct outcome *outcomes);

#endif
