#define _GNU_SOURCE
/* A message so large that it is written to the log a piece a turn (log/large.c), while other clients are served: one
 * that is published, or one that is moved to the log's head (compact.c). A shard has one such message at a time.
 *
 * Its request, which is the message itself, is parked meanwhile, with all later requests of its connection. Pieces that
 * have been written are given back to the kernel. The message is published when all of it is in the log; messages
 * published before that come before it.
 */
#include "shards/large.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "log/large.h"
#include "shards/naming.h"
#include "shards/room.h"

enum { PAGE_BYTES = 4096, AT_ONCE = 4 };

void large_give_back(const uint8_t *from, const uint8_t *until) {
    uintptr_t begin = ((uintptr_t)from + PAGE_BYTES - 1) & ~(uintptr_t)(PAGE_BYTES - 1);
    uintptr_t end = (uintptr_t)until & ~(uintptr_t)(PAGE_BYTES - 1);
    if (begin < end) (void)madvise((void *)begin, end - begin, MADV_DONTNEED);
}

static enum outcome begin(struct worker *w, struct shard *s, uint32_t topic, const struct large_message *large,
                          uint8_t *status) {
    enum log_result result =
        shard_begin_large(w, s, topic, large->attribute_bytes, large->content_bytes, large->behind_bytes);
    if (large->from && result != LOG_OK) return LATER; /* nobody waits for it */
    /* A client that waits for a segment must not keep its acceptor's other clients waiting. */
    if (room_reserved(w, s, result, true, status) == LATER) return MORE;
    if (*status != STATUS_OK) return DONE;
    s->large_id = large->id;
    s->large_staged_topic = large->is_staged ? topic : 0;
    s->large_from = large->from;
    s->large_behind_bytes = large->behind_bytes;
    w->larges_left |= large->from != 0;
    return MORE;
}

static enum outcome fail(struct worker *w, struct shard *s, uint8_t *status) {
    large_forget(w, s, s->large_id);
    *status = STATUS_NO_SPACE;
    return DONE;
}

uint64_t large_written(const struct shard *s, uint64_t id) {
    return s->large_id == id ? log_large_written(s->log) : 0;
}

/* Whether it is this message that is being written. */
static bool is_begun(const struct shard *s, const struct large_message *large) {
    return s->large_id == large->id && s->large_from == large->from;
}

enum outcome large_write(struct worker *w, uint32_t topic, const struct large_message *large, uint8_t *status) {
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    if (s->large_id ? !is_begun(s, large) : log_large_goes_on(s->log)) return MORE;
    if (!s->large_id) return begin(w, s, topic, large, status);
    uint64_t left = log_large_left(s->log);
    if (left > large->content_bytes) return fail(w, s, status); /* this is not the message that was begun */
    if (!left) {
        *status = STATUS_OK;
        return shard_end_large(w, s, topic, large->beside_bytes) == LOG_OK ? DONE : fail(w, s, status);
    }
    size_t bytes = left < LARGE_PIECE_BYTES ? (size_t)left : LARGE_PIECE_BYTES;
    const uint8_t *from = large->content + (large->content_bytes - left);
    if (!log_large_write(s->log, from, bytes)) {
        w->no_space = true;
        return fail(w, s, status);
    }
    /* The beginning of the first piece of a request is read again. */
    if (left < large->content_bytes && !large->is_staged && !large->from) large_give_back(from, from + bytes);
    worker_walk(w, WORKER_TURN_WALK / AT_ONCE);
    return MORE;
}

void large_forget(struct worker *w, struct shard *s, uint64_t id) {
    if (!s->large_id || s->large_id != id) return;
    s->large_id = s->large_from = 0;
    s->large_staged_topic = 0;
    s->large_is_kept = false;
    log_large_drop(s->log);
    w->larges_left = true;
}

bool large_waits(const struct worker *w, uint32_t client, const struct message *m) {
    bool is_full = w->held_bytes > 0 && w->held_bytes + held_bytes(m) > HELD_MOST_BYTES;
    if (!is_full || held_bytes(m) == 0 || !(w->clients.lines[LINE_UNFINISHED].first || w->larges_left)) return false;
    const struct client *c = client_at(&w->clients, client);
    /* A message behind a long wait of its client is parked all the same: other clients must not wait that long. */
    return !c->waiting && (m->body_bytes >= LARGE_BYTES || client_is_in(c, LINE_UNFINISHED) || parked_any(&c->parked));
}
