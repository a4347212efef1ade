/* The lists that subscriptions stand in until they have been visited. */
#ifndef MQ_SHARDS_DUE_H
#define MQ_SHARDS_DUE_H

#include "shards/worker_state.h"

/* The subscription may have a message to deliver now, or a consumer to deliver one to. */
void subscription_due(struct worker *w, uint32_t subscription);
void topic_due(struct worker *w, uint32_t topic);
/* The subscription has finished messages or a moved cursor to log. */
void subscription_touched(struct worker *w, uint32_t subscription);
/* The subscription no longer finishes messages up to a seq (upto.c), ... */
void subscription_over_forget(struct worker *w, uint32_t subscription);
/* ... and stands in none of these lists. */
void subscription_leave_lists(struct worker *w, uint32_t subscription);

#endif
