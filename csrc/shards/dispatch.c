/* Delivers messages, each to the next consumer that may take one, and writes the log records of that. */
#include "shards/dispatch.h"

#include <assert.h>
#include <string.h>

#include "shards/answers.h"
#include "shards/compacted.h"
#include "shards/delivery.h"
#include "shards/due.h"
#include "shards/finish.h"
#include "shards/finished_ahead.h"
#include "shards/key_owners.h"
#include "shards/keys_in_flight.h"
#include "shards/naming.h"
#include "shards/parts.h"
#include "shards/policy.h"
#include "shards/records.h"
#include "shards/redelivery.h"
#include "shards/room.h"
#include "shards/rotation.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/transaction_acks.h"
#include "shards/transactions.h"
#include "shards/unheld.h"
#include "shards/unreadable.h"

/* Limits for one subscription in one turn, so that other subscriptions and requests get their share, and acceptors can
 * send what one turn has delivered while the next one delivers more. */
enum { DISPATCH_MOST = 64, DISPATCH_HIDDEN = 512, DISPATCH_LOOKED = 4 /* of a piece */ };

/* The most messages of one read, see take_permits. */
enum { READ_MOST = 100 };
/* No further batch is split while so many parts wait to be delivered. */
enum { SPLIT_AHEAD = 1024 };

enum dispatched { NOTHING, ONE, HIDDEN, STUCK, LOOKING /* at a large message, on in the next turn */ };

/* --- delivering --------------------------------------------------------------------------------------------------- */

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

/* There is nothing more to read: consumers whose permits are used up get no more than they have. */
static void reads_end(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    if (s->policy == POLICY_TURNS) return;
    s->reads++;
    if (!s->overdrawn) return;
    s->overdrawn = false;
    for (uint32_t n = s->consumer_first; n; n = worker_consumer(w, n)->next)
        if (worker_consumer(w, n)->permits <= 0) consumer_settle(w, n);
}

