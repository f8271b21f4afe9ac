/* What Python hands over: buffers, checked, and a Recipe. A function that returns false has raised
 * a Python exception. */
#ifndef RINGFEED_PY_ARGUMENTS_H
#define RINGFEED_PY_ARGUMENTS_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernels.h"

/* A function for Python: METH_FASTCALL, positional arguments only. Each names the positions of its
 * arguments by an enum whose last member is their number. */
#define PY_FUNCTION(name) \
    PyObject *name(PyObject *module, PyObject *const *arguments, Py_ssize_t num_arguments)

/* The first line of such a function: return unless it was called with as many arguments. */
#define PY_CHECK_ARITY(name, expected)                                \
    do {                                                              \
        (void)module;                                                 \
        if (num_arguments != (expected))                              \
            return py_set_arity_error(name, expected, num_arguments); \
    } while (0)

/* Raise TypeError; always NULL. */
PyObject *py_set_arity_error(const char *name, Py_ssize_t expected, Py_ssize_t found);

/* The type of an array's elements: its kind, and its size in bytes. */
struct element_type {
    char kind; /* 'i' integer, 'u' unsigned, 'f' floating, '?' anything else */
    Py_ssize_t size;
};

struct element_type py_element_type(const Py_buffer *view);
bool py_has_type(const Py_buffer *view, char kind, Py_ssize_t size);

/* Get a buffer of some number of axes; view->obj is NULL where that fails. */
bool py_take_buffer(PyObject *array, Py_buffer *view, int flags, int num_axes, const char *name);

/* Release a buffer, if it was taken: view->obj is not NULL. */
void py_release_buffer(Py_buffer *view);

/* A sequence, and the buffers of its items. */
struct held_list {
    PyObject *list; /* a list of our own: nobody can change it while the GIL is released */
    Py_buffer *views; /* num of them are held */
    Py_ssize_t num;
};

/* Take the buffers of a sequence's items; also where that fails, py_release_list() must follow. */
bool py_take_list(PyObject *sequence, int flags, struct held_list *held);
void py_release_list(struct held_list *held);

/* Find which type of rows an array is of. */
bool py_find_element(const Py_buffer *view, enum element *element);

/* Find the shape of rows, given that of one in the layout of the batch. */
bool py_find_row_shape(const Py_ssize_t *sample, const struct recipe *recipe, struct shape *shape);

/* Check that an array holds at least as many random words along an axis. */
bool py_check_words(const Py_buffer *view, int axis, size_t least);

/* A Recipe with the buffers that it refers to. */
struct held_recipe {
    struct recipe recipe;
    Py_buffer mean_values, scales, mean_image, noise;
};

/* Take a Recipe for rows of some type; holds nothing where it fails. */
bool py_take_recipe(PyObject *tuple, enum element element, struct held_recipe *held);
void py_release_recipe(struct held_recipe *held);

#endif
