#include "shards/dispatch.h"

#include "shards/chunks.h"
#include "shards/deliver.h"
#include "shards/dispatch_keyed.h"
#include "shards/dispatch_message.h"
#include "shards/due.h"
#include "shards/policy.h"
#include "shards/rotation.h"
#include "shards/subscription.h"

/* Limits for one subscription in one turn, so that other subscriptions and requests get their share, and acceptors can
 * send what one turn has delivered while the next one delivers more. */
enum { DISPATCH_MOST = 64, DISPATCH_HIDDEN = 512 };

/* Messages of a split batch are delivered before those behind the batch. */
static bool is_new_part(const struct worker *w, const struct subscription *s) {
    const struct delivery *d = worker_delivery(w, s->redelivery_first);
    return d->part && !d->attempts;
}

static enum dispatched dispatch_one(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    uint64_t seq;
    bool ahead = subscription_front(w, subscription, &seq) && !s->blocked;
    if (s->paused || !s->turn || (!ahead && !s->redelivery_first)) return NOTHING;
    uint32_t consumer = rotation_next(w, s);
    if (!consumer) return STUCK;
    /* Redeliveries and new messages take turns, so that neither endless requeueing nor a long backlog starves the
     * other. */
    bool again =
        s->redelivery_first && (s->redelivery_next || !ahead || subscription_is_ordered(s) || is_new_part(w, s));
    uint32_t delivery = again ? chunk_first_again(w, subscription, consumer) : 0;
    again = again && (delivery || !ahead);
    s->redelivery_next = !again;
    if (!again) return dispatch_front(w, subscription, seq, consumer);
    return delivery ? dispatch_again(w, subscription, delivery, consumer) : STUCK;
}

static enum dispatched dispatch_some(struct worker *w, uint32_t subscription) {
    enum dispatched outcome = ONE;
    if (worker_subscription(w, subscription)->still == w->turns) return STUCK;
    policy_choose(w, subscription);
    if (worker_subscription(w, subscription)->policy == POLICY_KEY)
        return dispatch_keyed(w, subscription, DISPATCH_MOST);
    for (int i = 0, hidden = 0; i < DISPATCH_MOST && (outcome == ONE || outcome == HIDDEN); i++) {
        outcome = dispatch_one(w, subscription);
        if (outcome == HIDDEN && hidden++ < DISPATCH_HIDDEN) i--;
    }
    return outcome == HIDDEN || outcome == LOOKING ? ONE : outcome;
}

bool dispatch(struct worker *w) {
    struct subscriptions *all = &w->subscriptions;
    uint32_t n = all->due_first;
    bool more = false;
    if (!n) return false;
    struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) p->full = channel_backlogged(p->channel);
    all->due_first = all->due_last = 0;
    while (n) {
        uint32_t next = worker_subscription(w, n)->next_due;
        worker_subscription(w, n)->due = false;
        enum dispatched outcome = dispatch_some(w, n);
        if (outcome != NOTHING)
            subscription_due(w, n);
        else
            deliver_reads_end(w, n);
        more |= outcome == ONE;
        n = next;
    }
    return more;
}
