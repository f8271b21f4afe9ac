/* Rows, as Python asks for them to be filled. */
#ifndef RINGFEED_FILL_CALLS_H
#define RINGFEED_FILL_CALLS_H

#include "py_arguments.h"

PyObject *fill(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);
PyObject *fill_records(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);
PyObject *fill_image(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);
PyObject *raw_shape(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);

#endif
