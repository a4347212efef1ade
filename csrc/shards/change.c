#include "shards/change.h"

#include <string.h>

#include "shards/answers.h"
#include "shards/drain.h"
#include "shards/due.h"
#include "shards/durable.h"
#include "shards/handover_state.h"
#include "shards/naming.h"
#include "shards/pause.h"
#include "shards/records.h"
#include "shards/retain.h"
#include "shards/room.h"
#include "shards/sleeping.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/topic_life.h"

static enum outcome terminate(struct worker *w, uint32_t topic, uint8_t *status) {
    struct topic *t = topic_at(&w->topics, topic);
    if (topic_make_durable(w, topic, status) == LATER) return LATER;
    if (*status != STATUS_OK || t->terminated) return DONE;
    if (topic_reserve(w, topic, true, status) == LATER) return LATER;
    if (*status != STATUS_OK) return DONE;
    t->terminated = true;
    shard_log_topic(w, shard_of_topic(w, t), topic);
    return DONE;
}

/* Releases waiting messages piece by piece, but not those that came since this began. */
static enum outcome drain_waiting(struct worker *w, uint32_t client, uint32_t topic) {
    struct client *c = client_at(&w->clients, client);
    if (!c->upto) c->upto = topic_at(&w->topics, topic)->stream.end;
    if (topic_empty(w, topic, &c->done, c->upto, w->piece)) return DONE;
    release_wait(w, topic);
    /* So that at recovery a subscription that takes over the rest meanwhile has only that. */
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    if (shard_reserve(w, s, 1, 0, false) == LOG_OK) shard_log_emptied(w, s, topic, 0, c->done);
    return MORE;
}

static enum outcome change_topic(struct worker *w, uint32_t client, uint32_t topic, uint32_t what, uint8_t *status) {
    struct shard *s = shard_of_topic(w, topic_at(&w->topics, topic));
    if (what == CHANGE_PAUSE || what == CHANGE_UNPAUSE) return topic_pause(w, topic, what == CHANGE_PAUSE, status);
    if (what == CHANGE_TERMINATE) return terminate(w, topic, status);
    *status = STATUS_INVALID;
    if (what != CHANGE_EMPTY && what != CHANGE_DELETE) return DONE;
    enum outcome drained = what == CHANGE_EMPTY ? drain_waiting(w, client, topic) : topic_drain(w, client, topic);
    if (drained == MORE) return MORE;
    if (room_reserve(w, s, 1, 0, false, status) == LATER) return LATER;
    if (*status != STATUS_OK) return DONE;
    shard_log_end(w, s, what == CHANGE_EMPTY ? RECORD_EMPTY : RECORD_TOPIC_GONE, topic, NULL);
    struct client *c = client_at(&w->clients, client);
    if (what == CHANGE_EMPTY)
        (void)topic_empty(w, topic, &c->done, UINT64_MAX, UINT32_MAX);
    else
        topic_end(w, topic);
    c->done = c->upto = 0;
    return DONE;
}

/* Releases all of a channel. If that takes several turns, the first one logs that the channel has nothing any more. */
static enum outcome drain(struct worker *w, uint32_t client, uint32_t subscription, uint32_t what) {
    const struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    if (what != CHANGE_EMPTY && what != CHANGE_DELETE) return DONE;
    uint64_t until = what == CHANGE_EMPTY ? subscription_horizon(t) : t->stream.end;
    bool begins = !client_at(&w->clients, client)->done;
    enum outcome outcome = subscription_drain(w, client, subscription, until, UINT64_MAX);
    if (outcome == MORE) worker_subscription(w, subscription)->lets_go = true;
    struct shard *shard = shard_of_topic(w, t);
    if (outcome == MORE && begins && s->number && shard_reserve(w, shard, 1, 0, false) == LOG_OK)
        shard_log_emptied(w, shard, s->topic, s->number, until);
    return outcome;
}

