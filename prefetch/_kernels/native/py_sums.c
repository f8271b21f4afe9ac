/* The functions for Python that form sums of images; see prefetch/_kernels/_c.pyi. */
#include "py_sums.h"

#include <stdlib.h>

#include "sums.h"

static bool is_of_shape(const struct image *image, const struct shape *shape)
{
    return image->shape.channels == shape->channels && image->shape.height == shape->height &&
           image->shape.width == shape->width;
}

/* Return where the bytes of a raw record of some shape begin; -1 where it is anything else. */
static Py_ssize_t begin_of_bytes(const Py_buffer *record, const struct shape *shape,
                                 struct float_scratch *scratch)
{
    struct datum datum;
    struct image image;
    struct fault fault;
    if (!parse_datum(record->buf, (size_t)record->len, scratch, &datum, &fault) ||
        datum.encoded || !find_pixels(&datum, FLOAT32, &image, &fault) || image.is_float ||
        !is_of_shape(&image, shape))
        return -1;
    return image.pixels - (const uint8_t *)record->buf;
}

static PyObject *view_of_bytes(PyObject *value, Py_ssize_t begin, const struct shape *shape)
{
    if (begin < 0)
        return Py_NewRef(Py_None);
    const int64_t size = shape->channels * shape->height * shape->width; /* in the record */
    return PySequence_GetSlice(value, begin, begin + (Py_ssize_t)size);
}

PY_FUNCTION(py_find_bytes)
{
    enum { VALUES, SHAPE, NUM };
    PY_CHECK_ARITY("find_bytes", NUM);
    long long channels, height, width;
    if (!PyTuple_Check(arguments[SHAPE])) {
        PyErr_SetString(PyExc_TypeError, "shape must be a tuple");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments[SHAPE], "LLL:find_bytes", &channels, &height, &width))
        return NULL;
    const struct shape shape = {channels, height, width};
    struct held_list values;
    Py_ssize_t *begins = NULL;
    PyObject *found = NULL;
    if (py_take_list(arguments[VALUES], PyBUF_SIMPLE, &values)) {
        begins = PyMem_Malloc((size_t)values.num * sizeof *begins);
        found = begins == NULL ? PyErr_NoMemory() : PyList_New(values.num);
    }
    if (found != NULL) {
        struct float_scratch scratch = {NULL, 0};
        Py_BEGIN_ALLOW_THREADS
        for (Py_ssize_t i = 0; i < values.num; i++)
            begins[i] = begin_of_bytes(&values.views[i], &shape, &scratch);
        free(scratch.bytes);
        Py_END_ALLOW_THREADS
    }
    for (Py_ssize_t i = 0; found != NULL && i < values.num; i++) {
        PyObject *value = PyList_GetItem(values.list, i);
        PyObject *item = view_of_bytes(value, begins[i], &shape);
        if (item == NULL || PyList_SetItem(found, i, item) < 0)
            Py_CLEAR(found);
    }
    PyMem_Free(begins);
    py_release_list(&values);
    return found;
}

/* Describe the images, each of which must reach up to pixel `end`. */
static bool describe_images(const struct held_list *held, Py_ssize_t end, struct addend *images)
{
    for (Py_ssize_t i = 0; i < held->num; i++) {
        const Py_buffer *view = &held->views[i];
        const bool is_float = py_has_type(view, 'f', 4);
        if (!is_float && !py_has_type(view, 'u', 1)) {
            PyErr_SetString(PyExc_TypeError, "images must be uint8 or float32");
            return false;
        }
        if (view->len / view->itemsize < end) {
            PyErr_Format(PyExc_ValueError, "image %zd has %zd pixels, and %zd are to be added", i,
                         view->len / view->itemsize, end);
            return false;
        }
        images[i] = (struct addend){view->buf, is_float};
    }
    return true;
}

PY_FUNCTION(py_add_up)
{
    enum { IMAGES, FIRST, SUMS, NUM };
    PY_CHECK_ARITY("add_up", NUM);
    const Py_ssize_t first = PyLong_AsSsize_t(arguments[FIRST]);
    if (first == -1 && PyErr_Occurred())
        return NULL;
    Py_buffer sums = {0};
    if (!py_take_buffer(arguments[SUMS], &sums, PyBUF_CONTIG, 1, "sums"))
        return NULL;
    const bool is_wide = py_has_type(&sums, 'f', 8);
    struct held_list held = {0};
    struct addend *images = NULL;
    bool added = false;
    if (!is_wide && !py_has_type(&sums, 'f', 4))
        PyErr_SetString(PyExc_TypeError, "sums must be float32 or float64");
    else if (first < 0 || first > PY_SSIZE_T_MAX - sums.shape[0])
        PyErr_SetString(PyExc_ValueError, "first must be a pixel's number");
    else if (py_take_list(arguments[IMAGES], PyBUF_C_CONTIGUOUS | PyBUF_FORMAT, &held)) {
        images = PyMem_Malloc((size_t)held.num * sizeof *images);
        if (images == NULL) {
            PyErr_NoMemory();
        } else if (describe_images(&held, first + sums.shape[0], images)) {
            Py_BEGIN_ALLOW_THREADS
            add_images(images, (size_t)held.num, (size_t)first, (size_t)sums.shape[0], sums.buf,
                       is_wide);
            Py_END_ALLOW_THREADS
            added = true;
        }
    }
    PyMem_Free(images);
    py_release_list(&held);
    py_release_buffer(&sums);
    return added ? Py_NewRef(Py_None) : NULL;
}
