/* Recovery: the log is read back. */
#ifndef MQ_SHARDS_REPLAY_H
#define MQ_SHARDS_REPLAY_H

#include "shards/worker_state.h"

/* Replays all segments into memory (jobs get a state, but no place in a queue yet) and cuts them where they end. False
 * with errno if one cannot be cut; EPROTO: a record is of an unknown kind, see `unknown`. */
bool shard_replay(struct worker *w, struct shard *s, struct replay *out);
void replay_forget_ephemeral(struct worker *w);
/* After the last segment of all shards: jobs take their places in the queues. */
void replay_place_jobs(struct worker *w);

#endif
