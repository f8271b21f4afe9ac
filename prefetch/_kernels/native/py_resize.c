/* The functions for Python that resize; see prefetch/_kernels/_c.pyi. */
#include "py_resize.h"

#include "resize.h"

/* Take a tuple (top, left, height, width) of a rectangle in one of some size. */
static bool take_box(PyObject *tuple, size_t height, size_t width, const char *name,
                     struct box *box)
{
    Py_ssize_t numbers[4];
    if (!PyTuple_Check(tuple)) {
        PyErr_Format(PyExc_TypeError, "%s must be a tuple", name);
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "nnnn", &numbers[0], &numbers[1], &numbers[2],
                          &numbers[3]))
        return false;
    *box = (struct box){(size_t)numbers[0], (size_t)numbers[1], (size_t)numbers[2],
                        (size_t)numbers[3]};
    if (numbers[0] >= 0 && numbers[1] >= 0 && numbers[2] > 0 && numbers[3] > 0 &&
        box->height <= height && box->top <= height - box->height && box->width <= width &&
        box->left <= width - box->width)
        return true;
    PyErr_Format(PyExc_ValueError,
                 "%s (%zd, %zd, %zd, %zd) is not a rectangle (top, left, height, width) of "
                 "%zu x %zu pixels",
                 name, numbers[0], numbers[1], numbers[2], numbers[3], height, width);
    return false;
}

/* Take an image (channels, height, width) that is planar or has its channels side by side. */
static bool take_image(PyObject *array, Py_buffer *view, struct image *image)
{
    if (!py_take_buffer(array, view, PyBUF_STRIDED_RO, 3, "image"))
        return false;
    const Py_ssize_t *shape = view->shape, *strides = view->strides;
    if (!py_has_type(view, 'u', 1)) {
        PyErr_SetString(PyExc_TypeError, "image must be uint8");
        return false;
    }
    /* The step of an axis of one element may be anything. */
    const Py_ssize_t own_step = strides[0] == 1 ? shape[0] : 1;
    const Py_ssize_t pixel_step = shape[2] > 1 ? strides[2] : own_step;
    const Py_ssize_t channel_step = shape[0] > 1 ? strides[0] : 1;
    const bool is_planar = pixel_step == 1 && channel_step >= 0;
    const bool is_interleaved = pixel_step == shape[0] && channel_step == 1;
    const bool has_lines = shape[1] <= 1 || strides[1] >= shape[2] * pixel_step;
    if ((!is_planar && !is_interleaved) || !has_lines) {
        PyErr_SetString(PyExc_ValueError, "image must be planar, or have its channels side by "
                                          "side; copy it first");
        return false;
    }
    *image = (struct image){
        .pixels = view->buf,
        .shape = {shape[0], shape[1], shape[2]},
        .channel_step = (size_t)channel_step,
        .row_step = shape[1] > 1 ? (size_t)strides[1] : 0,
        .pixel_step = (size_t)pixel_step,
    };
    return true;
}

/* Take two sizes from 1, which are those of images: sums of them cannot overflow. */
static bool take_sizes(PyObject *tuple, size_t *first, size_t *second)
{
    Py_ssize_t numbers[2];
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "sizes must be a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "nn", &numbers[0], &numbers[1]))
        return false;
    if (numbers[0] < 1 || numbers[1] < 1 || numbers[0] > INT32_MAX || numbers[1] > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "sizes (%zd, %zd) must be from 1 and below 2^31",
                     numbers[0], numbers[1]);
        return false;
    }
    *first = (size_t)numbers[0];
    *second = (size_t)numbers[1];
    return true;
}

static bool take_interpolation(PyObject *number, enum interpolation *interpolation)
{
    const long value = PyLong_AsLong(number);
    if (value == -1 && PyErr_Occurred())
        return false;
    if (value < 0 || value >= NUM_INTERPOLATIONS) {
        PyErr_Format(PyExc_ValueError, "interpolation is %ld, and must be one of Interpolation",
                     value);
        return false;
    }
    *interpolation = (enum interpolation)value;
    return true;
}

/* Take what the part is stored in. */
static bool take_out(PyObject *array, Py_buffer *view, const struct image *image,
                     const struct box *part)
{
    if (!py_take_buffer(array, view, PyBUF_CONTIG, 3, "out"))
        return false;
    if (!py_has_type(view, 'u', 1)) {
        PyErr_SetString(PyExc_TypeError, "out must be uint8");
        return false;
    }
    if (view->shape[0] == image->shape.channels && (size_t)view->shape[1] == part->height &&
        (size_t)view->shape[2] == part->width)
        return true;
    PyErr_SetString(PyExc_ValueError, "out must be of the image's channels and the part's size");
    return false;
}

