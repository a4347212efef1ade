/* Before a channel is emptied, moved forwards or deleted, or a topic emptied or deleted, its messages are released
 * piece by piece: the request goes on in the next turn (MORE) until few are left, and is logged then.
 *
 * It goes on to its end even if the client leaves. After a crash half way, a channel that was emptied or deleted has no
 * messages, as the log says so from the first turn on. For messages that waited in a topic or were kept by it, each
 * piece is logged (topic_life.c). A deleted topic, and a channel that was moved, have what their segments still hold
 * again: the request can be repeated.
 */
#include "shards/drain.h"

#include "shards/consumer.h"
#include "shards/pause.h"
#include "shards/seek.h"
#include "shards/subscription.h"

enum drain_phase { BEGINS, AHEAD, PASSED };

static uint32_t deliveries(const struct subscription *s) {
    return s->redeliveries + s->deferred + s->inflight;
}

/* Drops deliveries of one list. Returns how many may still be looked at. */
static uint32_t drop_some(struct worker *w, uint32_t first, uint64_t from, uint32_t most) {
    for (uint32_t n = first, next; n && most; n = next, most--) {
        next = worker_delivery(w, n)->following;
        delivery_reset(w, n, from);
    }
    return most;
}

static uint32_t drop_deliveries(struct worker *w, uint32_t subscription, uint64_t from, uint32_t most) {
    const struct subscription *s = worker_subscription(w, subscription);
    most = drop_some(w, s->redelivery_first, from, most);
    most = drop_some(w, s->deferred_first, from, most);
    for (uint32_t c = s->consumer_first; c && most; c = worker_consumer(w, c)->next)
        most = drop_some(w, worker_consumer(w, c)->inflight_first, from, most);
    return most;
}

static uint64_t deliveries_of(const struct worker *w, uint32_t first, bool all) {
    uint64_t count = deliveries(worker_subscription(w, first));
    for (uint32_t n = worker_subscription(w, first)->next; n && all; n = worker_subscription(w, n)->next)
        count += deliveries(worker_subscription(w, n));
    return count;
}

/* Drops deliveries of a subscription, or (`all`) of all from it on: `most` now, in all as many as there were at the
 * beginning. */
static enum outcome drain_deliveries(struct worker *w, struct client *c, uint32_t first, bool all, uint64_t from,
                                     uint32_t most) {
    bool waits = false;
    if (c->done != PASSED) c->upto = deliveries_of(w, first, all);
    if (c->done != PASSED && c->upto <= most) return DONE;
    c->done = PASSED;
    if (!most) return MORE;
    uint32_t left = most;
    for (uint32_t n = first; n; n = all ? worker_subscription(w, n)->next : 0)
        if (consumers_give_back(w, n))
            waits = true;
        else
            left = drop_deliveries(w, n, from, left);
    uint32_t dropped = most - left;
    c->upto -= dropped < c->upto ? dropped : c->upto;
    return waits || (dropped && c->upto && deliveries_of(w, first, all) > left) ? MORE : DONE;
}

/* Meanwhile the channel delivers nothing, and gets no messages that its topic has kept. */
static enum outcome goes_on(struct worker *w, uint32_t subscription) {
    release_wait(w, worker_subscription(w, subscription)->topic);
    worker_subscription(w, subscription)->still = w->turns;
    return MORE;
}

static enum outcome is_over(struct client *c) {
    c->done = c->upto = 0;
    return DONE;
}

enum outcome subscription_drain(struct worker *w, uint32_t client, uint32_t subscription, uint64_t until,
                                uint64_t from) {
    struct client *c = client_at(&w->clients, client);
    const struct subscription *s = worker_subscription(w, subscription);
    if (c->done == BEGINS) {
        c->done = AHEAD;
        c->upto = s->reader || subscription_owns_stream(w, s, until) ? 0 : until;
    }
    uint64_t before = w->steps;
    if (c->done == AHEAD && !subscription_skip(w, subscription, c->upto, w->piece)) return goes_on(w, subscription);
    uint64_t skipped = w->steps - before;
    uint32_t most = skipped < w->piece ? w->piece - (uint32_t)skipped : 0;
    bool more = drain_deliveries(w, c, subscription, false, from, most) == MORE;
    return more ? goes_on(w, subscription) : is_over(c);
}

enum outcome topic_drain(struct worker *w, uint32_t client, uint32_t topic) {
    struct client *c = client_at(&w->clients, client);
    uint32_t first = topic_at(&w->topics, topic)->subscriptions;
    worker_walk(w, 2 * (uint64_t)topic_at(&w->topics, topic)->subscription_count);
    if (!first || drain_deliveries(w, c, first, true, UINT64_MAX, w->piece) == DONE) return is_over(c);
    for (uint32_t n = first; n; n = worker_subscription(w, n)->next) (void)goes_on(w, n);
    return MORE;
}
