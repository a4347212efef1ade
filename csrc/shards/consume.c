/* Carries out consumers' requests: SUBSCRIBE, and for each delivered message FINISH, REQUEUE or EXTEND. */
#include "shards/consume.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shards/answers.h"
#include "shards/consumer.h"
#include "shards/delivery.h"
#include "shards/dismiss.h"
#include "shards/finish.h"
#include "shards/parts.h"
#include "shards/policy.h"
#include "shards/records.h"
#include "shards/room.h"
#include "shards/rotation.h"
#include "shards/split.h"
#include "shards/subscription.h"
#include "shards/topic_life.h"
#include "shards/unreadable.h"
#include "shards/upto.h"

/* Needed for each message, so the case of a connection with a single consumer comes first. */
static inline uint32_t consumer_named(const struct worker *w, uint32_t client, uint32_t number) {
    uint32_t only = client_at(&w->clients, client)->consumer;
    return only && worker_consumer(w, only)->number == number ? only : consumer_find(w, client, number);
}

static bool make_consumer(struct worker *w, uint32_t client, uint32_t subscription, const struct message *m,
                          const struct subscribe *s, const uint8_t *description) {
    uint8_t *copy = malloc(s->description_bytes + 1);
    uint32_t consumer = copy ? consumer_make(w, client, m->consumer_number, subscription) : 0;
    if (!consumer) {
        free(copy);
        return false;
    }
    struct consumer *c = worker_consumer(w, consumer);
    memcpy(copy, description, s->description_bytes);
    c->description = copy;
    c->description_bytes = s->description_bytes;
    c->timeout_ns = s->timeout_ns;
    c->timeout_max_ns = s->timeout_max_ns;
    c->sample_percent = s->sample_percent;
    c->topic_number = m->topic;
    c->uncounted = (s->flags & SUBSCRIBE_UNCOUNTED) != 0;
    c->compacted = (s->flags & SUBSCRIBE_COMPACTED) != 0;
    c->wants_headers = (s->flags & SUBSCRIBE_HEADERS) != 0;
    return true;
}

/* A SUBSCRIBE, parsed. */
struct wish {
    struct subscribe subscribe;
    const char *name;
    const uint8_t *description;
    struct subscribe_start start;
    struct policy_wish policy;
};

static bool split_policy(const uint8_t *at, size_t bytes, struct policy_wish *out) {
    struct subscribe_policy *p = &out->policy;
    if (bytes < sizeof *p) return false;
    memcpy(p, at, sizeof *p);
    out->name = (const char *)at + sizeof *p;
    out->ranges = at + sizeof *p + p->name_bytes;
    out->range_count = p->policy == POLICY_KEY ? p->ranges : 0;
    bool fits = p->policy <= POLICY_KEY && p->name_bytes <= CONSUMER_NAME_MAX && out->range_count <= KEY_MAX_RANGES;
    return fits && bytes == sizeof *p + p->name_bytes + out->range_count * sizeof(struct key_range);
}

static bool is_whole(const struct message *m, struct wish *out) {
    const uint8_t *body = (const uint8_t *)(m + 1);
    struct subscribe *s = &out->subscribe;
    out->policy = (struct policy_wish){0};
    if (m->body_bytes < sizeof *s) return false;
    memcpy(s, body, sizeof *s);
    out->policy.again_first = (s->flags & SUBSCRIBE_AGAIN_FIRST) != 0;
    size_t bytes = sizeof *s + (size_t)s->name_bytes + s->description_bytes;
    if (s->description_bytes > DESCRIPTION_MAX_BYTES || m->body_bytes < bytes) return false;
    out->name = (const char *)body + sizeof *s;
    out->description = body + sizeof *s + s->name_bytes;
    if (s->flags & SUBSCRIBE_START) {
        if (m->body_bytes - bytes < sizeof out->start) return false;
        memcpy(&out->start, body + bytes, sizeof out->start);
        bytes += sizeof out->start;
        if (out->start.start > START_TIME) return false;
    }
    if (s->flags & SUBSCRIBE_POLICY) return split_policy(body + bytes, m->body_bytes - bytes, &out->policy);
    return m->body_bytes == bytes;
}

