/* Where topics are named in the log. */
#ifndef MQ_SHARDS_NAMING_H
#define MQ_SHARDS_NAMING_H

#include "shards/worker_state.h"

/* Reserves room for records with `bytes` of attributes and bodies. Publishes also keep what deletes will need. */
enum log_result shard_reserve(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes, bool publish);

/* Reserves room for messages to a topic, and writes the topic's name first, if the segment does not have it yet. */
enum log_result shard_reserve_named(struct worker *w, struct shard *s, uint32_t topic, uint32_t records,
                                    uint64_t bytes);
/* Reserves room that nothing else is kept free for, to write names before a segment goes. */
enum log_result shard_reserve_for_names(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes);
/* Names a topic; its channels in the order in which they were made. */
void shard_write_name(struct worker *w, struct shard *s, uint32_t topic);

/* For a message that is written in pieces (large.c): the first makes room for it, and for records of `behind_bytes`
 * that will follow it. The second, when all of its body is in the log, makes room for its record and a PRODUCER record
 * of `beside_bytes`, if not 0, which must be appended next. LOG_NO_SPACE: too many names were written meanwhile. The
 * third is for the records that follow, for which there is room. */
enum log_result shard_begin_large(struct worker *w, struct shard *s, uint32_t topic, uint8_t attribute_bytes,
                                  uint64_t body_bytes, uint64_t behind_bytes);
enum log_result shard_end_large(struct worker *w, struct shard *s, uint32_t topic, uint64_t beside_bytes);
void shard_reserve_behind_large(struct worker *w, struct shard *s, uint32_t records, uint64_t bytes);
/* The same for a group (group.c), whose records take `bytes`. */
enum log_result shard_begin_group(struct worker *w, struct shard *s, uint32_t topic, uint64_t bytes);

#endif
