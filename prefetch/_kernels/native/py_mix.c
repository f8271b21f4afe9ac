/* The functions for Python that mix a batch with itself; see prefetch/_kernels/_c.pyi. */
#include "py_mix.h"

#include "mix.h"

PY_FUNCTION(py_mix_rows)
{
    enum { ROWS, LAM, NUM };
    PY_CHECK_ARITY("mix_rows", NUM);
    const double lam = PyFloat_AsDouble(arguments[LAM]);
    if (lam == -1.0 && PyErr_Occurred())
        return NULL;
    if (!(lam >= 0.0 && lam <= 1.0)) {
        PyErr_SetString(PyExc_ValueError, "lam must be 0 to 1");
        return NULL;
    }
    Py_buffer rows = {0};
    if (!py_take_buffer(arguments[ROWS], &rows, PyBUF_CONTIG, 2, "rows"))
        return NULL;
    enum element element;
    bool is_right = py_find_element(&rows, &element);
    if (is_right && element == UINT8) {
        PyErr_SetString(PyExc_TypeError, "rows of uint8 cannot be mixed by weighted sums");
        is_right = false;
    }
    if (is_right) {
        Py_BEGIN_ALLOW_THREADS
        mix_rows(rows.buf, (size_t)rows.shape[0], (size_t)rows.shape[1], element, (float)lam);
        Py_END_ALLOW_THREADS
    }
    py_release_buffer(&rows);
    return is_right ? Py_NewRef(Py_None) : NULL;
}

/* Read the two ends of a range within 0 to `end`. */
static bool take_range(PyObject *first, PyObject *last, Py_ssize_t end, size_t *from, size_t *to,
                       const char *name)
{
    const Py_ssize_t begin = PyLong_AsSsize_t(first);
    const Py_ssize_t stop = begin == -1 && PyErr_Occurred() ? -1 : PyLong_AsSsize_t(last);
    if (PyErr_Occurred())
        return false;
    if (begin < 0 || stop < begin || stop > end) {
        PyErr_Format(PyExc_ValueError, "the box's %s are %zd to %zd, and there are %zd", name,
                     begin, stop, end);
        return false;
    }
    *from = (size_t)begin;
    *to = (size_t)stop;
    return true;
}

PY_FUNCTION(py_swap_boxes)
{
    enum { ROWS, TOP, BOTTOM, LEFT, RIGHT, NUM };
    PY_CHECK_ARITY("swap_boxes", NUM);
    Py_buffer rows = {0};
    if (!py_take_buffer(arguments[ROWS], &rows, PyBUF_CONTIG, 4, "rows"))
        return NULL;
    struct byte_box box;
    bool is_right = py_has_type(&rows, 'u', 1);
    if (!is_right)
        PyErr_SetString(PyExc_TypeError, "rows must be uint8");
    is_right = is_right &&
               take_range(arguments[TOP], arguments[BOTTOM], rows.shape[2], &box.top, &box.bottom,
                          "lines") &&
               take_range(arguments[LEFT], arguments[RIGHT], rows.shape[3], &box.left, &box.right,
                          "bytes of a line");
    if (is_right) {
        const struct lines lines = {(size_t)rows.shape[1], (size_t)rows.shape[2],
                                    (size_t)rows.shape[3]};
        Py_BEGIN_ALLOW_THREADS
        swap_boxes(rows.buf, (size_t)rows.shape[0], &lines, &box);
        Py_END_ALLOW_THREADS
    }
    py_release_buffer(&rows);
    return is_right ? Py_NewRef(Py_None) : NULL;
}
