/* Topics that sleep. */
#ifndef MQ_SHARDS_SLEEPING_H
#define MQ_SHARDS_SLEEPING_H

#include "shards/topic.h"
#include "shards/worker_state.h"

/* Makes a topic, 0 if it cannot. It counts on from where it had come if the shard remembers that, otherwise from
 * the shard's floor. */
uint32_t shard_make_topic(struct worker *w, struct shard *s, const char *name, size_t name_bytes);
/* To be called after anything that may send a topic to sleep or wake it. May remove one that the log does not know. */
void shard_settle_topic(struct worker *w, uint32_t topic);
/* Forgets some of the topics that have slept longest. True if there are more. */
bool shards_forget(struct worker *w);
void shard_sleep_after_replay(struct worker *w, struct shard *s);
/* Whether a topic must not be forgotten, as somebody remembers its seqs. */
static inline bool shard_keeps(const struct shard *s, const struct topic *t) {
    return s->keep_all || map_find(&s->keep, t->key);
}
/* Sets the topics that must not be forgotten (names separated by newlines; NULL: all topics). Each call replaces the
 * previous one. */
void shard_keep_topics(struct worker *w, struct shard *s, const char *names, size_t bytes);

#endif
