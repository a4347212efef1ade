/* Finished messages and the cursor of a subscription go to the log, by the end of the turn. */
#ifndef MQ_SHARDS_FINISH_H
#define MQ_SHARDS_FINISH_H

#include "shards/worker_state.h"

/* Notes that a message is finished, which is to be written by the end of the turn. False, with nothing changed, if too
 * many are noted already and cannot be written. */
bool subscription_finished(struct worker *w, uint32_t subscription, uint64_t seq);
/* Logs finished messages and the cursor. False while there is no room. */
bool subscription_write(struct worker *w, uint32_t subscription);
void subscriptions_write(struct worker *w);

#endif
