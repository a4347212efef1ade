/* Finished messages and the cursor of a subscription go to the log, by the end of the turn. */
#ifndef MQ_SHARDS_FINISH_H
#define MQ_SHARDS_FINISH_H

#include "shards/worker_state.h"

/* Notes that a message behind the cursor is finished, which is written by the end of the turn. False, with nothing
 * changed, while there is no room. */
bool subscription_finished(struct worker *w, uint32_t subscription, uint64_t seq);
/* Passes the message at the front, which is finished with that though nobody got it. False, with nothing changed, while
 * there is no room. */
bool subscription_pass_over(struct worker *w, uint32_t subscription, uint64_t seq);
/* Logs finished messages and the cursor. False while there is no room. */
bool subscription_write(struct worker *w, uint32_t subscription);
void subscriptions_write(struct worker *w);

#endif
