/* Deletes a subscription with many messages: an ephemeral one with a backlog or many deferred messages. It is unlinked
 * at once, and its messages are released piece by piece.
 *
 * Requests that would interfere with that wait meanwhile (handover.c). They need not wait if the topic's stream was
 * buried, or the subscription holds nothing in it: then only its deliveries are left, and it is an orphan.
 */
#include "shards/leave.h"

#include "shards/consumer.h"
#include "shards/handover.h"
#include "shards/handover_state.h"
#include "shards/subscription.h"
#include "shards/tomb.h"

/* How many messages it has to release. */
static uint64_t burden(const struct topic *t, const struct subscription *s) {
    uint64_t ahead = s->reader || t->ahead < s->taken ? 0 : t->ahead - s->taken;
    return ahead + s->redeliveries + s->deferred + s->inflight;
}

bool subscription_leave(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    uint32_t topic = s->topic;
    struct topic *t = topic_at(&w->topics, topic);
    bool busy = handover_adopts(t) && !t->ending;
    if (w->replaying || busy || burden(t, s) <= worker_spare(w)) return false;
    bool buries = !t->ending && subscription_owns_stream(w, s, t->stream.end);
    subscription_unlink(w, subscription);
    s->gone = true;
    s->paused = s->blocked = false;
    s->number = s->turn = s->active = 0;
    s->policy = POLICY_TURNS;
    s->again_first = false;
    if (buries) stream_bury(w, topic);
    if (buries || t->ending || s->reader)
        subscription_orphan(w, subscription);
    else
        handover_from_channel(w, topic, subscription);
    return true;
}

/* Frees deliveries of an orphan. False: it has more. */
static bool orphan_clear(struct worker *w, uint32_t subscription, uint64_t most) {
    const struct subscription *s = worker_subscription(w, subscription);
    while ((s->redelivery_first || s->deferred_first) && w->steps < most) {
        worker_step(w);
        delivery_drop(w, s->redelivery_first ? s->redelivery_first : s->deferred_first);
    }
    return !s->redelivery_first && !s->deferred_first && !consumers_give_back(w, subscription);
}

bool subscriptions_clear_orphans(struct worker *w) {
    uint64_t most = w->steps + w->piece / 2 + 1; /* leaving consumers and tombs may take their share of the same turn */
    for (uint32_t *link = &w->orphans; *link;) {
        uint32_t subscription = *link;
        if (!orphan_clear(w, subscription, most)) {
            link = &worker_subscription(w, subscription)->next;
            continue;
        }
        *link = worker_subscription(w, subscription)->next;
        subscription_free(w, subscription);
    }
    return w->orphans != 0;
}
