/* The cursor of a subscription, and what it passes. */
#ifndef MQ_SHARDS_SUBSCRIPTION_H
#define MQ_SHARDS_SUBSCRIPTION_H

#include "shards/worker_state.h"

bool subscriptions_open(struct subscriptions *all, uint32_t limit, uint32_t consumer_limit, uint32_t delivery_limit,
                        uint32_t shards, uint64_t seed);
void subscriptions_close(struct subscriptions *all);
uint32_t subscription_find(const struct worker *w, uint32_t topic, const char *name, size_t name_bytes);
/* Makes a subscription with its cursor at the end; the first one of a topic takes over the messages that waited for it.
 * `number` 0: ephemeral. Returns 0 when a limit is reached or memory is short. */
uint32_t subscription_make(struct worker *w, uint32_t topic, const char *name, size_t name_bytes, uint32_t number);
/* Makes a reader, with its cursor at the end. */
uint32_t subscription_make_reader(struct worker *w, uint32_t topic, const char *name, size_t name_bytes);
/* Removes a subscription and releases all its messages. Its consumers must have left. */
void subscription_remove(struct worker *w, uint32_t subscription);
/* The subscription can no longer be found; its messages are not released yet. */
void subscription_unlink(struct worker *w, uint32_t subscription);
/* Releases all its messages before this seq, those in flight included. */
void subscription_empty(struct worker *w, uint32_t subscription, uint64_t until);
/* For recovery: moves the cursor there. Each message passed becomes a delivery with one attempt made. */
void subscription_advance(struct worker *w, uint32_t subscription, uint64_t cursor);
/* The next message to deliver; moves the cursor past gaps. False: none may be delivered now. */
bool subscription_front(struct worker *w, uint32_t subscription, uint64_t *seq);
/* Moves the cursor past that message. */
void subscription_pass(struct worker *w, uint32_t subscription);
/* Whether it refers to a message of its topic's stream: one ahead of the cursor, or passed and not finished. */
bool subscription_holds(const struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id, bool delayed);
/* How many messages it could deliver now, if there were credit and no pause. */
uint64_t subscription_depth(const struct worker *w, const struct subscription *s);
/* When a message is due that its record says was published with a delay; now, if it was not, or is due. */
uint64_t message_deadline(const struct worker *w, const struct record *r);
/* Makes a deferred delivery of a message published with a delay, until it is due. */
void subscription_defer(struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id);

/* Finishes messages it has passed up to a seq, `most` at most. Returns how many. */
uint32_t subscription_finish_upto(struct worker *w, uint32_t subscription, uint64_t seq, uint32_t most);

/* Drops a reference to a message, and forgets the message with the last one. */
void message_release(struct worker *w, uint32_t topic, uint64_t seq);
/* Drops a subscription's reference to a message that it has passed. */
void subscription_release(struct worker *w, uint32_t subscription, uint64_t seq);
/* Frees a delivery in any state, and drops the subscription's reference to its message. */
void delivery_drop(struct worker *w, uint32_t delivery);
/* Drops a subscription's references to messages ahead of it before `until`, and moves its cursor there. */
void subscription_release_ahead(struct worker *w, uint32_t subscription, uint64_t until);
/* The same in at most `most` steps. False: there are more. */
bool subscription_skip(struct worker *w, uint32_t subscription, uint64_t until, uint32_t most);
/* Whether only this subscription refers to its topic's messages, all of which lie before `until`, and they are enough
 * to be buried (tomb.c). */
bool subscription_owns_stream(const struct worker *w, const struct subscription *s, uint64_t until);
/* An unlinked subscription whose topic has no record of its messages any more only has its deliveries
 * left to be freed. */
void subscription_orphan(struct worker *w, uint32_t subscription);
/* Frees a subscription that is unlinked and has nothing left. */
void subscription_free(struct worker *w, uint32_t subscription);

#endif
