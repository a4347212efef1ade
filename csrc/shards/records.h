/* Appends records to the log, for which the caller has reserved room. */
#ifndef MQ_SHARDS_RECORDS_H
#define MQ_SHARDS_RECORDS_H

#include "shards/arrival.h"
#include "shards/worker_state.h"

/* Appends records that say nothing new, of `bytes` bytes in all. */
enum { SHARD_FILLER_BYTES = 64 << 10 };
void shard_log_filler(struct worker *w, struct shard *s, uint64_t bytes);
void shard_log_lost(struct worker *w, struct shard *s, uint64_t seqs);
void shard_log_floor(struct worker *w, struct shard *s, const struct floor *floor);
/* What a segment begins with: the floor, and all forgotten topics that are remembered. */
void shard_log_forgotten(struct worker *w, struct shard *s);
void shard_log_topic(struct worker *w, struct shard *s, uint32_t topic);
log_position shard_log_publish(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq,
                               const struct arrival *one, struct publish_attributes attributes, uint16_t flags);
log_position shard_log_staged(struct worker *w, struct shard *s, uint32_t topic, uint64_t seq,
                              const struct arrival *one, const struct staged_attributes *a, uint16_t flags);
/* Both of these records keep their segment alive until they are counted out. */
log_position shard_log_pending(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq,
                               uint64_t txn, const struct parts_left *left, bool upto);
void shard_log_txn_end(struct worker *w, struct shard *s, uint32_t topic, uint64_t txn, bool commit);
/* Also remembers the producer. flags: PUBLISH_MORE, PRODUCER_NAMED. */
void shard_log_producer(struct worker *w, struct shard *s, const struct producer_part *part, uint16_t flags);
/* Appends a record for each producer that is remembered. */
void shard_log_producers(struct worker *w, struct shard *s, const struct producers *all, uint16_t flags);
void shard_log_delete(struct worker *w, struct shard *s, const struct job *job, uint64_t seq);
/* Says again that one of a message's jobs is deleted. */
void shard_log_delete_part(struct worker *w, struct shard *s, const struct job *whole, uint64_t id);
void shard_log_state(struct worker *w, struct shard *s, const struct job *job);
/* Appends a copy of the PUBLISH or MOVED record of a message, with the present state of its job, if it has one. */
log_position shard_log_moved(struct worker *w, struct shard *s, uint32_t topic, const struct job *job,
                             const struct record *from, uint16_t flags);
void shard_log_references(struct worker *w, struct shard *s, uint32_t topic, const struct record *of, uint16_t flags,
                          const struct reference *references, size_t count);
void shard_log_subscription(struct worker *w, struct shard *s, struct subscription *of);
/* flags: SEEK_UPTO. */
void shard_log_seek(struct worker *w, struct shard *s, struct subscription *of, uint16_t flags);
void shard_log_cursor(struct worker *w, struct shard *s, struct subscription *of);
/* Writes the finishes that subscription_finished has noted, and forgets them. */
void shard_log_finish(struct worker *w, struct shard *s, struct subscription *of);
/* Says that one is finished that may be ahead of the cursor. */
void shard_log_finish_one(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq);
/* Says that all that were delivered up to a seq are finished. */
void shard_log_finish_upto(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq);
void shard_log_finish_parts(struct worker *w, struct shard *s, const struct subscription *of, uint64_t seq,
                            const struct parts_left *left, struct parts_span span);
uint64_t shard_finish_bytes(const struct subscription *of);
void shard_log_redelivery(struct worker *w, struct shard *s, const struct subscription *of, const struct delivery *d);
struct redelivery shard_redelivery_of(const struct worker *w, const struct delivery *d);
void shard_log_adopted(struct worker *w, struct shard *s, const struct subscription *by, const uint64_t *ids,
                       size_t count, uint16_t flags);
/* Says that the topic's stream gets the messages of these jobs. */
void shard_log_joined(struct worker *w, struct shard *s, uint32_t topic, const uint64_t *ids, size_t count);
/* Says that the subscription gets all messages in the job queue; those delayed at `wall_ns` as delayed. */
void shard_log_adopted_all(struct worker *w, struct shard *s, const struct subscription *by, uint64_t wall_ns);
/* Appends EMPTY or UNSUBSCRIBE of a subscription; TOPIC_GONE, with `of` NULL. */
void shard_log_end(struct worker *w, struct shard *s, enum record_kind kind, uint32_t topic, struct subscription *of);
/* Says that the subscription with this number holds nothing before `until` any more; 0: the messages that wait for the
 * topic's first one are meant. */
void shard_log_emptied(struct worker *w, struct shard *s, uint32_t topic, uint32_t subscription, uint64_t until);

#endif
