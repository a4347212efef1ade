/* Messages of topics that are not persistent: nothing of them is stored. */
#ifndef MQ_SHARDS_NON_PERSISTENT_H
#define MQ_SHARDS_NON_PERSISTENT_H

#include "shards/arrival.h"
#include "shards/worker_state.h"

/* Delivers a message to one consumer of each of the topic's subscriptions, if there is one that can take it now. It is
 * dropped for the others. */
void non_persistent_publish(struct worker *w, uint32_t topic, const struct arrival *one);

#endif
