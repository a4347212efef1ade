/* Consumers: made, removed, and what they give back. */
#ifndef MQ_SHARDS_CONSUMER_H
#define MQ_SHARDS_CONSUMER_H

#include "shards/worker_state.h"

/* A client's consumer by its number, or 0. */
uint32_t consumer_find(const struct worker *w, uint32_t client, uint32_t number);
/* Makes a consumer, whose number must be free. 0 when a limit is reached or memory is short. */
uint32_t consumer_make(struct worker *w, uint32_t client, uint32_t number, uint32_t subscription);
/* Removes a consumer. Its messages in flight are to be delivered again; if they are many, the last of them in later
 * turns. */
void consumer_remove(struct worker *w, uint32_t consumer);
/* The same, but the consumer stays, and is sent nothing before all of its messages have been given back. */
void consumer_yield(struct worker *w, uint32_t consumer);
/* Each turn: gives back messages of consumers that left or yield. True if there is more. */
bool consumers_leave(struct worker *w);
/* Whether consumers that left or yield are still giving back messages of this subscription. */
bool consumers_give_back(const struct worker *w, uint32_t subscription);
/* Gives back at once all messages of consumers that left or yield this subscription. */
void consumers_have_left(struct worker *w, uint32_t subscription);

#endif
