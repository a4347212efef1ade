#define _GNU_SOURCE
#include "log/pages.h"

#include <unistd.h>

#include "log/reads.h"

/* Not const, so that it takes no memory: reading it maps the kernel's one page of zeros. */
static uint8_t zeros[2 * PAGES_BYTES];

void pages_prepare(struct segment *s, size_t bytes) {
    const uint64_t end = s->end + bytes, until = (end + PAGES_BYTES) & ~(uint64_t)(PAGES_BYTES - 1);
    if (end <= s->prepared || s->copied || bytes >= PAGES_BYTES || s->end < PAGES_BYTES) return;
    /* Beyond what is allocated, writing might take disk space that others need. */
    if (until > s->allocated) return;
    const uint64_t page = (s->end + READS_PAGE - 1) & ~(uint64_t)(READS_PAGE - 1);
    const uint64_t from = s->prepared > page ? s->prepared : page;
    s->prepared = until; /* tried once, even if it fails */
    if (from >= until) return;
    ssize_t written = pwrite(s->fd, zeros, (size_t)(until - from), (off_t)from);
    (void)written;
}
