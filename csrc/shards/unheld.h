/* What a subscription that was set back does not hold. */
#ifndef MQ_SHARDS_UNHELD_H
#define MQ_SHARDS_UNHELD_H

#include "shards/worker_state.h"

/* The first segment that a subscription was set back to; UINT32_MAX: none. */
uint32_t shard_pinned_segment(struct worker *w, struct shard *s);

/* As subscription_front, for messages before `until` that the subscription does not hold. */
__attribute__((cold)) bool position_front(struct worker *w, uint32_t subscription, uint64_t until, uint64_t *seq);
/* As subscription_pass, for a message that it does not hold. */
__attribute__((cold)) void position_pass(struct worker *w, uint32_t subscription);
/* Whether the message at its cursor may have been published with a delay that is not over: the cursor was set back to
 * it, or the delay ends at a time of its own. */
static inline bool position_is_early(const struct topic *t, const struct subscription *s) {
    return s->cursor < s->held_from || s->cursor < t->due_until;
}
/* Whether it waits for its time then. Where all messages go to one consumer in their order, it does not. */
static inline bool position_waits(const struct topic *t, const struct subscription *s) {
    return position_is_early(t, s) && (s->policy == POLICY_TURNS || s->policy == POLICY_KEY);
}
/* Pins the subscription, if segments with messages that it does not hold must stay; and unpins it. */
void subscription_pin(struct worker *w, uint32_t subscription);
void subscription_unpin(struct worker *w, uint32_t subscription);
/* How many messages of its depth it does not hold. */
uint64_t position_depth(const struct worker *w, const struct subscription *s);

#endif
