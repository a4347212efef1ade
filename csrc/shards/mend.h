/* After recovery of a damaged log: makes the state from the remaining records consistent.
 *
 * Each record was written by a worker that knew all those before it. With some of them gone, messages may be held by
 * nobody, or be counted that are not there. All counts are made anew from who holds what; what nobody would get is
 * delivered again.
 */
#ifndef MQ_MEND_H
#define MQ_MEND_H

#include "shards/worker.h"

/* Called while the log is replayed, before jobs are put into queues. */
void mend_counts(struct worker *w, struct shard *s);

#endif
