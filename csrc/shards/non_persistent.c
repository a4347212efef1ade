/* Messages of topics that are not persistent: a message goes from the ring of its publisher
 * straight to the consumers that can take it at that moment, with permits and room on the way to them. It is in no log,
 * no stream and no list of deliveries, so nobody can get it later or again, and finishing it does nothing. All such
 * messages have the same place, seq 0. */
#include "shards/non_persistent.h"

#include "shards/key_owners.h"
#include "shards/policy.h"
#include "shards/rotation.h"

static struct headers headers_of(const struct arrival *one) {
    struct headers h = {0};
    if (one->headers_bytes) memcpy(&h, one->content, sizeof h);
    return h;
}

/* A batch counts as many as it has, in permits and in figures. */
static uint32_t messages_of(const struct headers *h) {
    return h->parts ? h->parts : 1;
}

/* The consumer that gets the message; 0: it is dropped. */
static uint32_t taker_of(struct worker *w, uint32_t subscription, const struct arrival *one, const struct headers *h) {
    policy_choose(w, subscription);
    struct subscription *s = worker_subscription(w, subscription);
    if (s->paused || !s->turn) return 0;
    if (s->policy != POLICY_KEY) return rotation_next(w, s);
    uint32_t looked = 0;
    uint32_t owner = key_owners_find(w, subscription, policy_slot_of(h, one->id), &looked);
    worker_walk(w, looked);
    const struct consumer *c = worker_consumer(w, owner);
    return c->next_turn && !w->peers[client_at(&w->clients, c->client)->acceptor].full ? owner : 0;
}

static void deliver(struct worker *w, uint32_t consumer, const struct arrival *one, const struct headers *h) {
    struct consumer *c = worker_consumer(w, consumer);
    const struct client *client = client_at(&w->clients, c->client);
    struct peer *peer = &w->peers[client->acceptor];
    const uint32_t body_bytes = one->content_bytes;
    const struct message m = {.kind = MSG_DELIVER,
                              .flags = one->headers_bytes ? MSG_HEADERS : 0,
                              .conn = client->conn,
                              .consumer = c->number,
                              .topic = c->topic_number,
                              .id = one->id,
                              .attempts = 1,
                              .body_bytes = body_bytes,
                              .time_ns = w->wall_ns};
    channel_send(peer->channel, &m, one->content, body_bytes);
    peer->full = channel_backlogged(peer->channel);
    consumer_widen(w, c, (uint32_t)sizeof m + body_bytes);
    if (c->permits != INT64_MAX) c->permits -= messages_of(h);
    c->messages++;
    worker_subscription(w, c->subscription)->delivered += messages_of(h);
    worker_step(w);
    consumer_settle(w, consumer);
}

/* A consumer that does not know headers gets the body alone, but no batch: that would have to be taken apart. */
static void deliver_without_headers(struct worker *w, uint32_t consumer, const struct arrival *one,
                                    const struct headers *h) {
    if (h->packed_bytes) return;
    const struct arrival body = {.id = one->id,
                                 .content = one->content + one->headers_bytes,
                                 .content_bytes = one->content_bytes - one->headers_bytes};
    deliver(w, consumer, &body, h);
}

/* Not to be inlined where messages are stored, which are nearly all. */
__attribute__((noinline)) void non_persistent_publish(struct worker *w, uint32_t topic, const struct arrival *one) {
    struct topic *t = topic_at(&w->topics, topic);
    const struct headers h = headers_of(one);
    t->messages += messages_of(&h);
    arrival_count(t, one);
    w->count->published++;
    worker_walk(w, (uint64_t)t->subscription_count + t->reader_count);
    struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) p->full = channel_backlogged(p->channel);
    for (uint32_t n = t->subscriptions; n; n = worker_subscription(w, n)->next) {
        uint32_t consumer = taker_of(w, n, one, &h);
        if (!consumer) continue;
        if (worker_consumer(w, consumer)->wants_headers || !one->headers_bytes)
            deliver(w, consumer, one, &h);
        else
            deliver_without_headers(w, consumer, one, &h);
    }
}
