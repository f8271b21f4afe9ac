#include "py_arguments.h"

struct element_type py_element_type(const Py_buffer *view)
{
    const char *format = view->format == NULL ? "B" : view->format;
    struct element_type type = {'?', view->itemsize};
    if (strchr("@=^", *format) != NULL && *format != '\0') /* the machine's byte order */
        format++;
    if (*format == '\0' || format[1] != '\0')
        return type;
    if (strchr("bhilq", *format) != NULL)
        type.kind = 'i';
    else if (strchr("BHILQ", *format) != NULL)
        type.kind = 'u';
    else if (strchr("efd", *format) != NULL)
        type.kind = 'f';
    return type;
}

bool py_has_type(const Py_buffer *view, char kind, Py_ssize_t size)
{
    const struct element_type type = py_element_type(view);
    return type.kind == kind && type.size == size;
}

PyObject *py_set_arity_error(const char *name, Py_ssize_t expected, Py_ssize_t found)
{
    PyErr_Format(PyExc_TypeError, "%s() takes %zd arguments, and %zd were given", name, expected,
                 found);
    return NULL;
}

bool py_take_buffer(PyObject *array, Py_buffer *view, int flags, int num_axes, const char *name)
{
    if (PyObject_GetBuffer(array, view, flags | PyBUF_FORMAT) < 0) {
        view->obj = NULL;
        return false;
    }
    if (view->ndim == num_axes)
        return true;
    PyErr_Format(PyExc_ValueError, "%s has %d axes, and %d are expected", name, view->ndim,
                 num_axes);
    PyBuffer_Release(view); /* sets view->obj to NULL */
    return false;
}

void py_release_buffer(Py_buffer *view)
{
    if (view->obj != NULL)
        PyBuffer_Release(view);
}

bool py_take_list(PyObject *sequence, int flags, struct held_list *held)
{
    memset(held, 0, sizeof *held);
    held->list = PySequence_List(sequence);
    if (held->list == NULL)
        return false;
    const Py_ssize_t num = PyList_Size(held->list);
    held->views = PyMem_Malloc((size_t)num * sizeof *held->views);
    if (held->views == NULL) {
        PyErr_NoMemory();
        return false;
    }
    while (held->num < num) {
        PyObject *item = PyList_GetItem(held->list, held->num);
        if (item == NULL || PyObject_GetBuffer(item, &held->views[held->num], flags) < 0)
            return false;
        held->num++;
    }
    return true;
}

void py_release_list(struct held_list *held)
{
    for (Py_ssize_t i = 0; i < held->num; i++)
        PyBuffer_Release(&held->views[i]);
    PyMem_Free(held->views);
    Py_XDECREF(held->list);
}

void py_release_recipe(struct held_recipe *held)
{
    py_release_buffer(&held->mean_values);
    py_release_buffer(&held->scales);
    py_release_buffer(&held->mean_image);
    py_release_buffer(&held->noise);
}

/* The fields of prefetch._kernels.contract.Recipe, in its order. */
enum recipe_field {
    CROP_HEIGHT,
    CROP_WIDTH,
    RANDOM_CROP,
    MIRROR,
    MODULO,
    SWAP_CHANNELS,
    CHANNELS_LAST,
    UNIT_RANGE,
    MEAN_VALUE,
    SCALE,
    MEAN_IMAGE,
    RESIZING,
    PAD,
    JITTER,
    ERASING,
    NUM_RECIPE_FIELDS
};

static bool take_flag(PyObject *tuple, enum recipe_field field, bool *flag)
{
    PyObject *item = PyTuple_GetItem(tuple, field);
    const int truth = item == NULL ? -1 : PyObject_IsTrue(item);
    *flag = truth > 0;
    return truth >= 0;
}

static bool take_size(PyObject *tuple, enum recipe_field field, const char *name, int64_t *size)
{
    PyObject *item = PyTuple_GetItem(tuple, field);
    *size = item == NULL ? -1 : PyLong_AsLongLong(item);
    if (PyErr_Occurred())
        return false;
    if (*size >= 0 && *size <= INT32_MAX)
        return true;
    PyErr_Format(PyExc_ValueError, "%s must be from 0 to 2147483647", name);
    return false;
}

