/* Having parts of a mapped file read before they are needed. */
#ifndef RINGFEED_ADVISE_H
#define RINGFEED_ADVISE_H

#include "spans.h"

/* Ask the system to read a span of a mapping, and return without waiting for it; one that does not
 * lie inside is passed over. A request, and nothing else: no byte is touched. */
void advise_span(const struct mapping *mapping, int64_t begin, int64_t size);

#endif
