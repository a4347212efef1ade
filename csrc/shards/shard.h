/* Shards are made and freed, and count what of each segment is still needed. */
#ifndef MQ_SHARDS_SHARD_H
#define MQ_SHARDS_SHARD_H

#include "shards/worker_state.h"

struct shard *shard_new(uint32_t number, uint32_t shards);
void shard_free(struct shard *shard);

/* The worker's number of a subscription, by the one that it has in the log; 0: it was deleted, or never known. */
static inline uint32_t shard_subscription(const struct shard *s, uint64_t number) {
    return map_find(&s->subscriptions, number);
}
/* A number that no subscription of the shard has. */
uint32_t shard_number_for_subscription(const struct shard *s);
/* The number, which none has, is in the log: that of this subscription, or, if it is 0, not to be given soon. False,
 * with nothing changed, when memory is short. */
bool shard_know_subscription(struct shard *s, uint32_t subscription, uint32_t number);
void shard_unknow_subscription(struct shard *s, uint32_t number);

struct segment_use *shard_use_of(struct shard *s, log_position position);
void shard_count_in(struct shard *s, log_position position);
void shard_count_in_many(struct shard *s, uint32_t segment, uint64_t count);
void shard_count_out(struct shard *s, log_position position);
/* Counts a record in again that was counted out. */
void shard_count_back(struct shard *s, log_position position);

/* How many of the oldest segments before `pinned` have nothing alive. The active one is never among them. */
/* Notes that something in a segment is damaged or cannot be read now: the next start is to look at it again. */
void shard_doubt(struct shard *s, uint32_t segment);
uint32_t shard_dead_segments(const struct shard *s, uint32_t pinned);

#endif
