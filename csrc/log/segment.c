#define _GNU_SOURCE
/* A segment's file and mapping, whatever the log does with them. */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log/log_state.h"

bool log_cut(int fd, uint64_t offset) {
    int rc;
    do rc = ftruncate(fd, (off_t)offset);
    while (rc < 0 && errno == EINTR);
    return rc == 0;
}

void segment_map_again(const struct segment *s, uint64_t from, uint64_t bytes) {
    int access = s->copied ? PROT_READ | PROT_WRITE : PROT_READ;
    void *place = s->map + from;
    if (mmap(place, bytes, access, MAP_SHARED | MAP_FIXED, s->fd, (off_t)from) != place) abort();
}
