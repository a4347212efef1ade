/* A topic becomes durable: it stays until it is deleted, and subscriptions may refer to its messages. */
#include "shards/durable.h"

#include "shards/known.h"
#include "shards/queue.h"
#include "shards/records.h"
#include "shards/room.h"

/* Reserves room to write the topic's record again; the last one in the log counts. */
enum outcome topic_reserve(struct worker *w, uint32_t topic, bool more, uint8_t *status) {
    struct topic *t = topic_at(&w->topics, topic);
    struct shard *s = shard_of_topic(w, t);
    if (room_reserve(w, s, 3, shard_topic_bytes(t), more, status) == LATER) return LATER;
    if (*status == STATUS_OK && !shard_number_topic(w, s, topic)) *status = STATUS_NO_SPACE;
    return DONE;
}

enum outcome topic_make_durable(struct worker *w, uint32_t topic, uint8_t *status) {
    struct topic *t = topic_at(&w->topics, topic);
    *status = STATUS_OK;
    if (t->durable) return DONE;
    if (topic_reserve(w, topic, true, status) == LATER) return LATER;
    if (*status != STATUS_OK) return DONE;
    bool was_seen = topic_seen(t);
    t->tube |= topic_jobs(t) > 0;
    t->durable = true;
    t->end_unwritten = false;
    t->ephemeral = t->said & MSG_TOPIC_EPHEMERAL;
    shard_log_topic(w, shard_of_topic(w, t), topic);
    queue_settle(w, topic, was_seen);
    catalog_changed(w);
    return DONE;
}

void replay_durable(struct worker *w, uint32_t topic, bool ephemeral) {
    struct topic *t = topic_at(&w->topics, topic);
    if (t->durable) return;
    bool was_seen = topic_seen(t);
    t->durable = true;
    t->ephemeral = ephemeral;
    queue_settle(w, topic, was_seen);
}
