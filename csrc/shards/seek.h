/* Where a subscription begins, and how it is moved. */
#ifndef MQ_SHARDS_SEEK_H
#define MQ_SHARDS_SEEK_H

#include "shards/worker_state.h"

/* The seq that a start position means. `keeps`: the topic's subscription RETENTION_NAME, before which nothing is found;
 * 0: every message in the segments is. */
uint64_t position_find(const struct worker *w, const struct topic *t, uint32_t start, uint64_t seq, uint32_t keeps);
/* Moves a subscription: all from `seq` on is to be delivered, and nothing else. */
void subscription_seek(struct worker *w, uint32_t subscription, uint64_t seq);
/* Does the same to one of its deliveries: most are dropped. */
void delivery_reset(struct worker *w, uint32_t delivery, uint64_t from);

#endif
