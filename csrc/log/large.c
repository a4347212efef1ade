#define _GNU_SOURCE
/* A record whose body is written in pieces, to the segment that waits, while other records are appended to the active
 * segment.
 *
 * The body is written first, at an offset that leaves room for what a segment begins with. Nobody sees it there, as a
 * file without a header does not count as a segment. When the body is whole the log switches to that segment: its
 * header, the records that come before, and the record's head are appended as usual, up to where the body begins. The
 * log's tail is then behind the body.
 */
#include "log/large.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "log/group.h"
#include "log/log_state.h"
#include "log/reads.h"

/* How much of a dropped body is cut off at a time. */
#define CLEARED_BYTES ((uint64_t)16 << 20)

static uint64_t aligned(uint64_t bytes) {
    return (bytes + 7) & ~(uint64_t)7;
}

/* The bytes of the record's head, which is written last of all. */
static uint64_t head_bytes(const struct large *l) {
    return l->is_group ? 0 : sizeof(struct record) + l->attribute_bytes;
}

static enum log_result begin(struct log *log, struct large l, uint64_t before, uint64_t keep_bytes) {
    assert(log->large.at == 0);
    if (before > LOG_RESERVE_BYTES || l.bytes > LOG_RESERVE_BYTES || keep_bytes > LOG_RESERVE_BYTES)
        return LOG_NO_SPACE;
    if (log->current == NULL || !log->current->end_known) return LOG_FAILING;
    l.at = LOG_HEADER_BYTES + aligned(before) + head_bytes(&l);
    l.end = aligned(l.at + l.bytes) + keep_bytes;
    if (l.end > SEGMENT_MAX_BYTES) return LOG_NO_SPACE;
    struct segment *next = log_waiting_for(log, l.end);
    if (next == NULL) return LOG_NO_SPACE;
    if (!spares_cut(next, UINT64_MAX)) return LOG_FAILING;
    /* Memory (tmpfs) is cleared as it is allocated, which takes long: it is allocated as the body is written. */
    enum log_result result = log_allocate(log, next, next->copied ? l.at : l.end);
    if (result == LOG_OK) log->large = l;
    return result;
}

enum log_result log_large_begin(struct log *log, uint64_t before, uint8_t attribute_bytes, uint64_t body_bytes,
                                uint64_t keep_bytes) {
    return begin(log, (struct large){.bytes = body_bytes, .attribute_bytes = attribute_bytes}, before, keep_bytes);
}

enum log_result log_group_begin(struct log *log, uint64_t before, uint64_t bytes, uint64_t keep_bytes) {
    uint8_t *gathering = malloc(LOG_GROUP_PIECE);
    if (gathering == NULL) return LOG_NO_SPACE;
    const struct large group = {.bytes = bytes, .is_group = true, .gathering = gathering};
    enum log_result result = begin(log, group, before, keep_bytes);
    if (result != LOG_OK) free(gathering);
    return result;
}

/* Forgets the large record, or the group. */
static void forget(struct log *log) {
    free(log->large.gathering);
    log->large = (struct large){0};
}

