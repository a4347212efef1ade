#define _GNU_SOURCE
#include "base/stale.h"

#include <sys/mman.h>

/* What is given back begins at a multiple of this, as the kernel's pages do, whatever their size. */
enum { GRAIN_BYTES = 64 << 10 };

static size_t rounded_up(size_t bytes) {
    return (bytes + GRAIN_BYTES - 1) / GRAIN_BYTES * GRAIN_BYTES;
}

bool stale_give_back(char *base, size_t used, size_t *stale, size_t most) {
    const size_t least = rounded_up(used), until = *stale;
    const size_t from = until > least + most ? rounded_up(until - most) : least;
    if (from < until) madvise(base + from, until - from, MADV_DONTNEED);
    *stale = from < until && from > least ? from : 0;
    return *stale > 0;
}