static uint8_t join(struct worker *w, uint32_t client, uint32_t subscription, const struct message *m,
                    const struct wish *wish) {
    const struct subscription *s = worker_subscription(w, subscription);
    if (client_at(&w->clients, client)->consumers >= MAX_CONSUMERS) return STATUS_TOO_MANY;
    if (wish->subscribe.max_consumers && s->consumers >= wish->subscribe.max_consumers) return STATUS_FULL;
    uint8_t status = policy_admit(w, subscription, &wish->policy);
    if (status != STATUS_OK) return status;
    if (!make_consumer(w, client, subscription, m, &wish->subscribe, wish->description)) return STATUS_NO_SPACE;
    uint32_t consumer = consumer_find(w, client, m->consumer_number);
    if (policy_joined(w, consumer, &wish->policy)) return STATUS_OK;
    consumer_leave(w, consumer);
    return STATUS_NO_SPACE;
}

/* The acceptor and connection of the consumer in the way: its client may have gone without anybody noticing. */
static uint64_t somebody_of(const struct worker *w, uint32_t subscription) {
    uint32_t consumer = worker_subscription(w, subscription)->consumer_first;
    if (!consumer) return 0;
    const struct client *c = client_at(&w->clients, worker_consumer(w, consumer)->client);
    return (uint64_t)c->acceptor << 32 | c->conn;
}

enum outcome consumer_subscribe(struct worker *w, uint32_t client, uint32_t topic, const struct message *m) {
    struct wish wish;
    uint8_t status = topic ? STATUS_NO_SPACE : STATUS_TOO_MANY;
    uint32_t subscription = 0;
    bool may = topic && is_whole(m, &wish) && !consumer_find(w, client, m->consumer_number);
    if (may) {
        const struct subscribe *s = &wish.subscribe;
        const struct channel_wish channel = {.name = wish.name,
                                             .name_bytes = s->name_bytes,
                                             .to_join = true,
                                             .ephemeral = (s->flags & SUBSCRIBE_EPHEMERAL) != 0,
                                             .start = s->flags & SUBSCRIBE_START ? &wish.start : NULL};
        worker_walk(w, topic_at(&w->topics, topic)->subscription_count);
        enum outcome outcome = topic_subscription(w, topic, &channel, &subscription, &status);
        if (outcome != DONE) return outcome;
        if (status == STATUS_OK && !policy_prepare(w, subscription, &wish.policy)) return MORE;
        if (status == STATUS_OK && (status = join(w, client, subscription, m, &wish)) != STATUS_OK) {
            subscription_idle(w, subscription);
            /* Perhaps only consumers of a client that has left are in the way. */
            if (w->clients.lines[LINE_LEAVING].first) return MORE;
        }
    }
    struct message a = request_answer_of(w, client, m, status);
    a.id = status == STATUS_FULL && subscription ? somebody_of(w, subscription) : m->id;
    if (status == STATUS_FULL && subscription) {
        a.policy = worker_subscription(w, subscription)->policy;
        a.seq = policy_order(w, subscription);
    }
    if (status == STATUS_OK) {
        a.seq = worker_subscription(w, subscription)->cursor;
        a.incarnation = topic_at(&w->topics, topic)->incarnation;
    }
    request_send(w, client, &a, NULL, 0);
    return DONE;
}

static void leave(struct worker *w, uint32_t consumer) {
    uint32_t subscription = worker_consumer(w, consumer)->subscription;
    consumer_leave(w, consumer);
    subscription_idle(w, subscription);
}

bool consumer_leave_client(struct worker *w, uint32_t client) {
    uint32_t consumer = client_at(&w->clients, client)->consumer;
    if (consumer) leave(w, consumer);
    return consumer != 0;
}

void consumers_stop(struct worker *w, uint32_t client) {
    const struct client *c = client_at(&w->clients, client);
    for (uint32_t n = c->consumer; n; n = worker_consumer(w, n)->next_of_client) {
        struct consumer *consumer = worker_consumer(w, n);
        consumer->credit = 0;
        rotation_leave(w, n);
        w->peers[c->acceptor].window_bytes -= consumer->window_bytes;
        consumer->window_bytes = 0;
    }
}

void consumer_close(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t consumer = consumer_find(w, client, m->consumer_number);
    if (m->flags & MSG_DISMISS) {
        if (!consumer) return;
        uint32_t subscription = worker_consumer(w, consumer)->subscription;
        consumer_dismiss(w, consumer, DISMISSED_CLOSED);
        subscription_idle(w, subscription);
        return;
    }
    if (consumer) leave(w, consumer);
    request_done(w, client, m, consumer ? STATUS_OK : STATUS_NOT_FOUND);
}