/* The fields of prefetch._kernels.contract.Resizing, in its order. */
static bool take_resizing(PyObject *tuple, struct recipe *recipe)
{
    PyObject *item = PyTuple_GetItem(tuple, RESIZING);
    if (item == NULL || item == Py_None)
        return item != NULL;
    struct resizing *resizing = &recipe->resizing;
    int kind, bicubic;
    long long height, width;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "resizing must be a Resizing, or None");
        return false;
    }
    if (!PyArg_ParseTuple(item, "iLLpdddddd", &kind, &height, &width, &bicubic,
                          &resizing->least_scale, &resizing->most_scale, &resizing->least_ratio,
                          &resizing->most_ratio, &resizing->log_least_ratio,
                          &resizing->log_most_ratio))
        return false;
    if (kind < RANDOM_CROP_RESIZED || kind > BOTH_SIDES_RESIZED || height < 1 || width < 1 ||
        height > MOST_RESIZED || width > MOST_RESIZED) {
        PyErr_Format(PyExc_ValueError, "images are resized to 1 to %d pixels", MOST_RESIZED);
        return false;
    }
    if (!(resizing->least_scale > 0 && resizing->least_scale <= resizing->most_scale &&
          resizing->least_ratio > 0 && resizing->least_ratio <= resizing->most_ratio)) {
        PyErr_SetString(PyExc_ValueError, "resizing has bounds that are no bounds");
        return false;
    }
    resizing->kind = (enum resize_kind)kind;
    resizing->height = height;
    resizing->width = width;
    resizing->bicubic = bicubic != 0;
    recipe->resizes = true;
    if (kind == RANDOM_CROP_RESIZED)
        recipe->num_words += RESIZED_CROP_WORDS;
    return true;
}

/* The fields of prefetch._kernels.contract.Jitter, in its order. */
static bool take_jitter(PyObject *tuple, struct recipe *recipe)
{
    PyObject *item = PyTuple_GetItem(tuple, JITTER);
    if (item == NULL || item == Py_None)
        return item != NULL;
    struct jitter *jitter = &recipe->jitter;
    double *low = jitter->low, *high = jitter->high;
    int red_first;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "jitter must be a Jitter, or None");
        return false;
    }
    if (!PyArg_ParseTuple(item, "(dd)(dd)(dd)p", &low[0], &high[0], &low[1], &high[1], &low[2],
                          &high[2], &red_first))
        return false;
    for (int i = 0; i < 3; i++) {
        if (low[i] >= 0 && low[i] <= high[i] && high[i] <= MOST_FACTOR)
            continue;
        PyErr_Format(PyExc_ValueError, "factors of jitter must be bounds from 0 to %d",
                     MOST_FACTOR);
        return false;
    }
    jitter->red_first = red_first != 0;
    recipe->jitters = true;
    recipe->jitter_at = recipe->num_words;
    recipe->num_words += JITTER_WORDS;
    return true;
}

static bool take_noise(PyObject *item, struct held_recipe *held)
{
    if (!py_take_buffer(item, &held->noise, PyBUF_C_CONTIGUOUS, 1, "noise"))
        return false;
    held->recipe.erasing.noise = held->noise.buf;
    if (py_has_type(&held->noise, 'f', 4) && held->noise.shape[0] == NUM_QUANTILES)
        return true;
    PyErr_Format(PyExc_ValueError, "noise must be float32, %d values", NUM_QUANTILES);
    return false;
}

/* The fields of prefetch._kernels.contract.Erasing, in its order. */
static bool take_erasing(PyObject *tuple, struct held_recipe *held)
{
    PyObject *item = PyTuple_GetItem(tuple, ERASING), *noise;
    if (item == NULL || item == Py_None)
        return item != NULL;
    struct recipe *recipe = &held->recipe;
    struct erasing *erasing = &recipe->erasing;
    int mode;
    if (!PyTuple_Check(item)) {
        PyErr_SetString(PyExc_TypeError, "erasing must be an Erasing, or None");
        return false;
    }
    if (!PyArg_ParseTuple(item, "dddddiO", &erasing->probability, &erasing->least_scale,
                          &erasing->most_scale, &erasing->log_least_ratio,
                          &erasing->log_most_ratio, &mode, &noise))
        return false;
    if (mode < ERASES_TO_ZERO || mode > ERASES_TO_NUMBERS ||
        !(erasing->least_scale > 0 && erasing->least_scale <= erasing->most_scale &&
          erasing->most_scale <= 1 && erasing->log_least_ratio <= erasing->log_most_ratio)) {
        PyErr_SetString(PyExc_ValueError, "erasing has bounds that are no bounds, or no mode");
        return false;
    }
    if (mode != ERASES_TO_ZERO && !take_noise(noise, held))
        return false;
    erasing->mode = (enum erasing_mode)mode;
    recipe->erases = true;
    recipe->erasing_at = recipe->num_words;
    recipe->num_words += ERASING_WORDS;
    return true;
}

static bool take_floats(PyObject *tuple, enum recipe_field field, Py_buffer *view, int num_axes,
                        const char *name)
{
    PyObject *item = PyTuple_GetItem(tuple, field);
    if (item == NULL || !py_take_buffer(item, view, PyBUF_C_CONTIGUOUS, num_axes, name))
        return false;
    if (py_has_type(view, 'f', 4))
        return true;
    PyErr_Format(PyExc_TypeError, "%s must be float32", name);
    return false;
}