bool log_write_at(struct log *log, const struct segment *s, const void *data, size_t bytes, uint64_t offset) {
    for (size_t done = 0; done < bytes;) {
        ssize_t n = log_write_out(s, (const uint8_t *)data + done, bytes - done, offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            log->error = n < 0 ? errno : ENOSPC;
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

bool log_large_write(struct log *log, const void *data, size_t bytes) {
    struct large *l = &log->large;
    struct segment *s = &log->segments[log->active + 1];
    assert(l->at != 0 && !l->dropped && bytes <= l->bytes - l->written);
    if (!log_write_at(log, s, data, bytes, l->at + l->written)) return false;
    l->crc = crc32c_extend(l->crc, data, bytes);
    l->written += bytes;
    if (s->copied && s->allocated < l->at + l->written) s->allocated = l->at + l->written;
    return true;
}

bool log_large_goes_on(const struct log *log) {
    return log->large.at != 0;
}

uint64_t log_large_left(const struct log *log) {
    return log->large.bytes - log->large.written;
}

uint64_t log_large_written(const struct log *log) {
    return log->large.written;
}

uint64_t log_large_room(const struct log *log) {
    return log->large.at - head_bytes(&log->large) - (log->large.switched ? tail_of(log) : LOG_HEADER_BYTES);
}

bool log_large_switched(const struct log *log) {
    return log->large.switched;
}

enum log_result log_large_switch(struct log *log, uint64_t now_wall_ns) {
    const struct large l = log->large;
    assert(l.at != 0 && l.written == l.bytes && !l.switched && !l.dropped);
    enum log_result result = log_allocate(log, &log->segments[log->active + 1], l.end);
    if (result != LOG_OK) return result;
    log->large.at = 0; /* so that this segment counts as waiting again */
    result = log_switch_segment(log, true, now_wall_ns);
    log->large = l;
    log->large.switched = result == LOG_OK;
    /* Else pages_prepare would write its zeros over the body. */
    if (result == LOG_OK) log->current->prepared = l.at + l.bytes;
    return result;
}

void log_large_join(struct log *log) {
    const struct large l = log->large;
    assert(log->base == l.at && log->to == 0);
    log->base = aligned(l.at + l.bytes);
    log->current->end = log->base;
    log->flushed += log->base - l.at;
    log->current->mark = log->flushed;
    forget(log);
}

log_position log_large_append(struct log *log, const struct record *head, const void *attributes) {
    const struct large l = log->large;
    struct segment *s = log->current;
    const size_t bytes = sizeof *head + head->attribute_bytes;
    assert(l.switched && head->attribute_bytes == l.attribute_bytes && log_large_room(log) == 0);
    assert(head->kind != 0 && log->to + bytes <= log->staging_bytes);

    uint8_t *p = log->staging + log->to;
    struct record r = *head;
    r.bytes = (uint32_t)(bytes + l.bytes);
    r.crc = s->number;
    memcpy(p, &r, sizeof r);
    if (head->attribute_bytes > 0) memcpy(p + sizeof r, attributes, head->attribute_bytes);
    uint32_t crc = crc_joined(crc32c_extend(0, p, bytes), l.crc, l.bytes);
    memcpy(p + offsetof(struct record, crc), &crc, sizeof crc);

    log_position position = (uint64_t)s->number << 32 | tail_of(log);
    log->to += bytes;
    log->reserved = 0;
    if (log_flush(log) != LOG_OK) return 0;
    log_large_join(log);
    log->records++;
    return position;
}

bool log_map_apart(const struct log *log, const void *bytes, size_t count, uint8_t **map, size_t *map_bytes,
                   const uint8_t **at) {
    for (uint32_t i = 0; i < log->count; i++) {
        struct segment *s = &log->segments[i];
        uintptr_t offset = (uintptr_t)bytes - (uintptr_t)s->map;
        if (offset >= s->end || count > s->end - offset) continue;
        size_t before = offset % READS_PAGE;
        void *place = mmap(NULL, before + count, PROT_READ, MAP_SHARED, s->fd, (off_t)(offset - before));
        if (place == MAP_FAILED) return false;
        s->is_lent = true;
        *map = place;
        *map_bytes = before + count;
        *at = *map + before;
        return true;
    }
    return false;
}

void log_large_drop(struct log *log) {
    assert(log->large.at != 0 && !log->large.switched);
    log->large.dropped = true;
}

enum log_result log_large_clear(struct log *log, bool *more) {
    struct large *l = &log->large;
    *more = l->dropped;
    if (!l->dropped) return LOG_OK;
    struct segment *s = &log->segments[log->active + 1];
    uint64_t end = l->at + l->written, left = end > CLEARED_BYTES ? end - CLEARED_BYTES : 0;
    if (!log_cut(s->fd, left)) return LOG_FAILING;
    l->written = left > l->at ? left - l->at : 0;
    if (left >= l->at && left > 0) return LOG_OK;
    if (left > 0 && !log_cut(s->fd, 0)) return LOG_FAILING;
    s->allocated = 0;
    forget(log);
    *more = false;
    return LOG_OK;
}
