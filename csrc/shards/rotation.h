/* Which consumer's turn it is. */
#ifndef MQ_SHARDS_ROTATION_H
#define MQ_SHARDS_ROTATION_H

#include "shards/worker_state.h"

/* To be called when a consumer's messages in flight, credit or window have changed: adds it to those that take turns,
 * or removes it. */
void consumer_settle(struct worker *w, uint32_t consumer);
/* Sets a consumer's priority, before it may first take a message. The lowest goes first; all above 63 are equal. False:
 * no memory. */
bool rotation_prefer(struct worker *w, uint32_t consumer, uint32_t priority);
/* Adds a consumer behind the others of its priority, or removes it. */
void rotation_join(struct worker *w, uint32_t consumer);
void rotation_leave(struct worker *w, uint32_t consumer);
/* The next consumer whose acceptor takes messages; 0: none. */
uint32_t rotation_next(const struct worker *w, struct subscription *s);
/* The consumer whose turn it was has got nothing: the next turn is its too. */
void rotation_give_back(struct worker *w, uint32_t consumer);

#endif
