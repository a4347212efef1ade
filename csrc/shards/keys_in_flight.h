/* Keys of which a consumer has messages in flight. */
#ifndef MQ_SHARDS_KEYS_IN_FLIGHT_H
#define MQ_SHARDS_KEYS_IN_FLIGHT_H

#include "shards/worker_state.h"

/* The consumer that has messages of a slot in flight; 0: none. */
uint32_t policy_slot_user(const struct worker *w, uint32_t subscription, uint16_t slot);
/* Whether no other consumer has messages of a slot in flight. */
bool policy_slot_free(const struct worker *w, uint32_t subscription, uint16_t slot, uint32_t consumer);
/* Counts a delivery in flight for its slot, and takes it out of the count. False: the limit is reached. */
bool policy_slot_take(struct worker *w, uint32_t delivery, uint16_t slot, uint32_t consumer);
void policy_slot_release(struct worker *w, uint32_t delivery);

#endif
