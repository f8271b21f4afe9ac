/* Spans of a mapping, as Python hands them over and asks for them. */
#ifndef RINGFEED_SPAN_CALLS_H
#define RINGFEED_SPAN_CALLS_H

#include "arguments.h"

PyObject *locate(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);
PyObject *gather(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);

/* Records given as spans of some memory, and the buffers that they lie in. */
struct held_spans {
    Py_buffer memory, begins, sizes;
    struct record *records;
    Py_ssize_t num;
};

/* Take records; also where that fails, give_back_spans() has to follow. */
bool take_spans(PyObject *memory, PyObject *begins, PyObject *sizes, struct held_spans *held);
void give_back_spans(struct held_spans *held);

#endif
