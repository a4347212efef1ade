/* The topics that the log knows, and where it names them. */
#ifndef MQ_SHARDS_KNOWN_H
#define MQ_SHARDS_KNOWN_H

#include "shards/topic.h"
#include "shards/worker_state.h"

/* How many bytes a topic's record takes besides its header. */
static inline uint64_t shard_topic_bytes(const struct topic *t) {
    return t->name_bytes + sizeof(struct topic_attributes);
}
struct log_size {
    size_t records;
    uint64_t bytes; /* bytes of attributes and bodies */
};
static inline uint64_t log_size_bytes(struct log_size size) {
    return size.records * LOG_RECORD_OVERHEAD + size.bytes;
}
/* Whether a subscription is in the log; one that is being handed a backlog is not yet. */
bool shard_has_logged(const struct shard *s, const struct subscription *of, uint32_t subscription);
/* How much it takes to name a topic. */
struct log_size shard_name_size(const struct worker *w, const struct shard *s, const struct topic *t);
/* To be called when a topic and all its channels have just been written; or when the log does not know it any more. */
void shard_note_named(struct worker *w, struct shard *s, uint32_t topic);
/* To be called when a channel was written behind its topic's name: naming the topic again takes more bytes. */
void shard_note_channel(struct worker *w, struct shard *s, uint32_t topic);
void shard_names_recovered(struct worker *w, struct shard *s);
/* Bytes of names that must be written before a segment can be deleted. */
uint64_t shard_segment_names(const struct shard *s, uint32_t segment);
/* The topic that has a number in the shard's log; 0: none has. */
static inline uint32_t shard_topic(const struct shard *s, uint32_t number) {
    return map_find(&s->numbers, number);
}
/* Give a topic this number in the shard's log, which must be free; a topic a new number, unless it has one; a
 * subscription this number. False when memory is short. */
bool shard_know_topic(struct worker *w, struct shard *s, uint32_t topic, uint32_t number);
bool shard_number_topic(struct worker *w, struct shard *s, uint32_t topic);
/* Makes the log forget a topic; topics made later count on from where it stopped. The second notes it for the record of
 * that. */
void shard_unknow_topic(struct worker *w, uint32_t topic);
void shard_forget_topic(struct worker *w, uint32_t topic, struct floor *floor);
/* The position from which on retained messages can be read. */
static inline uint64_t retained_oldest(const struct shard *s) {
    return (uint64_t)log_first_segment(s->log) << 32;
}

#endif
