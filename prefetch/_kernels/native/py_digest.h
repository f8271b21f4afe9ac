/* The function for Python that makes digests. */
#ifndef RINGFEED_PY_DIGEST_H
#define RINGFEED_PY_DIGEST_H

#include "py_arguments.h"

PY_FUNCTION(py_digest);

#endif
