/* A batch is many jobs to clients that RESERVE. */
#ifndef MQ_SHARDS_JOB_PARTS_H
#define MQ_SHARDS_JOB_PARTS_H

#include "shards/worker_state.h"

/* Adds a message as `parts` jobs (0 or 1: a single one). 0 when the limit is reached. */
uint32_t queue_add_message(struct worker *w, uint32_t topic, uint64_t id, uint32_t parts, uint32_t pri,
                           log_position position);
/* How many jobs a message was added as, ... */
uint32_t queue_jobs_of(const struct worker *w, uint32_t job);
/* ... and each of these jobs; 0: it is done. A message that is no batch is its own only job. */
uint32_t queue_job_of(const struct worker *w, uint32_t job, uint32_t place);
/* The batch that a part belongs to. */
uint32_t queue_whole_of(struct worker *w, uint32_t part);
/* A message, and with it its jobs, has moved to another place in the log. */
void queue_moved(struct worker *w, uint32_t job, log_position position);
/* Frees a part. True if it was the last; the batch then is an ordinary job in no state. */
bool queue_part_over(struct worker *w, uint32_t part);

#endif
