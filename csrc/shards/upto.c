/* Finishes all messages that a channel has passed up to a seq. The log says so at once; the deliveries are released a
 * piece a turn, whether the client that asked for it is still there or not.
 *
 * Meanwhile the channel delivers nothing and cannot be moved: its messages before `over_until` count as finished.
 */
#include "shards/upto.h"

#include "shards/consumer.h"
#include "shards/due.h"
#include "shards/records.h"
#include "shards/subscription.h"

void subscription_finish_all(struct worker *w, uint32_t subscription, uint64_t seq) {
    struct subscription *s = worker_subscription(w, subscription);
    if (seq >= s->cursor) seq = s->cursor - 1;
    if (s->number) shard_log_finish_upto(w, subscription_shard(w, s), s, seq);
    s->over_until = seq + 1;
    s->next_over = w->subscriptions.over_first;
    w->subscriptions.over_first = subscription;
}

uint32_t subscription_finish_some(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    if (!s->over_until) return 0;
    if (consumers_give_back(w, subscription)) {
        s->still = w->turns;
        return 0;
    }
    uint32_t finished = subscription_finish_upto(w, subscription, s->over_until - 1, w->piece);
    if (finished < w->piece)
        subscription_over_forget(w, subscription);
    else
        s->still = w->turns;
    return finished;
}

bool upto_goes_on(struct worker *w) {
    uint64_t most = w->steps + w->piece;
    bool any = w->subscriptions.over_first != 0;
    for (uint32_t n = w->subscriptions.over_first, next; n; n = next) {
        next = worker_subscription(w, n)->next_over;
        /* Its request has already released a piece in this turn. */
        if (worker_subscription(w, n)->still == w->turns) continue;
        if (w->steps < most)
            (void)subscription_finish_some(w, n);
        else
            worker_subscription(w, n)->still = w->turns;
    }
    return any;
}
