/* Messages whose medium has failed since the log was read back: each costs itself. It is left out of what is delivered, and
 * told of.
 *
 * Asked where bodies are read. What reads no more than a record's head does so unasked: there the worker ends (SIGBUS), and what
 * cannot be read is damage when it starts anew.
 */
#ifndef MQ_LOST_H
#define MQ_LOST_H

#include "shards/worker.h"

static inline bool message_readable(const struct worker *w, const struct topic *t, const struct record *r) {
    return log_readable(shard_of_topic(w, t)->log, r);
}
/* A message that is left out: for whoever asks worker_lost. */
void lost_note(struct worker *w, uint32_t topic, log_position position);

#endif