/* Delivers `count` parts of a split batch, or the only message of a packed one; the acceptor unpacks them. */
static void deliver_packed(struct worker *w, uint32_t delivery, const struct record *r, uint32_t consumer,
                           uint32_t count) {
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

static void deliver(struct worker *w, uint32_t delivery, const struct record *r, uint32_t consumer) {
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

static bool sampled_out(struct worker *w, const struct consumer *c) {
    if (!c->sample_percent) return false;
    return (subscriptions_random(&w->subscriptions) >> 32) % 100 >= c->sample_percent;
}

/* The record of a delivery's message; NULL: it was a reader's, and is gone. */
static inline const struct record *message_of(const struct worker *w, const struct topic *t, uint64_t seq) {
    return log_read(shard_of_topic(w, t)->log, stream_place(&t->stream, seq));
}

/* How many messages a batch is to a consumer for which it has to be opened; 0: the consumer gets it as it is. */
static inline uint32_t packed_for(const struct worker *w, const struct record *r, uint32_t consumer) {
    if (!(r->flags & MESSAGE_HEADERS) || worker_consumer(w, consumer)->wants_headers) return 0;
    return message_packed(r);
}

/* Splits a delivery in no state, for consumers that do not know batches. `passed`: the cursor has just passed it. */
static enum dispatched split(struct worker *w, uint32_t subscription, uint32_t delivery, uint32_t parts, bool passed) {
    if (delivery_split(w, delivery, parts)) {
        /* As recovery will take it. */
        struct delivery *d = worker_delivery(w, delivery);
        const struct topic *t = topic_at(&w->topics, worker_subscription(w, subscription)->topic);
        if (!d->attempts && (passed || !stream_delayed(&t->stream, d->seq))) d->attempts = 1;
        return ONE;
    }
    /* No part is left. */
    if (!subscription_finished(w, subscription, worker_delivery(w, delivery)->seq)) {
        delivery_again(w, delivery);
        return STUCK;
    }
    delivery_drop(w, delivery);
    return ONE;
}

/* Delivers the next parts of one batch that have been delivered equally often, as far as the consumer's credit goes. */
static enum dispatched dispatch_parts(struct worker *w, uint32_t subscription, uint32_t delivery, uint32_t consumer) {
    const struct subscription *s = worker_subscription(w, subscription);
    const struct delivery *d = worker_delivery(w, delivery), *next;
    const struct consumer *c = worker_consumer(w, consumer);
    uint32_t count = 0, n;
    uint16_t attempts = d->attempts;
    do {
        n = count ? s->redelivery_first : delivery;
        delivery_take(w, n);
        delivery_fly(w, n, consumer);
        count++;
        n = s->redelivery_first;
        next = worker_delivery(w, n);
    } while (n && c->next_turn && !s->blocked && next->seq == d->seq && next->part == d->part + count &&
             next->attempts == attempts);
    deliver_packed(w, delivery, message_of(w, subscription_topic(w, s), d->seq), consumer, count);
    return ONE;
}

/* --- chunks ------------------------------------------------------------------------------------------------------- */

/* The most chunks held back for consumers that have earlier chunks of the same message and can take none now; with
 * more, no message overtakes them. Also how many are looked at to find one that may go. */
enum { CHUNKS_HELD_BACK = 64 };

/* With POLICY_TURNS each message goes to another consumer, but all chunks of a message must go to the same one. */
static bool is_chunk(const struct worker *w, uint32_t subscription, const struct record *r) {
    struct headers h;
    if (worker_subscription(w, subscription)->policy != POLICY_TURNS || !message_headers_bytes(r)) return false;
    memcpy(&h, record_body(r), sizeof h);
    return (h.key_hash & KEY_HASH_CHUNK) != 0;
}

/* The consumer for a chunk: the one that has others of its message in flight, else `consumer`. 0: that one cannot take
 * it now. */
static uint32_t holder_of(const struct worker *w, uint32_t subscription, const struct record *r, uint32_t consumer) {
    uint32_t holder = policy_slot_user(w, subscription, policy_slot(r));
    if (!holder) return consumer;
    const struct consumer *c = worker_consumer(w, holder);
    return c->next_turn && !w->peers[client_at(&w->clients, c->client)->acceptor].full ? holder : 0;
}

/* The first chunk with that slot among the first redeliveries; 0: none. */
static uint32_t chunk_again(const struct worker *w, uint32_t subscription, uint16_t slot) {
    const struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint32_t n = s->redelivery_first, first = 0;
    uint64_t first_seq = UINT64_MAX;
    for (int i = 0; n && i <= CHUNKS_HELD_BACK; i++) {
        const struct delivery *d = worker_delivery(w, n);
        const struct record *r = d->seq < first_seq ? message_of(w, t, d->seq) : NULL;
        if (r && message_head(w, t, d->seq) && is_chunk(w, subscription, r) && policy_slot(r) == slot) {
            first = n;
            first_seq = d->seq;
        }
        n = d->following;
    }
    return first;
}

/* The first redelivery that may be delivered now, chunks of a message in their order; 0: none of the first few may. */
static uint32_t first_again(const struct worker *w, uint32_t subscription, uint32_t consumer) {
    const struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint32_t n = s->redelivery_first;
    if (s->policy != POLICY_TURNS) return n;
    for (int i = 0; n && i <= CHUNKS_HELD_BACK; i++) {
        const struct delivery *d = worker_delivery(w, n);
        const struct record *r = d->part ? NULL : message_of(w, t, d->seq);
        if (!r || !message_head(w, t, d->seq) || !is_chunk(w, subscription, r)) return n;
        if (holder_of(w, subscription, r, consumer)) return chunk_again(w, subscription, policy_slot(r));
        n = d->following;
    }
    return 0;
}

/* A chunk is in flight now: the following ones go to the same consumer, if there is room to note that. */
static void hold_slot(struct worker *w, uint32_t delivery, uint16_t slot) {
    (void)policy_slot_take(w, delivery, slot, worker_delivery(w, delivery)->consumer);
}

/* Makes the message that the cursor has just passed wait, as a redelivery. */
static enum dispatched hold_back(struct worker *w, uint32_t subscription, uint64_t seq, const struct record *r) {
    if (worker_subscription(w, subscription)->redeliveries >= CHUNKS_HELD_BACK) return STUCK;
    uint32_t delivery = delivery_make(w, subscription, seq, r->id);
    if (!delivery) return STUCK;
    subscription_pass(w, subscription);
    delivery_again(w, delivery);
    return ONE;
}

/* --- one message -------------------------------------------------------------------------------------------------- */

/* A message outside the consumer's sample counts as finished. */
static bool finish_sampled(struct worker *w, uint32_t subscription, uint32_t delivery) {
    const struct delivery *d = worker_delivery(w, delivery);
    struct parts_left left;
    if (d->part) split_without(w, delivery, &left);
    return (d->part && left.words > 0) || subscription_finished(w, subscription, d->seq);
}

/* Skips a message that cannot be read any more. `delivery` 0: it has none yet. */
__attribute__((cold, noinline)) static enum dispatched leave_out(struct worker *w, uint32_t subscription, uint64_t seq,
                                                                 uint32_t delivery) {
    uint32_t topic = worker_subscription(w, subscription)->topic;
    log_position position = stream_place(&topic_at(&w->topics, topic)->stream, seq);
    if (delivery ? !finish_sampled(w, subscription, delivery) : !subscription_pass_over(w, subscription, seq))
        return STUCK;
    unreadable_note(w, topic, position);
    if (delivery) delivery_drop(w, delivery);
    return ONE;
}

/* Whether the log has room for so many records, of which one is of a redelivery; else it is waited for. */
static bool room_for(struct worker *w, const struct topic *t, uint32_t records) {
    struct shard *shard = shard_of_topic(w, t);
    enum log_result result = shard_reserve(w, shard, records, SHARD_REDELIVERY_BYTES, false);
    if (result != LOG_OK) (void)room_await(w, shard, result);
    return result == LOG_OK;
}

static enum dispatched dispatch_again(struct worker *w, uint32_t subscription, uint32_t delivery, uint32_t consumer) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    struct delivery *d = worker_delivery(w, delivery);
    if (sampled_out(w, worker_consumer(w, consumer)) ||
        (worker_consumer(w, consumer)->compacted && !compacted_leaves(w, s->topic, delivery))) {
        if (!finish_sampled(w, subscription, delivery)) return STUCK;
        delivery_drop(w, delivery);
        return ONE;
    }
    const struct record *r = message_of(w, t, d->seq);
    if (s->reader && !r) {
        delivery_drop(w, delivery);
        return ONE;
    }
    enum readable readable = message_readable(w, t, r);
    if (readable != READ_WHOLE) return readable == READ_MORE ? LOOKING : leave_out(w, subscription, d->seq, delivery);
    bool chunk = is_chunk(w, subscription, r);
    const uint16_t slot = chunk ? policy_slot(r) : 0;
    if (chunk && !(consumer = holder_of(w, subscription, r, consumer))) return STUCK;
    uint32_t packed = packed_for(w, r, consumer);
    if (d->part && packed) return dispatch_parts(w, subscription, delivery, consumer);
    if (t->transactions && !d->part && transactions_keep(w, delivery, packed > 1)) return ONE;
    if (packed > 1) {
        if (!split_fits(w, packed)) return STUCK;
        delivery_take(w, delivery);
        return split(w, subscription, delivery, packed, false);
    }
    /* A message passed by the cursor counts as delivered once anyway; and the log has nothing about parts. */
    bool logged = s->number && !d->part && (d->attempts || stream_delayed(&t->stream, d->seq));
    if (logged && !room_for(w, t, 1)) return STUCK;
    delivery_take(w, delivery);
    delivery_fly(w, delivery, consumer);
    if (chunk) hold_slot(w, delivery, slot);
    if (logged) shard_log_redelivery(w, shard_of_topic(w, t), s, d);
    if (packed)
        deliver_packed(w, delivery, message_of(w, t, d->seq), consumer, 1);
    else
        deliver(w, delivery, message_of(w, t, d->seq), consumer);
    return ONE;
}

/* Passes the next message if it was acknowledged in a transaction before the channel was moved back: it is finished, or
 * waits for the end of that. NOTHING: it was not. */
static enum dispatched pass_acknowledged(struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct topic *t = subscription_topic(w, worker_subscription(w, subscription));
    if (finished_ahead_has(w, subscription, seq)) {
        if (!subscription_pass_over(w, subscription, seq)) return STUCK;
        return finished_ahead_take(w, subscription, seq) ? ONE : NOTHING;
    }
    const struct record *r = transactions_hold(w, subscription, seq) ? message_head(w, t, seq) : NULL;
    if (!r) return NOTHING;
    uint32_t delivery = delivery_make(w, subscription, seq, r->id);
    if (!delivery) return STUCK;
    subscription_pass(w, subscription);
    worker_delivery(w, delivery)->attempts = 1; /* it was delivered when it was acknowledged */
    delivery_defer(w, delivery, DELIVERY_PENDING_NS);
    return ONE;
}

static bool may_be_acknowledged(const struct worker *w, const struct subscription *s) {
    return s->ahead_first || subscription_topic(w, s)->transactions;
}

/* Makes the next message wait for its time. NOTHING: it may be delivered now. */
static enum dispatched pass_delayed(struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct topic *t = subscription_topic(w, worker_subscription(w, subscription));
    const struct record *r = message_head(w, t, seq);
    const uint64_t deadline_ns = r ? message_deadline(w, r) : 0;
    if (deadline_ns <= w->now_ns) return NOTHING;
    uint32_t delivery = delivery_make(w, subscription, seq, r->id);
    if (!delivery) return STUCK;
    subscription_pass(w, subscription);
    delivery_defer(w, delivery, deadline_ns);
    return ONE;
}

/* Passes the next message if it is not to be delivered now. NOTHING: it is. */
static enum dispatched pass_by(struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct subscription *s = worker_subscription(w, subscription);
    enum dispatched passed = may_be_acknowledged(w, s) ? pass_acknowledged(w, subscription, seq) : NOTHING;
    return passed == NOTHING && position_waits(s) ? pass_delayed(w, subscription, seq) : passed;
}

/* Notes in the log that a message which the cursor has just passed is delivered before its time: else recovery would
 * have it wait for that. */
static void log_early(struct worker *w, uint32_t subscription, uint32_t delivery) {
    struct subscription *s = worker_subscription(w, subscription);
    struct shard *shard = subscription_shard(w, s);
    shard_log_cursor(w, shard, s);
    worker_delivery(w, delivery)->attempts = 1;
    shard_log_redelivery(w, shard, s, worker_delivery(w, delivery));
    worker_delivery(w, delivery)->attempts = 0;
}

static enum dispatched dispatch_front(struct worker *w, uint32_t subscription, uint64_t seq, uint32_t consumer) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    bool compacted = worker_consumer(w, consumer)->compacted;
    enum dispatched passed = pass_by(w, subscription, seq);
    if (passed != NOTHING) return passed;
    if (sampled_out(w, worker_consumer(w, consumer)) || (compacted && compacted_hides(w, s->topic, seq))) {
        if (!subscription_pass_over(w, subscription, seq)) return STUCK;
        return compacted ? HIDDEN : ONE;
    }
    const struct record *r = message_of(w, t, seq);
    enum readable readable = message_readable(w, t, r);
    if (readable != READ_WHOLE) return readable == READ_MORE ? LOOKING : leave_out(w, subscription, seq, 0);
    bool chunk = is_chunk(w, subscription, r);
    if (chunk && s->redeliveries && chunk_again(w, subscription, policy_slot(r)))
        consumer = 0;
    else if (chunk)
        consumer = holder_of(w, subscription, r, consumer);
    if (!consumer) return hold_back(w, subscription, seq, r);
    uint32_t packed = packed_for(w, r, consumer);
    if (packed > 1 && !split_fits(w, packed)) return STUCK;
    if (packed > 1 && s->redeliveries >= SPLIT_AHEAD)
        return dispatch_again(w, subscription, s->redelivery_first, consumer);
    const bool early = s->cursor < s->held_from && s->number && message_deadline(w, r) > w->now_ns;
    if (early && !room_for(w, t, 2)) return STUCK;
    uint32_t delivery = delivery_make(w, subscription, seq, r->id);
    if (!delivery) return STUCK;
    subscription_pass(w, subscription);
    if (early) log_early(w, subscription, delivery);
    if (packed > 1) return split(w, subscription, delivery, packed, true);
    if (compacted) (void)compacted_leaves(w, s->topic, delivery);
    delivery_fly(w, delivery, consumer);
    if (chunk) hold_slot(w, delivery, policy_slot(r));
    if (packed)
        deliver_packed(w, delivery, r, consumer, 1);
    else
        deliver(w, delivery, r, consumer);
    return ONE;
}

