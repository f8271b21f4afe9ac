/* The functions for Python that look after JPEG files; see prefetch/_kernels/_c.pyi. */
#ifndef RINGFEED_PY_JPEG_H
#define RINGFEED_PY_JPEG_H

#include "py_arguments.h"

PY_FUNCTION(py_splice_jpeg);
PY_FUNCTION(py_find_restarts);
PY_FUNCTION(py_add_restarts);

#endif
