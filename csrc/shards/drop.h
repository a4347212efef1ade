/* What is done before a segment goes. */
#ifndef MQ_SHARDS_DROP_H
#define MQ_SHARDS_DROP_H

#include "shards/calls.h"
#include "shards/worker_state.h"

/* Writes some of those names anew that are in segments up to `until` and in no later one. */
enum names_moved shard_move_names(struct worker *w, struct shard *s, uint32_t until);
/* After something of the log was lost: writes all names anew, so that each has two intact copies. */
enum names_moved shard_heal_names(struct worker *w, struct shard *s);
/* Drops the oldest segment, after writing the names anew that shard_move_names has not. False: no room for these. */
bool shard_drop_first(struct worker *w, struct shard *s);

#endif
