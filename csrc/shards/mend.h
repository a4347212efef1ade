/* After recovery of a damaged log: makes the state from the remaining records consistent.
 *
 * Each record was written by a worker that knew all earlier ones. With some of these lost, a message may have no
 * holder, or missing messages may be counted. All counts are computed anew from what each subscription and the job
 * queue hold; messages that nobody would get are delivered again.
 */
#ifndef MQ_MEND_H
#define MQ_MEND_H

#include "shards/worker_state.h"

/* Called while the log is replayed, before jobs are put into queues. */
void mend_counts(struct worker *w, struct shard *s);

#endif
