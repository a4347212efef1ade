/* Consumers leave their channels. */
#ifndef MQ_SHARDS_DISMISS_H
#define MQ_SHARDS_DISMISS_H

#include "shards/worker_state.h"

/* Removes a consumer; another may be the active one now. */
void consumer_leave(struct worker *w, uint32_t consumer);
/* Ends a consumer whose channel is gone or was moved. */
void consumer_dismiss(struct worker *w, uint32_t consumer, enum dismissed why);

#endif
