/* Spans of a mapping, as Python hands them over and asks for them. */
#ifndef RINGFEED_SPAN_CALLS_H
#define RINGFEED_SPAN_CALLS_H

#include "arguments.h"
#include "spans.h"

PyObject *locate(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);

/* Records that are to be found through the packed index, and the buffers that they lie in. */
struct held_index {
    Py_buffer memory, leaves, firsts, numbers, spans;
    struct mapping mapping;
    struct record *records; /* once found */
    Py_ssize_t num;
};

/* Take where records are to be found, from four arguments: memory, page_bytes, leaves, firsts; also
 * where that fails, give_back_index() has to follow. */
bool take_index(PyObject *const *arguments, struct held_index *held);

/* Take which records, and where to store their spans. */
bool take_numbers(PyObject *numbers, PyObject *spans, struct held_index *held);
void give_back_index(struct held_index *held);

/* Find them, without the GIL; return the position of the first that cannot be found, or num. */
Py_ssize_t find_held_records(struct held_index *held);

/* Find one record, without the GIL. */
bool find_held_record(const struct held_index *held, int64_t number, struct record *record);

/* Copy their keys together. */
PyObject *gather_keys(const struct held_index *held);

#endif
