/* What Python hands over: arrays as buffers, checked, and a Recipe. Whoever answers false has
 * raised a Python exception and holds nothing. */
#ifndef RINGFEED_ARGUMENTS_H
#define RINGFEED_ARGUMENTS_H

#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernels.h"

/* The type of an array's elements in a word: its kind, and its size in bytes. */
struct element_type {
    char kind; /* 'i' integer, 'u' unsigned, 'f' floating, '?' anything else */
    Py_ssize_t size;
};

struct element_type element_type(const Py_buffer *view);
bool has_type(const Py_buffer *view, char kind, Py_ssize_t size);

/* Take a buffer of some number of axes; view->obj is NULL where that fails. */
bool take(PyObject *array, Py_buffer *view, int flags, int num_axes, const char *name);

/* Give a buffer back that may not have been taken. */
void give_back(Py_buffer *view);

/* Find the type of rows. */
bool describe_rows(const Py_buffer *view, enum element *element);

/* Find the shape of rows, given that of one in the layout of the batch. */
bool find_row_shape(const Py_ssize_t *sample, const struct recipe *recipe, struct shape *shape);

/* Check that random words are that, three along an axis. */
bool check_words(const Py_buffer *view, int axis);

/* A Recipe with the buffers that it refers to. */
struct held_recipe {
    struct recipe recipe;
    Py_buffer mean_values, scales, mean_image;
};

bool take_recipe(PyObject *tuple, enum element element, struct held_recipe *held);
void give_back_recipe(struct held_recipe *held);

#endif
