/* POLICY_KEY: which consumer has a slot. */
#ifndef MQ_SHARDS_KEY_OWNERS_H
#define MQ_SHARDS_KEY_OWNERS_H

#include "shards/worker_state.h"

/* The consumer to which a slot belongs; 0: none. Adds to *looked at how many consumers it looked. */
uint32_t key_owners_find(struct worker *w, uint32_t subscription, uint16_t slot, uint32_t *looked);
/* A consumer has come or gone: the subscription's slots may belong to others now. */
void key_owners_changed(struct subscription *s);
void key_owners_free(struct subscriptions *all);

#endif
