/* Figures of a topic's job queue or of a job, and pauses of tubes. */
#ifndef MQ_SHARDS_STATS_H
#define MQ_SHARDS_STATS_H

#include "shards/worker_state.h"

void tube_pause(struct worker *w, uint32_t client, const struct message *m);
void stats_topic(struct worker *w, uint32_t client, const struct message *m);
void stats_id(struct worker *w, uint32_t client, const struct message *m);

#endif
