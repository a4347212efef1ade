/* Handovers. */
#ifndef MQ_SHARDS_HANDOVER_H
#define MQ_SHARDS_HANDOVER_H

#include "shards/worker_state.h"

struct handover;

/* Hands the jobs to a subscription that has just been made and is not logged yet. */
void handover_to_channel(struct worker *w, uint32_t topic, uint32_t subscription, bool to_join);
/* Such a job is done before the channel is logged: the channel does not get it. True: the topic is not to retain it,
 * when it is released, as it was put before the topic began to retain. */
bool handover_job_done(struct worker *w, uint32_t topic, uint64_t seq, uint64_t id);
/* Hands the messages from a seq on to the job queue, once channels being removed have released theirs. */
void handover_to_queue(struct worker *w, uint32_t topic, uint64_t from);
void handover_of_group(struct worker *w, uint32_t topic);
void handover_group_over(struct worker *w, uint32_t topic);
/* Releases the messages of a channel that has been unlinked. */
void handover_from_channel(struct worker *w, uint32_t topic, uint32_t subscription);
/* Ends a handover whose topic has gone, or the channel it hands to. */
void handover_forget(struct worker *w, uint32_t topic, uint32_t subscription);
/* Goes on with one, until the turn has taken `most` steps. It may end. Returns its channel when waiting consumers had
 * time to join it: an ephemeral one that none has joined is to be removed (subscription_idle). Else 0. */
uint32_t handover_go_on(struct worker *w, struct handover *h, uint64_t most);
void handovers_free(struct worker *w);

#endif
