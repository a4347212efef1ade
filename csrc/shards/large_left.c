/* Large messages that no request goes on with: one whose client has left while it was being written, which is published
 * all the same, and one that is moved (compact.c). */
#include "shards/large_left.h"

#include <stdlib.h>

#include "log/large.h"
#include "shards/compact.h"
#include "shards/large.h"
#include "shards/opened.h"
#include "shards/publish.h"

void large_leave(struct worker *w, uint32_t client) {
    struct parked_request *first = parked_first(&client_at(&w->clients, client)->parked);
    if (!first || !first->apart || !first->topic) return;
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, first->topic));
    if (!s->large_id || s->large_id != first->message.id) return;
    s->large_left = parked_take_message(first);
    w->held_bytes += held_bytes(s->large_left);
    s->large_left_topic = first->topic;
    first->topic = 0; /* the topic stays held, for large_left_topic */
    w->larges_left = true;
}

/* Returns whether there is more; *busy: something was done. */
static bool clear(struct worker *w, struct shard *s, bool *busy) {
    if (w->now_ns < s->cut_again_ns) return true;
    bool more;
    if (log_large_clear(s->log, &more) == LOG_OK)
        *busy |= more;
    else
        s->cut_again_ns = w->now_ns + CUT_AGAIN_NS;
    return more;
}

static bool goes_on(struct worker *w, struct shard *s, bool *busy) {
    if (s->large_from) {
        shard_move_piece(w, s);
        *busy = true;
        return true;
    }
    if (!s->large_left) return clear(w, s, busy);
    if (publish(w, 0, s->large_left_topic, s->large_left) != DONE) {
        *busy = true;
        return true;
    }
    w->held_bytes -= held_bytes(s->large_left);
    free(s->large_left);
    s->large_left = NULL;
    opened_let_go(w, s->large_left_topic);
    return clear(w, s, busy);
}

bool larges_go_on(struct worker *w) {
    if (!w->larges_left) return false;
    bool more = false, busy = false;
    for (uint32_t n = 0; n < w->shards; n++) {
        if (!w->own[n]) continue;
        /* If there are many, the rest follow in the next turn. */
        if (w->walked < WORKER_TURN_WALK) {
            more |= goes_on(w, w->own[n], &busy);
        } else if (w->own[n]->large_left || log_large_goes_on(w->own[n]->log)) {
            more = busy = true;
        }
    }
    w->larges_left = more;
    return busy;
}

void larges_free(struct worker *w) {
    for (uint32_t n = 0; n < w->shards; n++)
        if (w->own[n]) free(w->own[n]->large_left);
}
