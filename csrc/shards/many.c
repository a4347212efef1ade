/* Carries out a PUBLISH_MANY: many messages, of which all are published or none, with one answer. If they are too many
 * for one turn they are handled as a group (group.c).
 */
#include "shards/many.h"

#include <string.h>

#include "shards/catalog.h"
#include "shards/enter.h"
#include "shards/group.h"
#include "shards/non_persistent.h"
#include "shards/producers.h"
#include "shards/publish.h"
#include "shards/queue.h"
#include "shards/records.h"

enum { DEFAULT_PRIORITY = 1024 };

static bool split_many(const struct message *m, struct many *out) {
    const uint8_t *at = (const uint8_t *)(m + 1);
    *out = (struct many){
        .at = at, .end = at + m->body_bytes, .idempotent = (m->flags & MSG_IDEMPOTENT) != 0, .pri = DEFAULT_PRIORITY};
    if (m->flags & MSG_PRIORITY) {
        struct publish_priority said;
        if (m->body_bytes < sizeof said) return false;
        memcpy(&said, at, sizeof said);
        out->pri = said.pri;
        at = out->at += sizeof said;
    }
    if (!out->idempotent) return true;
    if ((size_t)(out->end - at) < sizeof out->part) return false;
    memcpy(&out->part, at, sizeof out->part);
    out->at += sizeof out->part;
    return true;
}

/* Whether there are as many messages as the request says, and nothing else. */
static bool all_whole(const struct message *m, const struct many *many) {
    return m->count > 0 && many_count(many->at, (size_t)(many->end - many->at), UINT32_MAX) == m->count;
}

/* Whether a message is a packed one, which may not be among many: each of these has one id. */
static bool is_packed(const struct arrival *one) {
    struct headers h;
    memcpy(&h, one->content, sizeof h);
    return h.packed_bytes > 0;
}

static bool all_headers_whole(const struct message *m, struct many many) {
    bool are = true;
    for (uint32_t left = m->flags & MSG_HEADERS ? m->count : 0; are && left > 0; left--) {
        struct arrival one = next_of_many(&many);
        are = publish_split_headers(m, &one) && !is_packed(&one);
    }
    return are;
}

/* Whether the batch was not published yet, if its producer is idempotent; if it was, `status` is the answer. */
static bool is_next(struct worker *w, uint32_t topic, const struct many *many, uint8_t *status) {
    if (!many->idempotent) return true;
    switch (producers_ask(&shard_of_topic(w, topic_at(&w->topics, topic))->batch_producers, &many->part, w->wall_ns)) {
    case PRODUCER_NEXT: return true;
    case PRODUCER_DONE: *status = STATUS_OK; return false;
    case PRODUCER_EARLY: *status = STATUS_EARLY; return false;
    }
    return false;
}

/* How far a request that is not answered yet has come: client.done. */
enum { MANY_WHOLE = 1, MANY_GROUP, MANY_ENTERED };

/* Whether the messages are to be written; if not, `status` is the answer. */
static bool is_due(struct worker *w, uint32_t client, uint32_t topic, const struct message *m, const struct many *many,
                   uint8_t *status) {
    const struct client *c = client_at(&w->clients, client);
    if (!topic || (c->done != MANY_WHOLE && !all_whole(m, many))) return false;
    if (c->done != MANY_WHOLE && !all_headers_whole(m, *many)) {
        *status = STATUS_INVALID;
        return false;
    }
    return is_next(w, topic, many, status);
}

static void enter_many(struct worker *w, uint32_t topic, const struct message *m, struct many *many) {
    bool unheard = topic_at(&w->topics, topic)->messages == 0;
    if (many->idempotent)
        shard_log_producer(w, shard_of_topic(w, topic_at(&w->topics, topic)), &many->part, PUBLISH_MORE);
    struct message each = *m;
    each.pri = many->pri;
    uint64_t id = m->id;
    for (uint32_t left = m->count; left > 0; left--, id += w->shards) {
        struct arrival one = next_of_many(many);
        one.id = id;
        if (m->flags & MSG_HEADERS) (void)publish_split_headers(m, &one);
        publish_enter(w, topic, &each, &one, left > 1);
    }
    if (unheard) catalog_heard(w, topic);
}

/* The messages are in the log, and with all subscriptions. Ephemeral ones that are too far behind drop their oldest
 * messages piece by piece. The publisher is answered after that, so that it does not outrun them. */
static enum outcome trim_many(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    struct client *c = client_at(&w->clients, client);
    const struct topic *t = topic_at(&w->topics, topic);
    if (t->ephemeral_count && publish_trim_ephemeral(w, t, UINT32_MAX, w->piece) == 0) return MORE;
    publish_answer(w, client, topic, m, STATUS_OK, c->upto);
    return DONE;
}

/* To be called when the messages are in the log, and in the topic from `first` on. */
static enum outcome entered(struct worker *w, uint32_t client, uint32_t topic, const struct message *m,
                            uint64_t first) {
    struct client *c = client_at(&w->clients, client);
    if (!m->delay_ns) queue_serve(w, topic);
    c->done = MANY_ENTERED;
    c->upto = first;
    return trim_many(w, client, topic, m);
}

