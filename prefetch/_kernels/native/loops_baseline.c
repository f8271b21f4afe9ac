/* The loops over pixels for every chip of the architecture. */
#define LOOPS baseline_loops
#include "loops.h"