static bool take_arrays(PyObject *tuple, struct held_recipe *held)
{
    struct recipe *recipe = &held->recipe;
    PyObject *mean_image = PyTuple_GetItem(tuple, MEAN_IMAGE);
    if (mean_image == NULL ||
        !take_floats(tuple, MEAN_VALUE, &held->mean_values, 1, "mean_value") ||
        !take_floats(tuple, SCALE, &held->scales, 1, "scale"))
        return false;
    recipe->mean_values = held->mean_values.buf;
    recipe->num_mean_values = held->mean_values.shape[0];
    recipe->scales = held->scales.buf;
    recipe->num_scales = held->scales.shape[0];
    for (int64_t i = 0; i < recipe->num_scales; i++) {
        float scale;
        memcpy(&scale, recipe->scales + 4 * i, sizeof scale);
        if (scale != 1.0f)
            recipe->multiplies = true;
    }
    if (mean_image == Py_None)
        return true;
    if (!take_floats(tuple, MEAN_IMAGE, &held->mean_image, 3, "mean_image"))
        return false;
    const Py_ssize_t *shape = held->mean_image.shape;
    recipe->mean_shape = (struct shape){shape[0], shape[1], shape[2]};
    recipe->mean_image = held->mean_image.buf;
    return true;
}

bool py_take_recipe(PyObject *tuple, enum element element, struct held_recipe *held)
{
    struct recipe *recipe = &held->recipe;
    memset(held, 0, sizeof *held);
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != NUM_RECIPE_FIELDS) {
        PyErr_Format(PyExc_TypeError, "recipe must be a Recipe, a tuple of %d", NUM_RECIPE_FIELDS);
        return false;
    }
    recipe->num_words = NUM_WORDS;
    if (!take_size(tuple, CROP_HEIGHT, "crop_height", &recipe->crop_height) ||
        !take_size(tuple, CROP_WIDTH, "crop_width", &recipe->crop_width) ||
        !take_size(tuple, PAD, "pad", &recipe->pad) || !take_resizing(tuple, recipe) ||
        !take_jitter(tuple, recipe))
        return false;
    recipe->makes_pixels = recipe->resizes || recipe->pad > 0 || recipe->jitters;
    if (!take_flag(tuple, RANDOM_CROP, &recipe->random_crop) ||
        !take_flag(tuple, MIRROR, &recipe->mirror) || !take_flag(tuple, MODULO, &recipe->modulo) ||
        !take_flag(tuple, SWAP_CHANNELS, &recipe->swap_channels) ||
        !take_flag(tuple, CHANNELS_LAST, &recipe->channels_last) ||
        !take_flag(tuple, UNIT_RANGE, &recipe->unit_range) || !take_arrays(tuple, held) ||
        !take_erasing(tuple, held)) {
        py_release_recipe(held);
        return false;
    }
    const bool computes = recipe->num_mean_values > 0 || recipe->mean_image != NULL;
    const char *contradiction = NULL;
    if (element == UINT8 && (computes || recipe->multiplies || recipe->unit_range))
        contradiction = "rows of uint8 can have neither a mean nor a scale";
    else if (element == UINT8 && recipe->erases)
        contradiction = "rows of uint8 cannot be erased";
    else if ((recipe->crop_height == 0) != (recipe->crop_width == 0))
        contradiction = "a crop has a height and a width, or neither";
    else if (recipe->mean_image != NULL && (recipe->makes_pixels || recipe->unit_range))
        contradiction = "a mean image is of records as they are stored";
    else if (recipe->num_mean_values > 0 && recipe->mean_image != NULL)
        contradiction = "a recipe has mean_value or mean_image, not both";
    if (contradiction == NULL)
        return true;
    PyErr_SetString(PyExc_ValueError, contradiction);
    py_release_recipe(held);
    return false;
}

bool py_find_element(const Py_buffer *view, enum element *element)
{
    if (py_has_type(view, 'f', 4))
        *element = FLOAT32;
    else if (py_has_type(view, 'f', 2))
        *element = FLOAT16;
    else if (py_has_type(view, 'u', 2))
        *element = BFLOAT16; /* by its bits: buffers have no name for it */
    else if (py_has_type(view, 'u', 1))
        *element = UINT8;
    else {
        PyErr_SetString(PyExc_TypeError,
                        "rows must be float32, float16, uint16 (bfloat16 by its bits) or uint8");
        return false;
    }
    return true;
}

bool py_find_row_shape(const Py_ssize_t *sample, const struct recipe *recipe, struct shape *shape)
{
    if (recipe->channels_last)
        *shape = (struct shape){sample[2], sample[0], sample[1]};
    else
        *shape = (struct shape){sample[0], sample[1], sample[2]};
    if (recipe->crop_height == 0 ||
        (shape->height == recipe->crop_height && shape->width == recipe->crop_width))
        return true;
    PyErr_SetString(PyExc_ValueError, "rows must be as high and wide as the crop");
    return false;
}

bool py_check_words(const Py_buffer *view, int axis, size_t least)
{
    if (py_has_type(view, 'u', 4) && view->shape[axis] >= (Py_ssize_t)least)
        return true;
    PyErr_Format(PyExc_TypeError, "words must be uint32, at least %zd a record", (Py_ssize_t)least);
    return false;
}