/* Publishes messages that are not too many for one turn. */
static enum outcome enter_at_once(struct worker *w, uint32_t client, uint32_t topic, const struct message *m,
                                  struct many *many, uint8_t *status) {
    struct message durable = *m;
    durable.flags |= MSG_DURABLE;
    uint64_t bytes = m->count * (uint64_t)sizeof(struct publish_attributes) + m->body_bytes;
    enum outcome prepared = publish_prepare(w, topic, &durable, m->count, bytes, NULL, status);
    if (prepared != DONE || *status != STATUS_OK) return prepared;
    enter_many(w, topic, m, many);
    /* So that no other request of this size is carried out in this turn. */
    if (m->count > WORKER_TURN_STEPS) w->spare_until = w->steps;
    return entered(w, client, topic, m, topic_at(&w->topics, topic)->next_seq - m->count);
}

/* What is not persistent goes on a piece a turn; `client.upto` is how many bytes of it have gone on. */
static enum outcome pass_on(struct worker *w, uint32_t client, uint32_t topic, const struct message *m,
                            struct many *many, uint8_t *status) {
    struct message durable = *m;
    durable.flags |= MSG_DURABLE;
    enum outcome ready = publish_make_ready(w, topic, &durable, m->count, status);
    if (ready != DONE || *status != STATUS_OK) return ready;
    struct client *c = client_at(&w->clients, client);
    const uint8_t *begin = many->at;
    many->at += c->upto;
    for (uint32_t left = w->piece; left > 0 && many->at < many->end; left--) {
        struct arrival one = next_of_many(many);
        one.id = m->id;
        if (m->flags & MSG_HEADERS) (void)publish_split_headers(m, &one);
        non_persistent_publish(w, topic, &one);
    }
    c->upto = (uint64_t)(many->at - begin);
    return many->at < many->end ? MORE : DONE;
}

static enum outcome begin_group(struct worker *w, uint32_t client, uint32_t topic, const struct message *m,
                                const struct many *many, uint8_t *status) {
    struct message durable = *m;
    bool begun = false;
    durable.flags |= MSG_DURABLE;
    enum outcome outcome = publish_make_ready(w, topic, &durable, m->count, status);
    if (outcome != DONE || *status != STATUS_OK) return outcome;
    outcome = group_begin(w, topic, m, many, &begun, status);
    if (begun) client_at(&w->clients, client)->done = MANY_GROUP;
    return outcome;
}

/* Goes on with a group. DONE with a status other than OK: none of it counts. */
static enum outcome go_on(struct worker *w, uint32_t client, uint32_t topic, const struct message *m,
                          const struct many *many, uint8_t *status) {
    struct group *group = &shard_of_topic(w, topic_at(&w->topics, topic))->group;
    uint64_t first;
    *status = STATUS_OK;
    if (group->counts) {
        bool unheard = topic_at(&w->topics, topic)->messages == 0;
        enum outcome outcome = group_take_in(w, topic, m, many, &first);
        if (unheard && topic_at(&w->topics, topic)->messages) catalog_heard(w, topic);
        return outcome == DONE ? entered(w, client, topic, m, first) : outcome;
    }
    if (group_is_outdated(w, topic, m)) {
        group_drop(w, topic);
        client_at(&w->clients, client)->done = MANY_WHOLE;
        return MORE;
    }
    enum outcome outcome = group_write(w, topic, m, many, status);
    if (outcome != DONE) return outcome;
    if (*status == STATUS_OK && is_next(w, topic, many, status) && group_count(w, topic, m, many, status)) return MORE;
    group_drop(w, topic);
    return DONE;
}

static enum outcome begin(struct worker *w, uint32_t client, uint32_t topic, const struct message *m, struct many *many,
                          uint8_t *status) {
    if (topic_non_persistent(topic_at(&w->topics, topic))) return pass_on(w, client, topic, m, many, status);
    return group_takes(w, m) ? begin_group(w, client, topic, m, many, status)
                             : enter_at_once(w, client, topic, m, many, status);
}

bool many_is_begun(const struct client *c) {
    return c->done == MANY_GROUP;
}

enum outcome publish_many(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    struct client *c = client_at(&w->clients, client);
    uint8_t status = topic ? STATUS_NO_SPACE : STATUS_TOO_MANY;
    enum outcome outcome = DONE;
    struct many many;
    bool is_split = split_many(m, &many);
    if (c->done == MANY_ENTERED)
        outcome = trim_many(w, client, topic, m);
    else if (c->done == MANY_GROUP)
        outcome = go_on(w, client, topic, m, &many, &status);
    else if (is_split && is_due(w, client, topic, m, &many, &status))
        outcome = begin(w, client, topic, m, &many, &status);
    /* Notes that the messages were checked, so that this is not repeated each time the request waits. */
    if (outcome == MORE && !c->done) c->done = MANY_WHOLE;
    if (outcome != DONE) return outcome;
    if (c->done != MANY_ENTERED)
        publish_answer(w, client, topic, m, status, topic ? topic_at(&w->topics, topic)->next_seq : 0);
    c->done = c->upto = 0;
    return DONE;
}
