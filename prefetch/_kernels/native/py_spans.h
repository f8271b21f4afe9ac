/* Spans of a mapping, as Python hands them over and asks for them. */
#ifndef RINGFEED_SPAN_CALLS_H
#define RINGFEED_SPAN_CALLS_H

#include "py_arguments.h"
#include "spans.h"

PyObject *locate(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments);

/* Where records are to be found: a mapping, and the packed index. */
struct held_index {
    Py_buffer memory, leaves, firsts;
    struct mapping mapping;
};

/* Take it from four arguments: memory, page_bytes, leaves, firsts; also where that fails,
 * give_back_index() has to follow. */
bool take_index(PyObject *const *arguments, struct held_index *held);
void give_back_index(struct held_index *held);

/* Which records are to be found, and where they then are. */
struct held_numbers {
    Py_buffer numbers, spans;
    struct record *records;
    Py_ssize_t num;
};

/* Take which, and where to store their spans; also where that fails, give_back_numbers() has to
 * follow. */
bool take_numbers(PyObject *numbers, PyObject *spans, struct held_numbers *held);
void give_back_numbers(struct held_numbers *held);

/* Find them, without the GIL; return the position of the first that cannot be found, or num. */
Py_ssize_t find_held_records(const struct held_index *index, struct held_numbers *held);

/* Find one record, without the GIL. */
bool find_held_record(const struct held_index *held, int64_t number, struct record *record);

/* Copy their keys together. */
PyObject *gather_keys(const struct held_index *index, const struct held_numbers *held);

#endif
