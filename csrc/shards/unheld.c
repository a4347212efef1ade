/* What a subscription that was set back does not hold: the messages between its cursor and `held_from`, where the
 * cursor was before. It takes those that are retained back as it passes them. If it is durable, segments with that
 * range are kept meanwhile: it is pinned. Memory only.
 */
#include "shards/unheld.h"

#include "shards/delivery.h"
#include "shards/known.h"
#include "shards/shard.h"
#include "shards/stream.h"
#include "shards/unreadable.h"

bool position_front(struct worker *w, uint32_t subscription, uint64_t until, uint64_t *seq) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint64_t end = s->held_from < until ? s->held_from : until, oldest = retained_oldest(subscription_shard(w, s));
    while (s->cursor < end) {
        uint64_t next = stream_next_place(&t->stream, s->cursor, oldest);
        s->cursor = next < end ? next : end;
        if (next >= end) return false;
        /* A delayed message that is not due yet has a delivery already. */
        bool delayed = stream_delayed(&t->stream, next);
        const struct record *r = delayed ? message_head(w, t, next) : NULL;
        if (!r || !delivery_find(w, subscription, r->id)) {
            *seq = next;
            return true;
        }
        s->cursor++;
    }
    return false;
}

void position_pass(struct worker *w, uint32_t subscription) {
    const struct subscription *s = worker_subscription(w, subscription);
    struct topic *t = subscription_topic(w, s);
    if (s->reader || !stream_take_back(&t->stream, s->cursor)) return;
    /* The job queue may still have a message that its topic kept and released; it counts once. */
    const struct record *r = t->tube ? message_head(w, t, s->cursor) : NULL;
    uint32_t job = r ? index_find(&w->ids, &w->jobs, r->id) : 0;
    if (!job) {
        shard_count_back(subscription_shard(w, s), stream_position(&t->stream, s->cursor));
        return;
    }
    stream_hold(&t->stream, s->cursor);
    stream_move(&t->stream, s->cursor, job_at(w, job)->position);
}

uint64_t position_depth(const struct worker *w, const struct subscription *s) {
    const struct topic *t = subscription_topic(w, s);
    uint64_t horizon = subscription_horizon(t);
    return stream_count(&t->stream, s->cursor, s->held_from < horizon ? s->held_from : horizon);
}

void subscription_pin(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    if (s->pinned || !s->number || s->cursor >= s->held_from) return;
    s->pinned = true;
    s->next_pinned = subscription_shard(w, s)->pinned;
    subscription_shard(w, s)->pinned = subscription;
}

void subscription_unpin(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    uint32_t *link = &subscription_shard(w, s)->pinned;
    if (!s->pinned) return;
    while (*link != subscription) link = &worker_subscription(w, *link)->next_pinned;
    *link = s->next_pinned;
    s->pinned = false;
}

uint32_t shard_pinned_segment(struct worker *w, struct shard *s) {
    uint64_t lowest = UINT64_MAX;
    for (uint32_t n = s->pinned, next; n; n = next) {
        const struct subscription *of = worker_subscription(w, n);
        next = of->next_pinned;
        if (of->cursor >= of->held_from) {
            subscription_unpin(w, n);
            continue;
        }
        uint64_t position = stream_lowest(&subscription_topic(w, of)->stream, of->cursor, of->held_from);
        if (position < lowest) lowest = position;
    }
    return (uint32_t)(lowest >> 32);
}
