/* One message of a backlog changes hands. */
#ifndef MQ_SHARDS_BACKLOG_H
#define MQ_SHARDS_BACKLOG_H

#include "shards/worker_state.h"

/* Makes a job of a message that waited for a first channel, or that its topic keeps. */
void topic_waiting_becomes_job(struct worker *w, uint32_t topic, uint64_t seq);
/* Gives a job's message to the topic's first subscription, made at `wall_ns`, as well. */
void subscription_adopt(struct worker *w, uint32_t subscription, uint32_t job, uint64_t wall_ns);

#endif
