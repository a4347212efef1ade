/* Finishes all messages passed up to a seq at once. */
#ifndef MQ_SHARDS_UPTO_H
#define MQ_SHARDS_UPTO_H

#include "shards/worker_state.h"

/* Logs that, for which there must be room, and begins the releasing. No other may be under way for this subscription.
 * */
void subscription_finish_all(struct worker *w, uint32_t subscription, uint64_t seq);
/* Releases a piece of those deliveries and returns how many. All have been released when `over_until` is 0. */
uint32_t subscription_finish_some(struct worker *w, uint32_t subscription);
/* Each turn: goes on releasing. True if there was anything to release. */
bool upto_goes_on(struct worker *w);

#endif
