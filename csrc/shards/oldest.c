/* Answers when the oldest message was published that a channel has not finished, or that is next in a tube. It is
 * searched for on request, so that messages cost nothing more. */
#include "shards/oldest.h"

#include <string.h>

#include "shards/answers.h"
#include "shards/handover_state.h"
#include "shards/ready.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/unreadable.h"

/* The lowest seq of a list of deliveries and `lowest`, after at most *steps steps. */
static uint64_t lowest_of(const struct worker *w, uint32_t first, uint64_t lowest, uint32_t *steps) {
    for (uint32_t n = first; n && *steps; n = worker_delivery(w, n)->following, --*steps)
        if (worker_delivery(w, n)->seq < lowest) lowest = worker_delivery(w, n)->seq;
    return lowest;
}

/* The oldest message that is ahead of the channel's cursor, to be delivered again, or in flight; not deferred ones. If
 * there are more than a turn may touch, only the front of the lists is searched, which usually has the oldest. */
static uint64_t oldest_of_channel(struct worker *w, uint32_t subscription) {
    const struct subscription *s = worker_subscription(w, subscription);
    uint64_t lowest = UINT64_MAX;
    uint32_t steps = WORKER_TURN_STEPS;
    if (!subscription_front(w, subscription, &lowest)) lowest = UINT64_MAX;
    lowest = lowest_of(w, s->redelivery_first, lowest, &steps);
    for (uint32_t n = s->consumer_first; n && steps; n = worker_consumer(w, n)->next, steps -= steps > 0)
        lowest = lowest_of(w, worker_consumer(w, n)->inflight_first, lowest, &steps);
    w->steps += WORKER_TURN_STEPS - steps;
    return lowest;
}

static const struct record *oldest_record(struct worker *w, uint32_t topic, const char *channel, size_t bytes,
                                          uint8_t *status) {
    const struct topic *t = topic_at(&w->topics, topic);
    struct heap_entry key;
    if (!channel && goes_to_queue(t))
        return ready_first(&t->ready, &w->jobs, &key) ? job_head(w, job_at(w, heap_item(key))) : NULL;
    if (!channel && (t->subscription_count || !t->stream.live)) return NULL;
    uint32_t subscription = channel ? subscription_find(w, topic, channel, bytes) : 0;
    if (channel && !subscription) *status = STATUS_NOT_FOUND;
    if (channel && !subscription) return NULL;
    uint64_t seq = channel ? oldest_of_channel(w, subscription) : stream_next(&t->stream, 0);
    return seq < t->next_seq ? message_head(w, t, seq) : NULL;
}

enum outcome oldest(struct worker *w, uint32_t client, const struct message *m) {
    const char *name = (const char *)(m + 1);
    const char *end = memchr(name, '\n', m->body_bytes), *channel = end ? end + 1 : NULL;
    size_t topic_bytes = end ? (size_t)(end - name) : m->body_bytes;
    uint32_t topic = topics_find(&w->topics, name, topic_bytes);
    if (topic && handover_goes_on(topic_at(&w->topics, topic))) return MORE;
    uint8_t status = topic ? STATUS_NONE : STATUS_NOT_FOUND;
    const struct record *r =
        topic ? oldest_record(w, topic, channel, channel ? m->body_bytes - topic_bytes - 1 : 0, &status) : NULL;
    struct message a = request_answer_of(w, client, m, r ? STATUS_OK : status);
    if (r) a.time_ns = r->time_ns;
    request_send(w, client, &a, NULL, 0);
    return DONE;
}