/* Messages of a split batch are delivered before those behind the batch. */
static bool is_new_part(const struct worker *w, const struct subscription *s) {
    const struct delivery *d = worker_delivery(w, s->redelivery_first);
    return d->part && !d->attempts;
}

static enum dispatched dispatch_one(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    uint64_t seq;
    bool ahead = subscription_front(w, subscription, &seq) && !s->blocked;
    if (s->paused || !s->turn || (!ahead && !s->redelivery_first)) return NOTHING;
    uint32_t consumer = rotation_next(w, s);
    if (!consumer) return STUCK;
    /* Redeliveries and new messages take turns, so that neither endless requeueing nor a long backlog starves the
     * other. */
    bool again =
        s->redelivery_first && (s->redelivery_next || !ahead || subscription_is_ordered(s) || is_new_part(w, s));
    uint32_t delivery = again ? first_again(w, subscription, consumer) : 0;
    again = again && (delivery || !ahead);
    s->redelivery_next = !again;
    if (!again) return dispatch_front(w, subscription, seq, consumer);
    return delivery ? dispatch_again(w, subscription, delivery, consumer) : STUCK;
}

/* --- by key ------------------------------------------------------------------------------------------------------- */

/* Most messages held back because their key's consumer cannot take them now. With that many, no others pass them. */
enum { KEY_HELD_BACK = 1024 };
/* What finding a slot's consumer costs, in addition to a look at each consumer. */
enum { LOOKED_FOR_ONE = 8 };

