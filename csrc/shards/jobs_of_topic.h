/* The jobs of a topic, in any state; a batch counts as one. */
#ifndef MQ_SHARDS_JOBS_OF_TOPIC_H
#define MQ_SHARDS_JOBS_OF_TOPIC_H

#include "shards/queue.h"
#include "shards/worker_state.h"

struct job_list {
    uint32_t *items;
    size_t count, capacity;
};

/* All of them; the caller frees the items. */
struct job_list jobs_of_topic(struct worker *w, uint32_t topic);
/* Whether they are more than this turn may touch. */
bool jobs_are_many(const struct worker *w, const struct topic *t);

/* Whether the worker's job of this number, if there is one, is one of them. */
static inline bool job_is_of_topic(const struct worker *w, uint32_t topic, uint32_t job) {
    const struct job *j = job_at(w, job);
    return j->state && !j->part && j->topic == topic && !job_is_gone(w, j);
}

#endif