static enum outcome change_subscription(struct worker *w, uint32_t client, uint32_t subscription, uint32_t what,
                                        uint8_t *status) {
    *status = STATUS_INVALID;
    if (what < CHANGE_DELETE || what > CHANGE_UNPAUSE) return DONE;
    struct subscription *s = worker_subscription(w, subscription);
    uint32_t topic = s->topic;
    const struct topic *t = topic_at(&w->topics, topic);
    struct shard *shard = shard_of_topic(w, t);
    *status = STATUS_OK;
    if (drain(w, client, subscription, what) == MORE) return MORE;
    if (s->number && room_reserve(w, shard, 2, 2 * s->name_bytes, false, status) == LATER) return LATER;
    s->lets_go = false;
    if (*status != STATUS_OK) return DONE;
    bool last_of_ephemeral = false;
    switch (what) {
    case CHANGE_EMPTY:
        subscription_empty(w, subscription, subscription_horizon(t));
        if (s->number) shard_log_end(w, shard, RECORD_EMPTY, topic, s);
        break;
    case CHANGE_DELETE:
        if (s->number) shard_log_end(w, shard, RECORD_UNSUBSCRIBE, topic, s);
        subscription_end(w, subscription);
        last_of_ephemeral = t->ephemeral && !t->subscriptions;
        break;
    default:
        s->paused = what == CHANGE_PAUSE;
        if (s->number) shard_log_subscription(w, shard, s);
        if (s->turn) subscription_due(w, subscription);
    }
    if (last_of_ephemeral) {
        topic_at(&w->topics, topic)->end_unwritten = true;
        topic_end(w, topic);
    }
    return DONE;
}

/* The topic of a CHANGE, which CHANGE_MAKE makes if there is none. */
static uint32_t topic_named(struct worker *w, const char *name, size_t name_bytes, uint32_t shard, bool make) {
    uint32_t topic = topics_find(&w->topics, name, name_bytes);
    if (!topic && make && name_bytes && name_bytes <= TOPIC_NAME_BYTES && topics_have_room(&w->topics, name_bytes))
        topic = shard_make_topic(w, w->own[shard], name, name_bytes);
    return topic;
}

static enum outcome make(struct worker *w, uint32_t topic, uint32_t what, const struct channel_wish *channel,
                         uint8_t *status) {
    uint32_t subscription;
    if (what == CHANGE_RETAIN) return topic_retain_all(w, topic, status);
    return channel->name ? topic_subscription(w, topic, channel, &subscription, status)
                         : topic_make_durable(w, topic, status);
}

/* The channel that a CHANGE names; without one the name is empty. */
static struct channel_wish channel_named(const struct message *m) {
    const char *body = (const char *)(m + 1), *end = body + m->body_bytes;
    const char *name = memchr(body, '\n', m->body_bytes);
    if (!name) return (struct channel_wish){0};
    return (struct channel_wish){
        .name = name + 1, .name_bytes = (size_t)(end - name - 1), .ephemeral = (m->flags & MSG_CHANNEL_EPHEMERAL) != 0};
}

static enum outcome change_named(struct worker *w, uint32_t client, const struct message *m, uint32_t *topic,
                                 uint8_t *status) {
    struct channel_wish channel = channel_named(m);
    const struct subscribe_start start = {.start = (uint32_t)m->begin, .at = m->at};
    size_t name_bytes = m->body_bytes - (channel.name ? channel.name_bytes + 1 : 0);
    bool at = m->change == CHANGE_MAKE_AT;
    bool makes = m->change == CHANGE_MAKE || at || (m->change == CHANGE_RETAIN && !channel.name);
    *status = STATUS_INVALID;
    if (at && (!channel.name || m->begin > START_TIME)) return DONE;
    if (at) channel.start = &start;
    *status = STATUS_NOT_FOUND;
    if (m->shard >= w->shards || !w->own[m->shard]) return DONE;
    *topic = topic_named(w, (const char *)(m + 1), name_bytes, (uint32_t)m->shard, makes && !channel.name);
    if (!*topic) {
        if (makes && !channel.name) *status = STATUS_TOO_MANY;
        return DONE;
    }
    struct topic *t = topic_at(&w->topics, *topic);
    if (handover_goes_on(t)) return MORE;
    if (makes) topic_hear(t, m->flags);
    if (makes && (!channel.name || t->durable || topic_jobs(t))) {
        enum outcome outcome = make(w, *topic, m->change, &channel, status);
        shard_settle_topic(w, *topic);
        return outcome;
    }
    if (!t->durable && !topic_jobs(t)) return DONE;
    if (!channel.name) return change_topic(w, client, *topic, m->change, status);
    uint32_t subscription = subscription_find(w, *topic, channel.name, channel.name_bytes);
    *status = STATUS_NONE;
    return subscription ? change_subscription(w, client, subscription, m->change, status) : DONE;
}

enum outcome topic_change(struct worker *w, uint32_t client, const struct message *m) {
    uint8_t status;
    uint32_t topic = 0;
    enum outcome outcome = change_named(w, client, m, &topic, &status);
    if (outcome != DONE) return outcome;
    struct message a = request_answer_of(w, client, m, status);
    a.id = m->id;
    if (status == STATUS_OK) a.incarnation = topic_at(&w->topics, topic)->incarnation;
    request_send(w, client, &a, NULL, 0);
    return DONE;
}