static void add_permits(struct consumer *c, uint64_t more) {
    const int64_t most = INT64_MAX - 1;
    if (c->permits == INT64_MAX) {
        c->permits = 0;
        if (!c->credit) c->credit = UINT32_MAX;
    }
    int64_t room = c->permits > 0 ? most - c->permits : most;
    c->permits += more < (uint64_t)room ? (int64_t)more : room;
}

void consumer_credit(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t consumer = consumer_find(w, client, m->consumer);
    if (!consumer) return;
    struct consumer *c = worker_consumer(w, consumer);
    if (m->flags & MSG_PERMITS) {
        add_permits(c, m->credit);
    } else {
        c->credit = m->credit < UINT32_MAX ? (uint32_t)m->credit : UINT32_MAX;
        c->blocked = consumer_is_full(c);
    }
    c->leaving = (m->flags & MSG_LEAVING) != 0;
    consumer_settle(w, consumer);
}

void consumer_sent(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t consumer = consumer_find(w, client, m->consumer);
    if (!consumer) return;
    struct consumer *c = worker_consumer(w, consumer);
    /* It may report more than is on its way: deliveries from before this process, or before a SUBSCRIBE. */
    uint32_t sent_bytes = m->sent_bytes < c->window_bytes ? (uint32_t)m->sent_bytes : c->window_bytes;
    c->window_bytes -= sent_bytes;
    w->peers[client_at(&w->clients, client)->acceptor].window_bytes -= sent_bytes;
    consumer_settle(w, consumer);
}

static void refuse(struct worker *w, uint32_t client, const struct message *m, uint8_t status) {
    struct message refused = {.kind = MSG_REFUSED,
                              .status = status,
                              .conn = client_at(&w->clients, client)->conn,
                              .consumer = m->consumer,
                              .id = m->id,
                              .refused = m->kind};
    request_send(w, client, &refused, NULL, 0);
}

/* The delivery of a message in flight with the consumer, usually its oldest. 0: it is not, and a REFUSED was sent. */
static uint32_t in_flight(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t consumer = consumer_named(w, client, m->consumer);
    const struct consumer *c = worker_consumer(w, consumer);
    uint32_t delivery = consumer ? c->inflight_first : 0;
    const struct delivery *d = worker_delivery(w, delivery);
    if (!delivery || delivery_id(&w->subscriptions, d) != m->id) {
        delivery = consumer ? delivery_find(w, c->subscription, m->id) : 0;
        d = worker_delivery(w, delivery);
    }
    bool flies = delivery && d->state == DELIVERY_IN_FLIGHT;
    if (flies && d->consumer == consumer) return delivery;
    refuse(w, client, m, flies ? STATUS_NONE : STATUS_NOT_FOUND);
    return 0;
}

/* The delivery of a message behind the channel's cursor, in flight with any of its consumers or not; 0: none. */
static uint32_t passed(const struct worker *w, uint32_t consumer, uint64_t seq) {
    const struct consumer *c = worker_consumer(w, consumer);
    uint32_t n = c->inflight_first;
    if (n && worker_delivery(w, n)->seq == seq) return n;
    const struct topic *t = topic_at(&w->topics, worker_subscription(w, c->subscription)->topic);
    const struct record *r = message_head(w, t, seq);
    if (r) return delivery_find(w, c->subscription, r->id);
    /* The message of a reader is gone, or cannot be read any more. */
    while (n && worker_delivery(w, n)->seq != seq) n = worker_delivery(w, n)->following;
    return n;
}

/* The split delivery, if the delivery is one of its parts; else the delivery itself. */
static uint32_t whole_of(const struct worker *w, uint32_t delivery) {
    return delivery && worker_delivery(w, delivery)->part ? split_of(w, delivery) : delivery;
}

/* The delivery that a FINISH is about. 0: there is none, and a REFUSED has been sent if one is due. */
static uint32_t to_finish(struct worker *w, uint32_t client, const struct message *m) {
    if (!(m->flags & MSG_BY_SEQ)) return in_flight(w, client, m);
    uint32_t consumer = consumer_named(w, client, m->consumer);
    return consumer ? whole_of(w, passed(w, consumer, m->seq)) : 0;
}

