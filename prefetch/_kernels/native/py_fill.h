/* Rows, as Python asks for them to be filled. */
#ifndef RINGFEED_PY_FILL_H
#define RINGFEED_PY_FILL_H

#include "py_arguments.h"

PY_FUNCTION(py_fill);
PY_FUNCTION(py_fill_records);
PY_FUNCTION(py_fill_image);
PY_FUNCTION(py_raw_shape);

#endif
