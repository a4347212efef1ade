/* Compaction: live messages of an old segment move to the head of the log. */
#ifndef MQ_SHARDS_COMPACT_H
#define MQ_SHARDS_COMPACT_H

#include "shards/worker_state.h"

/* Appends live messages of a sealed segment to the log again, reading no more than `budget` bytes. True when the whole
 * segment has been read. */
bool shard_compact(struct worker *w, struct shard *s, uint32_t segment, uint64_t budget);

/* Moves the message at a position, if still alive: its record must be readable. LATER: no room, or it must wait. MORE:
 * it is large, and moves a piece a turn. */
enum outcome shard_move_from(struct worker *w, struct shard *s, log_position position);
/* Moves a message of the topic's stream, as if its segment were to be dropped; `r` must be readable. As above. */
enum outcome shard_move_message(struct worker *w, struct shard *s, uint32_t topic, const struct record *r);
/* Each turn, while s->large_from says that a message is being moved: moves a piece of it, or gives it up. */
void shard_move_piece(struct worker *w, struct shard *s);

#endif
