/* Recovery: no seq or id that may have been given out in a lost part of a log is given out again.
 *
 * A lost part of so many bytes had at most so many messages as records fit into it, and each may have been of any topic
 * that was there. So a topic counts on behind that many seqs, unless a record behind the lost part says where it stood.
 * The lost part stays in the log, and later starts come to the same seqs; where one has to be cut off, at the log's
 * end, a FLOOR with FLOOR_LOST takes its place.
 */
#ifndef MQ_SKIP_H
#define MQ_SKIP_H

#include "shards/worker_state.h"

/* What was written last, and not synced, may be lost without a trace: that are no more messages of a topic than this,
 * which take 200 GB. */
#define SKIP_SEQS ((uint64_t)UINT32_MAX)
/* In counts of the board: more than may have been given out since the last id that some log has. */
#define SKIP_IDS ((uint64_t)1 << 32)

/* So many segments are missing here. */
void skip_segments(struct shard *s, uint32_t segments);
/* So many bytes are lost here, after copies of records in them were replayed. */
void skip_lost(struct shard *s, uint64_t bytes);
/* A FLOOR with FLOOR_LOST is read. */
void skip_read(struct shard *s, const struct record *r);
/* Appends one to the end of the active segment, where `bytes` bytes are lost. Moves *end behind it. */
void skip_write(const struct worker *w, struct shard *s, uint64_t *end, uint64_t bytes);
/* What was written last may be lost, if so. After all has been read, */
void skip_end(struct shard *s);
/* ... and, when the worker has recovered and has segments: appends a FLOOR with FLOOR_LOST for that. False: in some
 * shard there is no room. */
bool skip_note_ends(struct worker *w);
/* A record that knows the topic's next seq has been read. */
static inline void skip_nothing(const struct shard *s, struct topic *t) {
    t->lost_before = s->lost_seqs;
}
/* All has been read. */
void skip_all(struct worker *w, struct shard *s);
/* Takes the board's counter behind all ids that may have been given out. After the last shard of the worker. */
void skip_ids(struct worker *w);

#endif
