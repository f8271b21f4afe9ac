/* Sums of images, as Python asks for them. */
#ifndef RINGFEED_PY_SUMS_H
#define RINGFEED_PY_SUMS_H

#include "py_arguments.h"

PY_FUNCTION(py_find_bytes);
PY_FUNCTION(py_add_up);

#endif