/* Reserves room for a record about a subscription, after logging its cursor and finished messages. LATER, or the status
 * to answer with. */
static enum outcome reserve_record(struct worker *w, uint32_t subscription, uint64_t bytes, uint8_t *status) {
    const struct subscription *s = worker_subscription(w, subscription);
    *status = STATUS_OK;
    if (!s->number) return DONE;
    if (!subscription_write(w, subscription)) {
        *status = STATUS_NO_SPACE;
        return w->wanting ? LATER : DONE;
    }
    enum outcome outcome = room_reserve(w, w->own[subscription_topic(w, s)->shard], 1, bytes, false, status);
    if (*status == STATUS_FAILED) *status = STATUS_NO_SPACE;
    return outcome;
}

static enum outcome finish_upto(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t consumer = consumer_find(w, client, m->consumer);
    uint8_t status = consumer ? STATUS_OK : STATUS_NOT_FOUND;
    uint32_t subscription = worker_consumer(w, consumer)->subscription;
    const struct subscription *s = worker_subscription(w, subscription);
    uint64_t *begun = &client_at(&w->clients, client)->done;
    if (consumer && !*begun && s->over_until) return MORE; /* an earlier such request is under way */
    if (consumer && !*begun && reserve_record(w, subscription, 0, &status) == LATER) return LATER;
    if (status != STATUS_OK) {
        refuse(w, client, m, status);
        return DONE;
    }
    /* There is no such message yet: nothing is finished, so that nobody loses what it has not had. */
    bool is_ahead = consumer && m->seq >= subscription_topic(w, s)->next_seq;
    if (!*begun && (!s->cursor || is_ahead)) return DONE;
    if (!*begun) subscription_finish_all(w, subscription, m->seq);
    *begun = 1;
    worker_consumer(w, consumer)->finishes += subscription_finish_some(w, subscription);
    if (s->over_until) return MORE;
    *begun = 0;
    return DONE;
}

static enum outcome finish(struct worker *w, uint32_t client, const struct message *m, uint32_t delivery);

/* Finishes some parts of a delivery of which others are left. */
static enum outcome finish_parts(struct worker *w, uint32_t client, const struct message *m, uint32_t delivery,
                                 const struct parts_left *left) {
    const struct delivery *d = worker_delivery(w, delivery);
    const struct subscription *s = worker_subscription(w, d->subscription);
    uint64_t seq = d->seq;
    const struct parts_span span = parts_changed(w, delivery, left);
    uint8_t status;
    if (reserve_record(w, d->subscription, sizeof span.first + span.count * sizeof *left->bits, &status) == LATER)
        return LATER;
    if (status == STATUS_OK && d->state == DELIVERY_SPLIT)
        split_leave(w, delivery, left);
    else if (status == STATUS_OK && !delivery_parts_set(w, delivery, left))
        status = STATUS_NO_SPACE;
    if (status == STATUS_OK) delivery_weigh_again(w, delivery);
    if (status != STATUS_OK)
        refuse(w, client, m, status);
    else if (s->number)
        shard_log_finish_parts(w, w->own[subscription_topic(w, s)->shard], s, seq, left, span);
    return DONE;
}

/* Finishes one message of a split batch. */
static enum outcome finish_part(struct worker *w, uint32_t client, const struct message *m, uint32_t delivery) {
    struct parts_left left;
    uint32_t split = split_of(w, delivery), consumer = worker_delivery(w, delivery)->consumer;
    split_without(w, delivery, &left);
    if (!left.words) return finish(w, client, m, split);
    enum outcome outcome = finish_parts(w, client, m, split, &left);
    if (outcome == DONE && consumer) worker_consumer(w, consumer)->finishes++;
    return outcome;
}

static enum outcome finish_some(struct worker *w, uint32_t client, const struct message *m) {
    struct parts_left left;
    uint32_t words = (uint32_t)(m->body_bytes / sizeof *left.bits);
    if (!words || words > PARTS_MAX_WORDS || m->body_bytes % sizeof *left.bits) {
        refuse(w, client, m, STATUS_INVALID);
        return DONE;
    }
    uint32_t delivery = to_finish(w, client, m);
    if (!delivery) return DONE;
    if (delivery_parts_after(w, delivery, m + 1, words, &left)) return finish_parts(w, client, m, delivery, &left);
    return finish(w, client, m, delivery);
}

