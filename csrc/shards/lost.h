/* Messages whose medium has failed since recovery. Each such message is skipped and reported; no other is affected.
 *
 * Readability is checked where bodies are read, and where heads are that may not have been read for long. When the
 * worker restarts, unreadable records count as damage. Until then an unreadable message may keep its segment, unless
 * compaction empties that one.
 */
#ifndef MQ_LOST_H
#define MQ_LOST_H

#include "shards/worker.h"

static inline bool message_readable(const struct worker *w, const struct topic *t, const struct record *r) {
    return log_readable(shard_of_topic(w, t)->log, r);
}
/* The record of a message in its topic's stream; NULL: none, or its beginning (log_read_head) cannot be read. */
const struct record *message_head(const struct worker *w, const struct topic *t, uint64_t seq);
/* The same, and NULL unless all of it can be read. */
const struct record *message_whole(const struct worker *w, const struct topic *t, uint64_t seq);
/* The head of a job's record; NULL: it cannot be read. */
const struct record *job_head(const struct worker *w, const struct job *j);
/* A job's seq, from its record, else from its topic's stream, else UINT64_MAX. */
uint64_t job_seq(struct worker *w, const struct job *j);

/* Reports an unreadable message, for worker_lost. */
void lost_note(struct worker *w, uint32_t topic, log_position position);
/* Whether this turn has met enough unreadable messages: a failing medium is slow. */
static inline bool lost_enough(const struct worker *w) {
    return w->lost_in_turn >= WORKER_LOST_IN_TURN;
}
/* Has the topic's jobs given to waiting clients in the next turn, when those that cannot be read have been removed. */
void lost_serve_later(struct worker *w, uint32_t topic);

/* --- losing.c --- */

/* Whether a job's message can be read. If not, the job is removed, unless it is reserved. That is not logged, so if the
 * medium comes back, the job does too at the next restart. */
bool job_readable(struct worker *w, uint32_t job);
/* Each turn: does what lost_serve_later asked for. True if anything was asked for. */
bool losing_serve_now(struct worker *w);
/* Handles messages that compaction could not read in the oldest segment, a piece at a time: moves those that can be
 * read now, and gives up the rest. True when all are handled. */
bool shard_lose_rest(struct worker *w, struct shard *s);

#endif
