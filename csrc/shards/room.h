/* Room in the log for what a request writes. */
#ifndef MQ_SHARDS_ROOM_H
#define MQ_SHARDS_ROOM_H

#include "shards/worker_state.h"

/* Reserves room in the log. If there is none: LATER if a segment is on its way, else the status to answer with. */
enum outcome room_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish,
                          uint8_t *status);
/* The same for a publish; the segment it goes to will name the topic. */
enum outcome room_reserve_named(struct worker *w, uint32_t topic, uint32_t records, uint64_t bytes, uint8_t *status);

/* Whether room will come: a segment that was asked for, or the one that a large message is being written to. */
bool room_await(struct worker *w, struct shard *s, enum log_result result);
/* The outcome of an attempt to reserve. */
enum outcome room_reserved(struct worker *w, struct shard *s, enum log_result result, bool publish, uint8_t *status);

#endif
