#define _GNU_SOURCE
#include "log/unproven.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "log/log_state.h"
#include "log/reads.h"
#include "log/records.h"

/* Records are longer than this, so no two of them begin in one such piece of a segment. */
enum { PIECE = 32 };
_Static_assert(PIECE < sizeof(struct record), "a bit for each piece tells records apart");

struct unproven {
    struct heads *heads;
    bool is_over;      /* recovery is, */
    uint32_t *checked; /* ... and this has a bit for each piece: the record that begins there is whole */
};

static const struct record NOTHING;

void unproven_free(struct unproven *u) {
    if (!u) return;
    heads_close(u->heads);
    free(u->checked);
    free(u);
}

static bool touch(const struct segment *s, const struct record *r, size_t bytes) {
    const uint8_t *failed;
    if (reads_touch(r, bytes, &failed)) return true;
    size_t page_bytes;
    const uint64_t page = (uint64_t)(reads_page(failed, &page_bytes) - s->map);
    segment_map_again(s, page, page_bytes);
    return false;
}

/* Whether the segment has a record's head as the heads have it. */
static bool has_head(const struct segment *s, uint64_t offset, const struct record *head) {
    const struct record *r = (const struct record *)(const void *)(s->map + offset);
    const uint32_t bytes = record_kept_bytes(head);
    return bytes <= s->end - offset && touch(s, r, bytes) && memcmp(r, head, bytes) == 0;
}

/* It takes one page, and tells a segment that was written to again since its heads were. */
static bool ends_with(const struct segment *s, const struct heads *heads) {
    uint32_t offset;
    const struct record *last = heads_last(heads, &offset);
    return has_head(s, offset, last);
}

enum heads_found log_use_heads(struct log *log, int fd, uint32_t segment) {
    struct segment *s = segment_find(log, segment);
    struct segment_header of;
    if (!s || s == log->current || s->unproven || s->header_damaged || s->is_old) return HEADS_OTHER;
    const uint64_t end = log_expected_end(log, segment);
    if (end <= LOG_HEADER_BYTES || end > s->end || pread(s->fd, &of, sizeof of, 0) != (ssize_t)sizeof of)
        return HEADS_OTHER;
    struct heads *heads;
    enum heads_found found = heads_open(fd, &of, end, &heads);
    if (found != HEADS_FOUND) return found;
    if (!log->proving) log->proving = calloc(1, sizeof *log->proving);
    struct unproven *u = log->proving && ends_with(s, heads) ? calloc(1, sizeof *u) : NULL;
    if (!u) {
        heads_close(heads);
        return HEADS_OTHER;
    }
    u->heads = heads;
    s->unproven = u;
    s->end = end;
    s->end_known = true;
    copies_close(&s->copies);
    return HEADS_FOUND;
}

bool log_has_heads(const struct log *log, uint32_t segment) {
    const struct segment *s = segment_find(log, segment);
    return s && s->unproven;
}

const struct record *log_next_head(const struct log *log, uint32_t segment, uint64_t *at, log_position *position) {
    uint32_t offset = 0;
    const struct record *r = heads_next(segment_find(log, segment)->unproven->heads, at, &offset);
    *position = (log_position)segment << 32 | offset;
    return r;
}

void log_heads_over(struct log *log) {
    for (uint32_t i = 0; i < log->count; i++) {
        struct unproven *u = log->segments[i].unproven;
        if (!u) continue;
        u->is_over = true;
        heads_rest(u->heads);
        u->checked = calloc(log->segments[i].end / PIECE / 32 + 1, sizeof *u->checked);
    }
}

/* --- in use ------------------------------------------------------------------------------------------------------- */

static bool is_known(const struct unproven *u, uint64_t offset) {
    const uint64_t piece = offset / PIECE;
    return u->checked && (u->checked[piece / 32] >> piece % 32 & 1);
}

static void know(struct unproven *u, uint64_t offset) {
    const uint64_t piece = offset / PIECE;
    if (u->checked) u->checked[piece / 32] |= (uint32_t)1 << piece % 32;
}

const struct record *unproven_record(const struct segment *s, uint64_t offset) {
    const struct record *r = (const struct record *)(const void *)(s->map + offset);
    if (is_known(s->unproven, offset)) return r;
    const struct record *head = heads_find(s->unproven->heads, offset);
    if (!head) return &NOTHING;
    if (!s->unproven->is_over) return head;
    return has_head(s, offset, head) ? r : &NOTHING;
}

static bool is_in(const struct segment *s, const struct record *r) {
    return (uintptr_t)r - (uintptr_t)s->map < s->map_bytes;
}

static const struct segment *segment_of(const struct log *log, const struct record *r) {
    const uint32_t last = *log->proving;
    if (last < log->count && is_in(&log->segments[last], r)) return &log->segments[last];
    for (uint32_t i = 0; i < log->count; i++) {
        if (!is_in(&log->segments[i], r)) continue;
        *log->proving = i;
        return &log->segments[i];
    }
    return NULL;
}

bool unproven_is_whole(const struct log *log, const struct record *r) {
    const struct segment *s = segment_of(log, r);
    if (!s || !s->unproven || !s->unproven->is_over) return true;
    const uint64_t offset = (uint64_t)((const uint8_t *)r - s->map);
    if (is_known(s->unproven, offset)) return true;
    const uint32_t start[2] = {r->bytes, s->number};
    const uint32_t crc = crc32c_extend(0, start, sizeof start);
    if (crc32c_extend(crc, (const uint8_t *)r + sizeof start, r->bytes - sizeof start) != r->crc) return false;
    know(s->unproven, offset);
    return true;
}