PY_FUNCTION(py_resize)
{
    enum { IMAGE, BOX, SIZE, PART, INTERPOLATION, OUT, NUM };
    PY_CHECK_ARITY("resize", NUM);
    Py_buffer pixels = {0}, out = {0};
    struct image image, resized;
    struct box box, part;
    size_t height, width;
    enum interpolation interpolation;
    PyObject *done = NULL;
    if (take_image(arguments[IMAGE], &pixels, &image) &&
        take_box(arguments[BOX], (size_t)image.shape.height, (size_t)image.shape.width, "box",
                 &box) &&
        take_sizes(arguments[SIZE], &height, &width) &&
        take_box(arguments[PART], height, width, "part", &part) &&
        take_interpolation(arguments[INTERPOLATION], &interpolation) &&
        take_out(arguments[OUT], &out, &image, &part)) {
        bool resizes;
        Py_BEGIN_ALLOW_THREADS
        struct resize_scratch scratch = {0};
        resizes = out.len == 0 || resize_image(&image, box, height, width, part, interpolation,
                                               &scratch, &resized);
        if (resizes && out.len > 0)
            memcpy(out.buf, resized.pixels, (size_t)out.len);
        free_resize_scratch(&scratch);
        Py_END_ALLOW_THREADS
        done = resizes ? Py_NewRef(Py_None) : PyErr_NoMemory();
    }
    py_release_buffer(&pixels);
    py_release_buffer(&out);
    return done;
}

/* Take int32 memory for taps: (num_out,) and (num_out, as many as there is room for). */
static bool take_tables(PyObject *firsts, PyObject *coefficients, size_t num_out,
                        Py_buffer *first_view, Py_buffer *coefficient_view)
{
    if (!py_take_buffer(firsts, first_view, PyBUF_CONTIG, 1, "firsts") ||
        !py_take_buffer(coefficients, coefficient_view, PyBUF_CONTIG, 2, "coefficients"))
        return false;
    if (!py_has_type(first_view, 'i', 4) || !py_has_type(coefficient_view, 'i', 4)) {
        PyErr_SetString(PyExc_TypeError, "firsts and coefficients must be int32");
        return false;
    }
    if ((size_t)first_view->shape[0] == num_out && (size_t)coefficient_view->shape[0] == num_out)
        return true;
    PyErr_Format(PyExc_ValueError, "firsts and coefficients must be of %zu outputs", num_out);
    return false;
}

static void store_taps(const struct taps *taps, uint8_t *firsts, uint8_t *coefficients,
                       size_t num_columns)
{
    for (size_t output = 0; output < taps->num_out; output++) {
        const int32_t first = (int32_t)taps->firsts[output];
        memcpy(firsts + 4 * output, &first, 4);
        for (size_t tap = 0; tap < num_columns; tap++) {
            const struct tap_pair *pairs = taps->pairs + output * taps->num_pairs;
            const int32_t value =
                tap < taps->num_taps ? coefficient_of(&pairs[tap / 2], tap % 2) : 0;
            memcpy(coefficients + 4 * (output * num_columns + tap), &value, 4);
        }
    }
}

PY_FUNCTION(py_find_taps)
{
    enum { SIZES, INTERPOLATION, FIRSTS, COEFFICIENTS, NUM };
    PY_CHECK_ARITY("find_taps", NUM);
    Py_buffer firsts = {0}, coefficients = {0};
    size_t num_in, num_out;
    enum interpolation interpolation;
    PyObject *num_taps = NULL;
    if (take_sizes(arguments[SIZES], &num_in, &num_out) &&
        take_interpolation(arguments[INTERPOLATION], &interpolation) &&
        take_tables(arguments[FIRSTS], arguments[COEFFICIENTS], num_out, &firsts,
                    &coefficients)) {
        struct taps taps = {0};
        const size_t num_columns = (size_t)coefficients.shape[1];
        if (!find_taps(&taps, num_in, num_out, interpolation)) {
            PyErr_NoMemory();
        } else if (num_columns < taps.num_taps) {
            PyErr_Format(PyExc_ValueError, "coefficients has room for %zu taps, and there are %zu",
                         num_columns, taps.num_taps);
        } else {
            store_taps(&taps, firsts.buf, coefficients.buf, num_columns);
            num_taps = PyLong_FromSize_t(taps.num_taps);
        }
        free_taps(&taps);
    }
    py_release_buffer(&firsts);
    py_release_buffer(&coefficients);
    return num_taps;
}
