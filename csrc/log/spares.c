#define _GNU_SOURCE
#include "log/spares.h"

#include <assert.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "log/log_state.h"
#include "log/reads.h"

/* What is given back at a time. */
#define GIVEN_BACK_BYTES ((uint64_t)4 << 20)
/* A spare begins with zeros before anyone may take it for a segment. */
#define BEGINNING_BYTES ((uint64_t)READS_PAGE)

/* Notes how far the file is a segment: what lies behind is stale. */
static void note_end(int fd, uint64_t end) {
    off_t at = lseek(fd, (off_t)end, SEEK_SET);
    assert(at == (off_t)end); /* a file in memory can be positioned anywhere */
}

static void close_spare(const struct spare *spare) {
    (void)munmap(spare->map, spare->map_bytes);
    (void)close(spare->fd);
}

void spares_free(struct spares *spares) {
    while (spares->count > 0) close_spare(&spares->items[--spares->count]);
}

bool spares_keep(struct spares *spares, const struct segment *s) {
    if (spares == NULL || spares->count == SPARES_MOST || !s->copied || s->is_old || s->is_lent) return false;
    /* One that is larger than others would stay so; of one with few pages little would be gained. */
    if (s->map_bytes > SEGMENT_BYTES || s->end < s->map_bytes / 2 || s->end < BEGINNING_BYTES) return false;
    spares->items[spares->count++] = (struct spare){s->fd, s->map, s->map_bytes, s->end};
    return true;
}

int spares_next(struct spares *spares) {
    if (spares->count == spares->going) return -1;
    const struct spare *spare = &spares->items[spares->count - 1];
    memset(spare->map, 0, BEGINNING_BYTES);
    note_end(spare->fd, BEGINNING_BYTES);
    return spare->fd;
}

bool spares_use(struct spares *spares, int fd, struct segment *s) {
    if (spares == NULL || spares->count == spares->going || spares->items[spares->count - 1].fd != fd) return false;
    const struct spare *spare = &spares->items[--spares->count];
    if (spares->least > spares->count) spares->least = spares->count;
    s->copied = true;
    s->map = spare->map;
    s->map_bytes = s->capacity = spare->map_bytes;
    s->allocated = BEGINNING_BYTES;
    s->stale = spare->bytes;
    return true;
}

static void give_back(struct spares *spares) {
    struct spare *first = &spares->items[0];
    first->bytes = first->bytes > GIVEN_BACK_BYTES ? first->bytes - GIVEN_BACK_BYTES : 0;
    if (first->bytes > 0 && log_cut(first->fd, first->bytes)) return;
    close_spare(first);
    spares->count--;
    spares->going--;
    memmove(first, first + 1, spares->count * sizeof *first);
}

bool spares_trim(struct spares *spares, uint64_t now_ns) {
    if (now_ns - spares->since_ns >= SPARES_KEPT_NS) {
        if (spares->going < spares->least) spares->going = spares->least;
        spares->least = spares->count;
        spares->since_ns = now_ns;
    }
    if (spares->going > 0) give_back(spares);
    if (spares->least > spares->count) spares->least = spares->count;
    return spares->going > 0;
}

void spares_clear(struct segment *s, uint64_t target) {
    assert(s->allocated < s->stale);
    const uint64_t until = target < s->stale ? target : s->stale;
    memset(s->map + s->allocated, 0, until - s->allocated);
    s->allocated = until;
    note_end(s->fd, until < s->stale ? until : 0);
}

bool spares_cut(struct segment *s, uint64_t most) {
    if (s->allocated >= s->stale) return true;
    const uint64_t left = s->stale - s->allocated > most ? s->stale - most : s->allocated;
    if (!log_cut(s->fd, left)) return false;
    s->stale = left;
    if (left == s->allocated) note_end(s->fd, 0);
    return true;
}

bool spares_trim_log(struct log *log, uint64_t now_ns) {
    if (log->spares == NULL || log->current == NULL || log->large.at != 0) return false;
    if (now_ns - log->looked_ns >= SPARES_KEPT_NS) {
        log->is_slow = log->flushed - log->looked_at < SEGMENT_BYTES / 4;
        log->looked_at = log->flushed;
        log->looked_ns = now_ns;
    }
    for (uint32_t i = log->active; log->is_slow && i < log->count; i++) {
        struct segment *s = &log->segments[i];
        if (s->allocated < s->stale) return spares_cut(s, GIVEN_BACK_BYTES);
    }
    return false;
}
