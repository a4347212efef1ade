/* Transactions end. */
#ifndef MQ_SHARDS_TRANSACTION_END_H
#define MQ_SHARDS_TRANSACTION_END_H

#include "shards/arrival.h"
#include "shards/worker_state.h"

/* The topic is gone: its transactions are to be freed, piece by piece. */
void transactions_forget(struct worker *w, uint32_t topic);
/* Frees a piece. True if there is more. */
bool transactions_clear(struct worker *w);
void replay_staged(struct worker *w, struct shard *s, uint32_t topic, const struct record *r, log_position position);
void replay_end(struct worker *w, uint32_t topic, const struct record *r);
/* A PUBLISH record has a seq before the topic's next: the message was staged, in a segment that may be gone. Removes it
 * from its transaction; subscriptions whose cursor is behind it do not refer to it. */
void transactions_published(struct worker *w, uint32_t topic, uint64_t seq);

/* Stages the message of a PUBLISH, for which there must be room. `delay_ns`: how long it has to wait, from now on. */
void transaction_stage(struct worker *w, uint32_t topic, const struct message *m, uint64_t txn, uint64_t delay_ns,
                       const struct arrival *one);
enum outcome transaction_end(struct worker *w, uint32_t client, uint32_t topic, const struct message *m);

#endif
