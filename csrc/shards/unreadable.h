/* Messages whose medium has failed since recovery. Each such message is skipped and reported; no other is affected.
 *
 * Readability is checked where bodies are read, and where heads are that may not have been read for long. When the
 * worker restarts, unreadable records count as damage. Until then an unreadable message may keep its segment, unless
 * compaction empties that one.
 */
#ifndef MQ_SHARDS_UNREADABLE_H
#define MQ_SHARDS_UNREADABLE_H

#include "shards/topic.h"
#include "shards/worker_state.h"

/* Whether a message can be read. Of a large one LOOK_PIECE_BYTES are looked at in a turn: READ_MORE until that is done,
 * so who asks asks again in the next turn. One is looked at at a time; it may be delivered for READ_KEPT_NS then. */
enum readable { READ_FAILS, READ_WHOLE, READ_MORE };
enum { LOOK_PIECE_BYTES = 4 << 20, READ_KEPT_NS = 1000000000 };
enum readable large_readable(struct worker *w, const struct shard *s, const struct record *r);

static inline enum readable record_readable(struct worker *w, const struct shard *s, const struct record *r) {
    enum log_look look = log_look(s->log, r);
    if (__builtin_expect(look == LOG_READS_HEAD, 0)) return large_readable(w, s, r);
    return look == LOG_READS ? READ_WHOLE : READ_FAILS;
}
static inline enum readable message_readable(struct worker *w, const struct topic *t, const struct record *r) {
    return record_readable(w, shard_of_topic(w, t), r);
}
/* The record of a message, whether it can be read or not; NULL: it was a reader's, and is gone. */
static inline const struct record *message_record(const struct worker *w, const struct topic *t, uint64_t seq) {
    return log_read(shard_of_topic(w, t)->log, stream_place(&t->stream, seq));
}
/* The record of a message in its topic's stream; NULL: none, or its beginning (log_read_head) cannot be read. */
const struct record *message_head(const struct worker *w, const struct topic *t, uint64_t seq);
/* The head of a job's record; NULL: it cannot be read. */
const struct record *job_head(const struct worker *w, const struct job *j);
/* A job's seq, from its record, else from its topic's stream, else UINT64_MAX. */
uint64_t job_seq(struct worker *w, const struct job *j);

/* Reports an unreadable message, for worker_unreadable. */
void unreadable_note(struct worker *w, uint32_t topic, log_position position);
/* Whether this turn has met enough unreadable messages: a failing medium is slow. */
static inline bool unreadable_enough(const struct worker *w) {
    return w->unreadable_in_turn >= WORKER_UNREADABLE_IN_TURN;
}
/* Has the topic's jobs given to waiting clients in the next turn, when those that cannot be read have been removed. */
void unreadable_serve_later(struct worker *w, uint32_t topic);

#endif
