/* The transactions of topics, in memory. */
#ifndef MQ_SHARDS_TRANSACTIONS_H
#define MQ_SHARDS_TRANSACTIONS_H

#include "shards/worker_state.h"

bool transactions_open(struct transactions *all);
void transactions_close(struct transactions *all);

/* The topic's transaction of that number, made if need be, with room for one more item. 0 when there is no room, or it
 * is ending. */
uint32_t transaction_take(struct worker *w, uint32_t topic, uint64_t number);
/* The topic's transaction of that number, or 0. */
uint32_t transaction_find(const struct worker *w, uint32_t topic, uint64_t number);
/* Adds a message that was staged; transaction_take has made sure that there is room. */
void transaction_staged(struct worker *w, uint32_t transaction, uint64_t seq, log_position position);
/* The next staged message is done. */
void transaction_pass(struct worker *w, uint32_t transaction);
/* Puts a transaction into its topic's list behind another one; 0: first. Takes it out. */
void transaction_link_behind(struct worker *w, uint32_t transaction, uint32_t previous);
void transaction_unlink(struct worker *w, uint32_t transaction);
/* Frees one that is empty and in no list; takes it out of its list and frees it. */
void transaction_free(struct worker *w, uint32_t transaction);
void transaction_remove(struct worker *w, uint32_t transaction);
bool transaction_is_there(const struct worker *w, const struct transaction *of);

/* The key of a message that a topic's transactions acknowledge, and its first acknowledgement; 0: it has none. */
uint64_t acknowledgement_key(const struct worker *w, uint64_t era, uint64_t seq);
uint32_t acknowledgement_first(const struct worker *w, const struct topic *t, uint64_t seq);
/* Whether a transaction has acknowledged a whole message, not cumulatively: it is not delivered meanwhile, also where
 * the channel was moved back. */
bool transactions_hold(const struct worker *w, uint32_t subscription, uint64_t seq);

/* As transaction_take, but there is always room, or the worker dies. */
uint32_t replay_take(struct worker *w, uint32_t topic, uint64_t number);

#endif
