/* Resizing, as Python asks for it. */
#ifndef RINGFEED_PY_RESIZE_H
#define RINGFEED_PY_RESIZE_H

#include "py_arguments.h"

PY_FUNCTION(py_resize);
PY_FUNCTION(py_find_taps);

#endif
