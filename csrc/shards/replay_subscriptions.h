/* Recovery of subscriptions. */
#ifndef MQ_SHARDS_REPLAY_SUBSCRIPTIONS_H
#define MQ_SHARDS_REPLAY_SUBSCRIPTIONS_H

#include "shards/worker_state.h"

/* Moves a message, which is a job or held by its topic's stream, to another record. */
void replay_move(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq, uint32_t job, log_position to);
/* If a MOVED was read and `next` is not its REFERENCES, as it must be: assumes that all subscriptions hold it. */
void replay_unreferenced(struct worker *w, struct shard *s, const struct record *next);
void replay_subscription_record(struct worker *w, struct shard *s, const struct record *r);
void replay_place_deferred(struct worker *w);

#endif
