/* The function for Python that resizes; see prefetch/_kernels/_c.pyi. */
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
    if (!PyArg_ParseTuple(tuple, "nnnn:resize", &numbers[0], &numbers[1], &numbers[2],
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
    const Py_ssize_t line = shape[2] * (strides[2] == 1 ? 1 : shape[0]);
    const bool is_planar = strides[2] == 1 && strides[0] >= 0;
    const bool is_interleaved = strides[2] == shape[0] && (strides[0] == 1 || shape[0] == 1);
    if ((!is_planar && !is_interleaved) || strides[1] < (shape[1] > 1 ? line : 0)) {
        PyErr_SetString(PyExc_ValueError, "image must be planar, or have its channels side by "
                                          "side; copy it first");
        return false;
    }
    *image = (struct image){
        .pixels = view->buf,
        .shape = {shape[0], shape[1], shape[2]},
        .channel_step = (size_t)strides[0],
        .row_step = (size_t)strides[1],
        .pixel_step = (size_t)strides[2],
    };
    return true;
}

/* Take (height, width), from 1; sizes are those of images, so that sums of them cannot overflow. */
static bool take_size(PyObject *tuple, size_t *height, size_t *width)
{
    Py_ssize_t numbers[2];
    if (!PyTuple_Check(tuple)) {
        PyErr_SetString(PyExc_TypeError, "size must be a tuple");
        return false;
    }
    if (!PyArg_ParseTuple(tuple, "nn:resize", &numbers[0], &numbers[1]))
        return false;
    if (numbers[0] < 1 || numbers[1] < 1 || numbers[0] > INT32_MAX || numbers[1] > INT32_MAX) {
        PyErr_Format(PyExc_ValueError, "size (%zd, %zd) must be (height, width), from 1 below 2^31",
                     numbers[0], numbers[1]);
        return false;
    }
    *height = (size_t)numbers[0];
    *width = (size_t)numbers[1];
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
        take_size(arguments[SIZE], &height, &width) &&
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
