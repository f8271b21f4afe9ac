/* Spans of a mapping, as Python hands them over and asks for them. */
#ifndef RINGFEED_PY_SPANS_H
#define RINGFEED_PY_SPANS_H

#include "py_arguments.h"
#include "spans.h"

PY_FUNCTION(py_locate);
PY_FUNCTION(py_locate_ahead);
PY_FUNCTION(py_advise);

/* Where records are to be found: a mapping, and the packed index. */
struct held_index {
    Py_buffer memory, leaves, firsts;
    struct mapping mapping;
};

/* The arguments with which every function begins that takes an index. */
enum { INDEX_MEMORY, INDEX_PAGE_BYTES, INDEX_LEAVES, INDEX_FIRSTS, NUM_INDEX_ARGUMENTS };

/* Take it from them; also where that fails, py_release_index() must follow. */
bool py_take_index(PyObject *const *arguments, struct held_index *held);
void py_release_index(struct held_index *held);

/* The numbers of records that are to be found, and where those are. */
struct held_numbers {
    Py_buffer numbers, spans;
    struct record *records;
    Py_ssize_t num;
};

/* Take the numbers, and where to store the spans; also where that fails, py_release_numbers() must
 * follow. */
bool py_take_numbers(PyObject *numbers, PyObject *spans, struct held_numbers *held);
void py_release_numbers(struct held_numbers *held);

/* Find them, without the GIL; return the position of the first that cannot be found, or num. */
Py_ssize_t py_find_records(const struct held_index *index, struct held_numbers *held);

/* Find one record, without the GIL. */
bool py_find_record(const struct held_index *held, int64_t number, struct record *record);

/* Return their keys as one bytes object. */
PyObject *py_gather_keys(const struct held_index *index, const struct held_numbers *held);

#endif
