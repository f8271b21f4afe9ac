/* Sums of images, as Python asks for them. */
#ifndef RINGFEED_SUM_CALLS_H
#define RINGFEED_SUM_CALLS_H

#include "py_arguments.h"

PyObject *find_bytes(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);
PyObject *add_up(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);

#endif
