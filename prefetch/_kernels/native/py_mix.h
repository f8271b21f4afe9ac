/* Mixing a batch with itself, as Python asks for it. */
#ifndef RINGFEED_PY_MIX_H
#define RINGFEED_PY_MIX_H

#include "py_arguments.h"

PY_FUNCTION(py_mix_rows);
PY_FUNCTION(py_swap_boxes);

#endif