/* The state of one turn: what was found for one message holds for later ones with the same key. */
struct keyed {
    uint16_t slot;
    uint32_t consumer;
    uint32_t looked;   /* looks at messages, and for each at all consumers */
    uint64_t full_seq; /* the first message whose acceptor takes no more; UINT64_MAX: none */
};

static bool may_go(struct worker *w, uint32_t subscription, uint64_t seq, const struct record *r, struct keyed *k) {
    k->slot = policy_slot(r);
    k->consumer = key_owners_find(w, subscription, k->slot, &k->looked);
    const struct consumer *c = worker_consumer(w, k->consumer);
    if (!k->consumer || !c->next_turn || !policy_slot_free(w, subscription, k->slot, k->consumer)) return false;
    bool full = w->peers[client_at(&w->clients, c->client)->acceptor].full;
    if (full && seq < k->full_seq) k->full_seq = seq;
    return !full;
}

/* Moves the cursor past the next message, and makes a delivery in no state. */
static uint32_t pass_keyed(struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct topic *t = topic_at(&w->topics, worker_subscription(w, subscription)->topic);
    uint32_t delivery = delivery_make(w, subscription, seq, message_of(w, t, seq)->id);
    if (delivery) subscription_pass(w, subscription);
    return delivery;
}

static enum dispatched send_keyed(struct worker *w, uint32_t subscription, uint32_t delivery, const struct keyed *k) {
    enum dispatched outcome = dispatch_again(w, subscription, delivery, k->consumer);
    const struct delivery *d = worker_delivery(w, delivery);
    bool flies = outcome == ONE && d->state == DELIVERY_IN_FLIGHT && d->consumer == k->consumer;
    if (flies && !policy_slot_take(w, delivery, k->slot, k->consumer))
        process_die("more keys in flight than there may be");
    return outcome;
}

