/* The states of deliveries, and their timers. */
#ifndef MQ_SHARDS_DELIVERY_H
#define MQ_SHARDS_DELIVERY_H

#include "shards/worker_state.h"

/* The delivery of a message, or 0. */
uint32_t delivery_find(const struct worker *w, uint32_t subscription, uint64_t id);
/* Makes a delivery in no state; 0 when the limit is reached. */
uint32_t delivery_make(struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id);
/* These put a delivery that is in no state into one: in flight, to be delivered again, deferred. */
void delivery_fly(struct worker *w, uint32_t delivery, uint32_t consumer);
void delivery_again(struct worker *w, uint32_t delivery);
void delivery_defer(struct worker *w, uint32_t delivery, uint64_t deadline_ns);
/* Counts a delivery in flight as so many messages to its consumer; before as one. */
void delivery_weigh(struct worker *w, uint32_t delivery, uint64_t parts);
/* Some of its parts have been finished since. */
void delivery_weigh_again(struct worker *w, uint32_t delivery);
/* The consumer asks for some of what it has in flight again: it may have more, however much that is. */
void consumer_unblock(struct worker *w, uint32_t consumer);
/* Takes a delivery out of the state it is in. */
void delivery_take(struct worker *w, uint32_t delivery);
/* Frees a delivery that is in no state. The message is not released. */
void delivery_forget(struct worker *w, uint32_t delivery);
/* Starts a delivery's timeout anew. */
void delivery_extend(struct worker *w, uint32_t delivery);

/* Forgets the deadlines of a consumer. */
void delivery_forget_flights(struct worker *w, uint32_t consumer);
/* Lets time pass up to w->now_ns. True if anything happened. */
bool subscriptions_tick(struct worker *w);
uint64_t subscriptions_next_ns(const struct worker *w);

#endif
