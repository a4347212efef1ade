#include "shards/deliver.h"

#include <string.h>

#include "shards/answers.h"
#include "shards/client.h"
#include "shards/delivery.h"
#include "shards/parts.h"
#include "shards/rotation.h"
#include "shards/transaction_acks.h"

/* The most messages of one read, see take_permits. */
enum { READ_MOST = 100 };

/* Sends a message preceded by the parts that are left. */
static void send_in_parts(struct channel *channel, struct message *m, const struct parts_left *left,
                          const uint8_t *body) {
    const struct parts_head head = {.words = left->words};
    uint8_t before[sizeof head + sizeof left->bits]; /* filled as far as there are words */
    const size_t before_bytes = sizeof head + left->words * sizeof *left->bits, body_bytes = m->body_bytes;
    memcpy(before, &head, sizeof head);
    memcpy(before + sizeof head, left->bits, before_bytes - sizeof head);
    m->flags |= MSG_PARTS;
    m->body_bytes += (uint32_t)before_bytes;
    channel_send_prefixed(channel, m, before, before_bytes, body, body_bytes);
}

/* How many of its parts are not finished. */
__attribute__((cold)) static int64_t parts_of(const struct worker *w, uint32_t delivery, const struct record *r) {
    struct headers h = {0};
    if (message_headers_bytes(r)) memcpy(&h, record_body(r), sizeof h);
    if (worker_delivery(w, delivery)->part) return 1;
    const struct parts_left *left = delivery_parts(w, delivery);
    const int64_t parts = h.parts ? h.parts : 1, count = left ? parts_count(left) : parts;
    return count < parts ? count : parts;
}

/* Takes the permits of a message with `count` unfinished parts. Where the order counts, a consumer with n permits reads
 * n messages, batches or not; where consumers take turns, the permits are counted before each message. */
static void take_permits(const struct worker *w, struct consumer *c, int64_t count) {
    struct subscription *s = worker_subscription(w, c->subscription);
    if (c->permits == INT64_MAX) return;
    uint32_t left = consumer_entries_left(s, c);
    if (!left && c->permits > 0 && s->policy != POLICY_TURNS)
        left = c->permits < READ_MOST ? (uint32_t)c->permits : READ_MOST;
    c->entries_left = left ? left - 1 : 0;
    c->read = s->reads;
    c->permits -= count;
    s->overdrawn |= c->entries_left && c->permits <= 0;
}

void deliver_reads_end(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    if (s->policy == POLICY_TURNS) return;
    s->reads++;
    if (!s->overdrawn) return;
    s->overdrawn = false;
    for (uint32_t n = s->consumer_first; n; n = worker_consumer(w, n)->next)
        if (worker_consumer(w, n)->permits <= 0) consumer_settle(w, n);
}

void deliver_packed(struct worker *w, uint32_t delivery, const struct record *r, uint32_t consumer, uint32_t count) {
    const struct delivery *d = worker_delivery(w, delivery);
    struct consumer *c = worker_consumer(w, consumer);
    const struct client *client = client_at(&w->clients, c->client);
    struct peer *peer = &w->peers[client->acceptor];
    struct packed_run run = {.id = r->id, .first = d->part ? d->part - 1u : 0, .count = count};
    struct headers h;
    memcpy(&h, record_body(r), sizeof h);
    struct message m = {.kind = MSG_DELIVER,
                        .flags = MSG_PACKED | MSG_HEADERS,
                        .conn = client->conn,
                        .consumer = c->number,
                        .topic = c->topic_number,
                        .id = delivery_id(&w->subscriptions, d),
                        .attempts = d->attempts,
                        .body_bytes = (uint32_t)(sizeof run + record_body_bytes(r)),
                        .time_ns = r->time_ns,
                        .seq = r->seq};
    channel_send_prefixed(peer->channel, &m, &run, sizeof run, record_body(r), record_body_bytes(r));
    peer->full = channel_backlogged(peer->channel);
    /* Charges the window with the whole batch; the acceptor that opens it reports the rest as SENT. */
    consumer_widen(w, c, count * (uint32_t)sizeof m + h.packed_bytes);
    take_permits(w, c, count);
    consumer_settle(w, consumer);
}

/* A bitmap of one part, for a consumer that knows batches. */
static void only_part(const struct delivery *d, struct parts_left *only) {
    only->words = (d->part - 1u) / 64 + 1;
    memset(only->bits, 0, only->words * sizeof *only->bits);
    only->bits[only->words - 1] = (uint64_t)1 << (d->part - 1u) % 64;
}

void deliver_whole(struct worker *w, uint32_t delivery, const struct record *r, uint32_t consumer) {
    const struct delivery *d = worker_delivery(w, delivery);
    struct consumer *c = worker_consumer(w, consumer);
    const struct client *client = client_at(&w->clients, c->client);
    struct peer *peer = &w->peers[client->acceptor];
    size_t headers_bytes = message_headers_bytes(r), skipped = c->wants_headers ? 0 : headers_bytes;
    const uint8_t *body = (const uint8_t *)record_body(r) + skipped;
    size_t body_bytes = record_body_bytes(r) - skipped;
    struct message m = {.kind = MSG_DELIVER,
                        .flags = headers_bytes > skipped ? MSG_HEADERS : 0,
                        .conn = client->conn,
                        .consumer = c->number,
                        .topic = c->topic_number,
                        .id = r->id,
                        .attempts = d->attempts,
                        .body_bytes = (uint32_t)body_bytes,
                        .time_ns = r->time_ns,
                        .seq = r->seq};
    struct parts_left part;
    if (d->part) only_part(d, &part);
    const struct topic *t = subscription_topic(w, worker_subscription(w, d->subscription));
    bool hides = t->transactions && !d->part && transactions_hide(w, delivery, &part);
    bool in_parts = (d->in_parts || d->part || hides) && c->wants_headers;
    struct message *place = in_parts ? NULL : channel_reserve(peer->channel, body_bytes);
    if (place) {
        *place = m;
        memcpy(place + 1, body, body_bytes);
        channel_sent(peer->channel);
    } else {
        if (in_parts)
            send_in_parts(peer->channel, &m, d->part || hides ? &part : delivery_parts(w, delivery), body);
        else
            request_send_lent(peer->channel, shard_of_topic(w, t), &m, body, body_bytes);
        peer->full = channel_backlogged(peer->channel);
    }
    consumer_widen(w, c, (uint32_t)(sizeof m + body_bytes));
    bool counted = c->permits != INT64_MAX;
    if (counted) {
        const int64_t parts = parts_of(w, delivery, r);
        worker_subscription(w, d->subscription)->delivered += (uint64_t)parts - 1; /* delivery_fly has counted one */
        if (parts > 1) delivery_weigh(w, delivery, (uint64_t)parts);
        take_permits(w, c, parts);
    }
    if (counted || c->window_bytes >= consumer_window(w, c)) consumer_settle(w, consumer);
}
