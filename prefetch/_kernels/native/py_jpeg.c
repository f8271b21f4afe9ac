/* The functions for Python that look after JPEG files; see prefetch/_kernels/_c.pyi. */
#include "py_jpeg.h"

#include <stdlib.h>

#include "jpeg_coefficients.h"
#include "jpeg_restarts.h"

PY_FUNCTION(py_splice_jpeg)
{
    enum { DATA, TOP, LEFT, HEIGHT, WIDTH, TO, NUM };
    PY_CHECK_ARITY("splice_jpeg", NUM);
    int64_t sides[4];
    for (int i = 0; i < 4; i++) {
        sides[i] = PyLong_AsLongLong(arguments[TOP + i]);
        if (sides[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    const struct jpeg_window window = {sides[0], sides[1], sides[2], sides[3]};
    struct jpeg_window covered = {0};
    size_t num_bytes = 0;
    Py_buffer data = {0}, to = {0};
    PyObject *result = NULL;
    if (PyObject_GetBuffer(arguments[DATA], &data, PyBUF_SIMPLE) == 0 &&
        PyObject_GetBuffer(arguments[TO], &to, PyBUF_WRITABLE) == 0) {
        enum restarts_outcome outcome = NO_RESTARTS;
        if (to.len < data.len)
            PyErr_SetString(PyExc_ValueError, "to must have as many bytes as data");
        else {
            Py_BEGIN_ALLOW_THREADS
            outcome = splice_window(data.buf, (size_t)data.len, &window, to.buf, &covered,
                                    &num_bytes);
            Py_END_ALLOW_THREADS
        }
        if (outcome == HAS_RESTARTS)
            result = Py_BuildValue("nLLLL", (Py_ssize_t)num_bytes, (long long)covered.top,
                                   (long long)covered.left, (long long)covered.height,
                                   (long long)covered.width);
        else if (outcome == RESTARTS_MEMORY)
            PyErr_NoMemory();
        else if (!PyErr_Occurred())
            result = Py_NewRef(Py_None);
    }
    py_release_buffer(&data);
    py_release_buffer(&to);
    return result;
}

PY_FUNCTION(py_find_restarts)
{
    enum { DATA, NUM };
    PY_CHECK_ARITY("find_restarts", NUM);
    Py_buffer data = {0};
    if (PyObject_GetBuffer(arguments[DATA], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    struct jpeg_restarts restarts;
    struct kept_header kept = {.to = NULL};
    enum restarts_outcome outcome = NO_RESTARTS;
    Py_BEGIN_ALLOW_THREADS
    if (read_restarts(data.buf, (size_t)data.len, &restarts, &kept))
        outcome = check_restarts(data.buf, (size_t)data.len, &restarts);
    Py_END_ALLOW_THREADS
    py_release_buffer(&data);
    if (outcome == RESTARTS_MEMORY)
        return PyErr_NoMemory();
    if (outcome != HAS_RESTARTS)
        return Py_NewRef(Py_None);
    return Py_BuildValue("kO", (unsigned long)restarts.interval,
                         restarts.is_stamped ? Py_True : Py_False);
}

PY_FUNCTION(py_add_restarts)
{
    enum { DATA, MOST, NUM };
    PY_CHECK_ARITY("add_restarts", NUM);
    const unsigned long most = PyLong_AsUnsignedLong(arguments[MOST]);
    Py_buffer data = {0};
    if (PyErr_Occurred() || PyObject_GetBuffer(arguments[DATA], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    struct jpeg_coefficients image;
    uint8_t *file = NULL;
    size_t size = 0;
    enum recoding outcome;
    Py_BEGIN_ALLOW_THREADS
    outcome = read_coefficients(data.buf, (size_t)data.len, &image);
    if (outcome == RECODED) {
        uint32_t interval = image.frame.mcu_columns;
        while (interval > 1 && (interval > most || image.frame.mcu_columns % interval != 0))
            interval--;
        outcome = write_coefficients(&image, interval, &file, &size);
    }
    release_coefficients(&image);
    Py_END_ALLOW_THREADS
    py_release_buffer(&data);
    if (outcome == NO_RECODING_MEMORY)
        return PyErr_NoMemory();
    if (outcome != RECODED)
        return PyLong_FromLong(outcome);
    PyObject *bytes = PyBytes_FromStringAndSize((const char *)file, (Py_ssize_t)size);
    free(file);
    return bytes;
}
