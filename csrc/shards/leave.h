/* Deletes a subscription with many messages. */
#ifndef MQ_SHARDS_LEAVE_H
#define MQ_SHARDS_LEAVE_H

#include "shards/worker_state.h"

/* Unlinks a subscription with many messages now, and releases them in later turns. False: they are few, or this is
 * recovery. */
bool subscription_leave(struct worker *w, uint32_t subscription);
/* Frees some of those deliveries. True if there are more. */
bool subscriptions_clear_orphans(struct worker *w);

#endif
