/* Gives up messages that cannot be read. */
#ifndef MQ_SHARDS_GIVE_UP_H
#define MQ_SHARDS_GIVE_UP_H

#include "shards/unreadable.h"

/* Whether a job's message can be read (unreadable.h). If not, the job is removed, unless it is reserved. That is not
 * logged, so if the medium comes back, the job does too at the next restart. */
enum readable job_readable(struct worker *w, uint32_t job);
/* Each turn: does what unreadable_serve_later asked for. True if anything was asked for. */
bool give_up_unserved(struct worker *w);
/* Handles messages that compaction could not read in the oldest segment, a piece at a time: moves those that can be
 * read now, and gives up the rest. True when all are handled. */
bool shard_give_up_rest(struct worker *w, struct shard *s);

#endif