/* Notes that the message at `seq` has been seen among the redeliveries, or has just been added to them. */
static void saw(const struct worker *w, uint32_t subscription, uint64_t seq, const struct keyed *k, bool sent) {
    struct consumer_rank *rank = k->consumer ? worker_consumer(w, k->consumer)->rank : NULL;
    if (rank) redelivery_saw(worker_subscription(w, subscription), rank, seq, sent);
}

/* Whether a batch was not sent but split: its parts have just been added to the redeliveries, none seen yet. */
static bool is_split(const struct worker *w, uint32_t delivery) {
    return worker_delivery(w, delivery)->state == DELIVERY_SPLIT;
}

/* Sends messages held back, from the first on that was not looked at. False: no more in this turn, see *outcome. */
static bool dispatch_held_back(struct worker *w, uint32_t subscription, struct keyed *k, int *left,
                               enum dispatched *outcome) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint32_t n = redelivery_to_look_at(w, s), next;
    uint64_t last_seq = UINT64_MAX;
    for (; n && *left && s->turn; n = next) {
        const struct delivery *d = worker_delivery(w, n);
        const uint64_t seq = s->look.from = d->seq;
        *outcome = ONE;
        /* Never among the parts of a batch, since the next turn begins with the first of them. */
        if (seq != last_seq && k->looked >= DISPATCH_LOOKED * w->piece) return false;
        last_seq = seq;
        next = d->following;
        k->looked += LOOKED_FOR_ONE;
        /* What has come before may come again. */
        if (s->blocked && !d->attempts) continue;
        *outcome = STUCK;
        const struct record *r = message_of(w, t, seq);
        enum readable readable = r ? message_readable(w, t, r) : READ_WHOLE;
        if (readable == READ_MORE) {
            *outcome = ONE;
            return false;
        }
        if (!r) {
            delivery_drop(w, n);
        } else if (readable == READ_FAILS) {
            if (leave_out(w, subscription, seq, n) != ONE) return false;
            --*left;
        } else {
            bool goes = may_go(w, subscription, seq, r, k);
            saw(w, subscription, seq, k, goes);
            if (goes && send_keyed(w, subscription, n, k) != ONE) return false;
            *left -= goes;
            if (!goes && d->part) next = redelivery_after(w, s, seq); /* nor do the others, which have its key */
            /* The rest of a batch may have gone with it. */
            if (next && worker_delivery(w, next)->state != DELIVERY_REDELIVERED) next = s->redelivery_first;
            if (goes && is_split(w, n)) next = redelivery_to_look_at(w, s);
        }
        /* A consumer may take messages now that this pass has skipped. */
        if (s->look.from < seq) next = redelivery_to_look_at(w, s);
    }
    s->look.from = n ? worker_delivery(w, n)->seq : UINT64_MAX;
    return true;
}

