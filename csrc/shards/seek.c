/* Where a subscription may begin among its topic's messages, and how it is moved there. Memory only. */
#include "shards/seek.h"

#include "shards/consumer.h"
#include "shards/delivery.h"
#include "shards/due.h"
#include "shards/known.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/unheld.h"
#include "shards/unreadable.h"

static uint64_t later_of(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* The first message there is. `keeps`: the subscription RETENTION_NAME; 0: every message in the segments is there. */
static uint64_t earliest(const struct worker *w, const struct topic *t, uint32_t keeps) {
    uint64_t oldest = retained_oldest(shard_of_topic(w, t)), first = stream_next_place(&t->stream, 0, oldest);
    if (!keeps || !worker_subscription(w, keeps)->passed_by_age || first >= worker_subscription(w, keeps)->cursor)
        return first;
    uint64_t kept = stream_next_place(&t->stream, worker_subscription(w, keeps)->cursor, oldest);
    uint64_t held = stream_next(&t->stream, 0);
    return held < kept ? held : kept;
}

/* The first message published at that time or later: by bisection, as times rise with seqs. */
static uint64_t find_time(const struct worker *w, const struct topic *t, uint64_t time_ns, uint32_t keeps) {
    uint64_t oldest = retained_oldest(shard_of_topic(w, t));
    uint64_t low = earliest(w, t, keeps), high = t->next_seq;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        uint64_t next = stream_next_place(&t->stream, middle, oldest);
        const struct record *r = next < high ? message_head(w, t, next) : NULL;
        if (r && r->time_ns < time_ns)
            low = next + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t position_find(const struct worker *w, const struct topic *t, uint32_t start, uint64_t seq, uint32_t keeps) {
    uint64_t found = t->next_seq;
    if (start == START_EARLIEST) found = earliest(w, t, keeps);
    /* Messages of an open transaction are waited for. */
    bool waits = start == START_EARLIEST && t->blocked && (t->blocked_seq <= found || !t->stream.end);
    if (waits) return t->blocked_seq;
    if (start == START_SEQ) found = keeps ? later_of(seq, earliest(w, t, keeps)) : seq;
    if (start == START_TIME) found = find_time(w, t, seq, keeps);
    return found < t->next_seq && t->stream.end ? found : t->next_seq;
}

/* Drops a delivery, which the cursor takes back if it comes to its message again. But one that was published with a
 * delay and that the cursor has never come to stays, as no cursor gets that. */
void delivery_reset(struct worker *w, uint32_t delivery, uint64_t from) {
    struct delivery *d = worker_delivery(w, delivery);
    const struct subscription *s = worker_subscription(w, d->subscription);
    const struct topic *t = subscription_topic(w, s);
    uint64_t held_from = s->reader ? UINT64_MAX : subscription_held_from(s);
    bool stays = d->seq >= later_of(from, held_from) && stream_delayed(&t->stream, d->seq);
    if (!stays) {
        delivery_drop(w, delivery);
        return;
    }
    if (d->state == DELIVERY_IN_FLIGHT) {
        delivery_take(w, delivery);
        delivery_again(w, delivery);
    }
    d->attempts = 0;
}

static void reset_all(struct worker *w, uint32_t first, uint64_t from) {
    for (uint32_t n = first, next; n; n = next) {
        next = worker_delivery(w, n)->following;
        delivery_reset(w, n, from);
    }
}

void subscription_seek(struct worker *w, uint32_t subscription, uint64_t seq) {
    struct subscription *s = worker_subscription(w, subscription);
    consumers_have_left(w, subscription);
    reset_all(w, s->redelivery_first, seq);
    reset_all(w, s->deferred_first, seq);
    for (uint32_t c = s->consumer_first; c; c = worker_consumer(w, c)->next)
        reset_all(w, worker_consumer(w, c)->inflight_first, seq);
    uint64_t held_from = subscription_held_from(s);
    if (s->reader) {
        s->cursor = seq;
    } else if (seq < held_from) {
        s->held_from = held_from;
        s->cursor = seq;
    } else {
        subscription_release_ahead(w, subscription, seq);
    }
    s->logged_cursor = s->cursor;
    subscription_pin(w, subscription);
    if (s->turn) subscription_due(w, subscription);
}
