/* Answers beanstalkd's clients that ask for figures of a tube or job, and pauses tubes. */
#ifndef MQ_SHARDS_STATS_H
#define MQ_SHARDS_STATS_H

#include "shards/worker_state.h"

void tube_pause(struct worker *w, uint32_t client, const struct message *m);
void stats_topic(struct worker *w, uint32_t client, const struct message *m);
void stats_id(struct worker *w, uint32_t client, const struct message *m);

#endif
