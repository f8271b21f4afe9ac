/* Having parts of a mapped file read before they are needed. */
#if defined(__unix__) || defined(__APPLE__)
#define _POSIX_C_SOURCE 200809L /* posix_madvise */
#include <sys/mman.h>
#include <unistd.h>
#endif

#include "advise.h"

#ifdef POSIX_MADV_WILLNEED
/* Linux reads no more for one request than the device's readahead, which is seldom less. */
enum { MOST_BYTES = 128 * 1024, USUAL_PAGE_BYTES = 4096 };

static uintptr_t system_page_bytes(void)
{
    const long size = sysconf(_SC_PAGESIZE);
    return size > 0 ? (uintptr_t)size : USUAL_PAGE_BYTES;
}

void advise_span(const struct mapping *mapping, int64_t begin, int64_t size)
{
    if (!is_inside(mapping, begin, size))
        return;
    /* The system takes addresses of whole pages. Where the memory is no mapping and begins within
     * a page, that one is not ours. */
    const uintptr_t page_bytes = system_page_bytes(), base = (uintptr_t)mapping->bytes;
    const uintptr_t least = (base + page_bytes - 1) / page_bytes * page_bytes;
    const uintptr_t from = (base + (uintptr_t)begin) / page_bytes * page_bytes;
    const uintptr_t end = base + (uintptr_t)begin + (uintptr_t)size;
    for (uintptr_t at = from < least ? least : from; at < end; at += MOST_BYTES) {
        const uintptr_t left = end - at;
        /* What it answers is of no use: the bytes are read anyhow, if later. */
        (void)posix_madvise((void *)at, left < MOST_BYTES ? left : MOST_BYTES,
                            POSIX_MADV_WILLNEED);
    }
}
#else
void advise_span(const struct mapping *mapping, int64_t begin, int64_t size)
{
    (void)mapping, (void)begin, (void)size;
}
#endif
