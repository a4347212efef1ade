/* Which consumer gets the next message. */
#ifndef MQ_SHARDS_POLICY_H
#define MQ_SHARDS_POLICY_H

#include "shards/worker_state.h"

struct policy_wish {
    struct subscribe_policy policy;
    const char *name;
    const uint8_t *ranges;
    uint32_t range_count;
    bool again_first; /* see SUBSCRIBE_AGAIN_FIRST */
};
/* To be called before policy_admit until it returns true: brings the redeliveries into the order the policy needs,
 * piece by piece. */
bool policy_prepare(struct worker *w, uint32_t subscription, const struct policy_wish *wish);
/* Whether a consumer with that policy may join; returns a status. The first consumer's policy becomes the
 * subscription's. */
uint8_t policy_admit(struct worker *w, uint32_t subscription, const struct policy_wish *wish);
/* The order that a consumer said which is present; 0: none is, or the policy needs none. */
uint32_t policy_order(const struct worker *w, uint32_t subscription);
/* Gives a consumer that has joined its rank. False when memory is short; it must leave then. */
bool policy_joined(struct worker *w, uint32_t consumer, const struct policy_wish *wish);
/* A consumer has left. policy_choose chooses the active one again, before anything is delivered. */
void policy_left(struct worker *w, uint32_t subscription, uint32_t consumer);
void policy_choose(struct worker *w, uint32_t subscription);
uint16_t policy_slot(const struct record *r);
/* The same, of a message that has no record. */
uint16_t policy_slot_of(const struct headers *h, uint64_t id);

#endif
