/* The life of durable topics and their subscriptions. */
#ifndef MQ_SHARDS_TOPIC_LIFE_H
#define MQ_SHARDS_TOPIC_LIFE_H

#include "shards/topic.h"
#include "shards/worker_state.h"

/* Makes the topic a tube, as a client wants one: messages that wait for a first subscription become jobs. It is no tube
 * yet if the log has no room for the record; LATER: room will come. MORE: nothing was done, as others have used up this
 * turn. */
enum outcome topic_make_tube(struct worker *w, uint32_t topic);
static inline enum outcome topic_want_tube(struct worker *w, uint32_t topic) {
    return topic_at(&w->topics, topic)->tube ? DONE : topic_make_tube(w, topic);
}
/* A channel that is asked for; `start` NULL: with the topic's backlog if it is the first, else with what comes. */
struct channel_wish {
    const char *name;
    size_t name_bytes;
    bool ephemeral;
    bool to_join; /* without consumers it is not wanted */
    const struct subscribe_start *start;
};
/* Finds or makes the channel of that name. */
enum outcome topic_subscription(struct worker *w, uint32_t topic, const struct channel_wish *wish,
                                uint32_t *subscription, uint8_t *status);
/* The channel has no consumers any more: an ephemeral one is removed, and its topic if that is ephemeral too. */
void subscription_idle(struct worker *w, uint32_t subscription);
/* Removes a subscription, whose consumers are dismissed. */
void subscription_end(struct worker *w, uint32_t subscription);
/* Removes a topic's messages, jobs and subscriptions. */
void topic_end(struct worker *w, uint32_t topic);
/* Releases messages that wait for the first subscription, or are kept by the topic itself, from *from, which advances,
 * and before `until`, `most` at most. False: there are more. */
bool topic_empty(struct worker *w, uint32_t topic, uint64_t *from, uint64_t until, uint32_t most);
/* Each turn, after parked requests have been tried again: goes on with handovers. True if there is more. */
bool handovers_go_on(struct worker *w);
/* A job in no state is done: frees it, and the message unless a subscription refers to it. */
void job_done(struct worker *w, uint32_t job, uint64_t seq);
/* During recovery: a message is done, with all its remaining jobs. */
void jobs_done(struct worker *w, uint32_t job, uint64_t seq);

#endif