/* Sends new messages. */
static enum dispatched dispatch_new_keyed(struct worker *w, uint32_t subscription, struct keyed *k, int *left) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint64_t seq;
    while (*left && s->turn && !s->blocked && s->redeliveries < KEY_HELD_BACK &&
           subscription_front(w, subscription, &seq)) {
        if (k->looked >= DISPATCH_LOOKED * w->piece) return ONE;
        k->looked += LOOKED_FOR_ONE;
        enum dispatched passed = pass_by(w, subscription, seq);
        if (passed == STUCK) return STUCK;
        if (passed == ONE) continue;
        const struct record *r = message_of(w, t, seq);
        enum readable readable = message_readable(w, t, r);
        if (readable == READ_MORE) return ONE;
        if (readable == READ_FAILS) {
            if (leave_out(w, subscription, seq, 0) != ONE) return STUCK;
            --*left;
            continue;
        }
        bool goes = may_go(w, subscription, seq, r, k);
        const uint64_t looked_from = s->look.from;
        uint32_t delivery = pass_keyed(w, subscription, seq);
        if (!delivery) return STUCK;
        delivery_again(w, delivery);
        saw(w, subscription, seq, k, goes);
        if (goes && send_keyed(w, subscription, delivery, k) != ONE) return STUCK;
        const bool is_seen = looked_from == UINT64_MAX && s->look.from == seq && !(goes && is_split(w, delivery));
        if (is_seen) s->look.from = looked_from;
        *left -= goes;
    }
    return *left ? NOTHING : ONE;
}

/* First messages held back, then new ones; both in order, so that no message overtakes one with its key. */
static enum dispatched dispatch_by_key(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    struct keyed k = {.full_seq = UINT64_MAX};
    enum dispatched outcome;
    int left = DISPATCH_MOST;
    if (s->paused || !s->turn) return NOTHING;
    if (dispatch_held_back(w, subscription, &k, &left, &outcome)) {
        /* However much was held back, new messages are looked at too: otherwise each turn would end here. */
        k.looked = 0;
        outcome = dispatch_new_keyed(w, subscription, &k, &left);
    }
    if (k.full_seq == UINT64_MAX) return outcome;
    /* What was skipped because an acceptor takes no more may go as soon as it does. */
    redelivery_look_from(s, k.full_seq);
    return outcome == ONE && !left ? ONE : STUCK;
}

static enum dispatched dispatch_some(struct worker *w, uint32_t subscription) {
    enum dispatched outcome = ONE;
    if (worker_subscription(w, subscription)->still == w->turns) return STUCK;
    policy_choose(w, subscription);
    if (worker_subscription(w, subscription)->policy == POLICY_KEY) return dispatch_by_key(w, subscription);
    for (int i = 0, hidden = 0; i < DISPATCH_MOST && (outcome == ONE || outcome == HIDDEN); i++) {
        outcome = dispatch_one(w, subscription);
        if (outcome == HIDDEN && hidden++ < DISPATCH_HIDDEN) i--;
    }
    return outcome == HIDDEN || outcome == LOOKING ? ONE : outcome;
}

bool dispatch(struct worker *w) {
    struct subscriptions *all = &w->subscriptions;
    uint32_t n = all->due_first;
    bool more = false;
    if (!n) return false;
    struct peer *p;
    for (uint64_t rest = w->peers_there; (p = peer_next(w, &rest));) p->full = channel_backlogged(p->channel);
    all->due_first = all->due_last = 0;
    while (n) {
        uint32_t next = worker_subscription(w, n)->next_due;
        worker_subscription(w, n)->due = false;
        enum dispatched outcome = dispatch_some(w, n);
        if (outcome != NOTHING)
            subscription_due(w, n);
        else
            reads_end(w, n);
        more |= outcome == ONE;
        n = next;
    }
    return more;
}