enum outcome consumer_finish(struct worker *w, uint32_t client, const struct message *m) {
    if (m->flags & MSG_UPTO) return finish_upto(w, client, m);
    if (m->flags & MSG_PARTS) return finish_some(w, client, m);
    uint32_t delivery = to_finish(w, client, m);
    if (!delivery) return DONE;
    bool is_part = worker_delivery(w, delivery)->part != 0;
    return is_part ? finish_part(w, client, m, delivery) : finish(w, client, m, delivery);
}

static enum outcome finish(struct worker *w, uint32_t client, const struct message *m, uint32_t delivery) {
    const struct delivery *d = worker_delivery(w, delivery);
    if (!subscription_finished(w, d->subscription, d->seq)) {
        if (w->wanting) return LATER;
        refuse(w, client, m, STATUS_NO_SPACE);
        return DONE;
    }
    uint32_t consumer =
        d->consumer ? d->consumer : consumer_find(w, client, m->consumer); /* no consumer has it in flight */
    worker_consumer(w, consumer)->finishes++;
    delivery_drop(w, delivery);
    return DONE;
}

/* Gives back as many as were in flight when the request came; messages sent meanwhile come behind them. */
static enum outcome requeue_all(struct worker *w, uint32_t client, uint32_t number) {
    uint32_t consumer = consumer_find(w, client, number);
    struct consumer *c = worker_consumer(w, consumer);
    uint64_t *left = &client_at(&w->clients, client)->done;
    if (!consumer) return DONE;
    if (!*left) *left = c->inflight;
    for (uint32_t most = w->piece; *left && c->inflight_first; most--, --*left) {
        uint32_t delivery = c->inflight_first;
        if (!most) return MORE;
        c->requeues++;
        worker_subscription(w, c->subscription)->requeues++;
        delivery_take(w, delivery);
        delivery_again(w, delivery);
    }
    consumer_unblock(w, consumer);
    *left = 0;
    return DONE;
}

static uint32_t to_requeue(struct worker *w, uint32_t client, const struct message *m) {
    if (!(m->flags & MSG_BY_SEQ)) return in_flight(w, client, m);
    uint32_t consumer = consumer_named(w, client, m->consumer);
    uint32_t delivery = consumer ? whole_of(w, passed(w, consumer, m->seq)) : 0;
    if (!delivery) return 0;
    const struct delivery *d = worker_delivery(w, delivery);
    return d->consumer == consumer || d->state == DELIVERY_SPLIT ? delivery : 0;
}

enum outcome consumer_requeue(struct worker *w, uint32_t client, const struct message *m) {
    if (m->flags & MSG_ALL) return requeue_all(w, client, m->consumer);
    uint32_t delivery = to_requeue(w, client, m);
    if (!delivery) return DONE;
    struct delivery *d = worker_delivery(w, delivery);
    struct subscription *s = worker_subscription(w, d->subscription);
    struct shard *shard = w->own[subscription_topic(w, s)->shard];
    uint8_t status = STATUS_OK;
    if (d->state == DELIVERY_SPLIT) {
        split_again(w, delivery, consumer_named(w, client, m->consumer));
        return DONE;
    }
    /* Recovery makes a batch whole again, so the log has no delays of its parts. */
    bool logged = m->delay_ns && s->number && !d->part;
    if (logged && room_reserve(w, shard, 1, SHARD_REDELIVERY_BYTES, false, &status) == LATER) return LATER;
    uint32_t consumer = d->consumer;
    worker_consumer(w, consumer)->requeues++;
    s->requeues++;
    delivery_take(w, delivery);
    consumer_unblock(w, consumer);
    if (m->delay_ns)
        delivery_defer(w, delivery,
                       m->delay_ns < DELIVERY_LATEST_NS - w->now_ns ? w->now_ns + m->delay_ns : DELIVERY_LATEST_NS);
    else
        delivery_again(w, delivery);
    if (logged && status == STATUS_OK) shard_log_redelivery(w, shard, s, d);
    return DONE;
}

void consumer_extend(struct worker *w, uint32_t client, const struct message *m) {
    uint32_t delivery = in_flight(w, client, m);
    if (delivery) delivery_extend(w, delivery);
}
