#include "shards/dispatch_message.h"

#include "shards/chunks.h"
#include "shards/compacted.h"
#include "shards/deliver.h"
#include "shards/delivery.h"
#include "shards/finish.h"
#include "shards/finished_ahead.h"
#include "shards/naming.h"
#include "shards/policy.h"
#include "shards/records.h"
#include "shards/room.h"
#include "shards/rotation.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/subscription.h"
#include "shards/transaction_acks.h"
#include "shards/transactions.h"
#include "shards/unheld.h"
#include "shards/unreadable.h"

/* No further batch is split while so many parts wait to be delivered. */
enum { SPLIT_AHEAD = 1024 };

static bool sampled_out(struct worker *w, const struct consumer *c) {
    if (!c->sample_percent) return false;
    return (subscriptions_random(&w->subscriptions) >> 32) % 100 >= c->sample_percent;
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
    deliver_packed(w, delivery, message_record(w, subscription_topic(w, s), d->seq), consumer, count);
    return ONE;
}

/* A message outside the consumer's sample counts as finished. */
static bool finish_sampled(struct worker *w, uint32_t subscription, uint32_t delivery) {
    const struct delivery *d = worker_delivery(w, delivery);
    struct parts_left left;
    if (d->part) split_without(w, delivery, &left);
    return (d->part && left.words > 0) || subscription_finished(w, subscription, d->seq);
}

enum dispatched dispatch_unreadable(struct worker *w, uint32_t subscription, uint64_t seq, uint32_t delivery) {
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

/* Who gets a chunk: whoever holds others of its message, or else the consumer whose turn it is. 0: nobody now. */
static uint32_t holder_of(struct worker *w, uint32_t subscription, const struct record *r, uint32_t consumer) {
    uint32_t holder = chunk_holder(w, subscription, r, consumer);
    if (holder && holder != consumer) rotation_give_back(w, consumer);
    return holder;
}

/* Whether a message that was delivered before its time to one who gets all has to wait for that now. (Where none was it
 * is not asked after, as a clock that was set back would have messages wait that have waited.) */
static bool is_early(const struct worker *w, const struct subscription *s, const struct record *r) {
    bool may_wait = s->gave_early && (s->policy == POLICY_TURNS || s->policy == POLICY_KEY);
    return may_wait && publish_attributes_of(r).delay_ns && message_deadline(w, r) > w->now_ns;
}

enum dispatched dispatch_again(struct worker *w, uint32_t subscription, uint32_t delivery, uint32_t consumer) {
    struct subscription *s = worker_subscription(w, subscription);
    const uint32_t turns = consumer;
    const struct topic *t = subscription_topic(w, s);
    struct delivery *d = worker_delivery(w, delivery);
    if (sampled_out(w, worker_consumer(w, consumer)) ||
        (worker_consumer(w, consumer)->compacted && !compacted_leaves(w, s->topic, delivery))) {
        if (!finish_sampled(w, subscription, delivery)) return STUCK;
        delivery_drop(w, delivery);
        return ONE;
    }
    const struct record *r = message_record(w, t, d->seq);
    if (s->reader && !r) {
        delivery_drop(w, delivery);
        return ONE;
    }
    enum readable readable = message_readable(w, t, r);
    if (readable != READ_WHOLE)
        return readable == READ_MORE ? LOOKING : dispatch_unreadable(w, subscription, d->seq, delivery);
    bool chunk = chunk_is(w, subscription, r);
    const uint16_t slot = chunk ? policy_slot(r) : 0;
    if (chunk && !(consumer = holder_of(w, subscription, r, consumer))) return STUCK;
    if (is_early(w, s, r) && !d->part) {
        rotation_give_back(w, turns);
        delivery_take(w, delivery);
        delivery_defer(w, delivery, message_deadline(w, r));
        return ONE;
    }
    uint32_t packed = packed_for(w, r, consumer);
    if (d->part && packed) return dispatch_parts(w, subscription, delivery, consumer);
    if (t->transactions && !d->part && transactions_keep(w, delivery, packed > 1)) return ONE;
    if (packed > 1) {
        if (!split_fits(w, packed)) return STUCK;
        delivery_take(w, delivery);
        return split(w, subscription, delivery, packed, false);
    }
    /* A message passed by the cursor counts as delivered once anyway, unless that was before its time; and the log has
     * nothing about parts. */
    bool waited = stream_delayed(&t->stream, d->seq) || publish_attributes_of(r).delay_ns;
    bool logged = s->number && !d->part && (d->attempts || waited);
    if (logged && !room_for(w, t, 1)) return STUCK;
    delivery_take(w, delivery);
    delivery_fly(w, delivery, consumer);
    if (chunk) chunk_hold(w, delivery, slot);
    if (logged) shard_log_redelivery(w, shard_of_topic(w, t), s, d);
    if (packed)
        deliver_packed(w, delivery, message_record(w, t, d->seq), consumer, 1);
    else
        deliver_whole(w, delivery, message_record(w, t, d->seq), consumer);
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

enum dispatched dispatch_pass_by(struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    enum dispatched passed = may_be_acknowledged(w, s) ? pass_acknowledged(w, subscription, seq) : NOTHING;
    return passed == NOTHING && position_waits(t, s) ? pass_delayed(w, subscription, seq) : passed;
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

/* Makes the message that the cursor has just passed wait, as a redelivery. */
static enum dispatched hold_back(struct worker *w, uint32_t subscription, uint64_t seq, const struct record *r) {
    if (worker_subscription(w, subscription)->redeliveries >= CHUNKS_HELD_BACK) return STUCK;
    uint32_t delivery = delivery_make(w, subscription, seq, r->id);
    if (!delivery) return STUCK;
    subscription_pass(w, subscription);
    delivery_again(w, delivery);
    return ONE;
}

enum dispatched dispatch_front(struct worker *w, uint32_t subscription, uint64_t seq, uint32_t consumer) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    bool compacted = worker_consumer(w, consumer)->compacted;
    enum dispatched passed = dispatch_pass_by(w, subscription, seq);
    if (passed == ONE) rotation_give_back(w, consumer);
    if (passed != NOTHING) return passed;
    if (sampled_out(w, worker_consumer(w, consumer)) || (compacted && compacted_hides(w, s->topic, seq))) {
        if (!subscription_pass_over(w, subscription, seq)) return STUCK;
        return compacted ? HIDDEN : ONE;
    }
    const struct record *r = message_record(w, t, seq);
    enum readable readable = message_readable(w, t, r);
    if (readable != READ_WHOLE) return readable == READ_MORE ? LOOKING : dispatch_unreadable(w, subscription, seq, 0);
    bool chunk = chunk_is(w, subscription, r);
    if (chunk && s->redeliveries && chunk_again(w, subscription, policy_slot(r)))
        consumer = 0;
    else if (chunk)
        consumer = holder_of(w, subscription, r, consumer);
    if (!consumer) return hold_back(w, subscription, seq, r);
    uint32_t packed = packed_for(w, r, consumer);
    if (packed > 1 && !split_fits(w, packed)) return STUCK;
    if (packed > 1 && s->redeliveries >= SPLIT_AHEAD)
        return dispatch_again(w, subscription, s->redelivery_first, consumer);
    const bool early = position_is_early(t, s) && s->number && message_deadline(w, r) > w->now_ns;
    if (early && !room_for(w, t, 2)) return STUCK;
    uint32_t delivery = delivery_make(w, subscription, seq, r->id);
    if (!delivery) return STUCK;
    subscription_pass(w, subscription);
    s->gave_early |= early;
    if (early) log_early(w, subscription, delivery);
    if (packed > 1) return split(w, subscription, delivery, packed, true);
    if (compacted) (void)compacted_leaves(w, s->topic, delivery);
    delivery_fly(w, delivery, consumer);
    if (chunk) chunk_hold(w, delivery, policy_slot(r));
    if (packed)
        deliver_packed(w, delivery, r, consumer, 1);
    else
        deliver_whole(w, delivery, r, consumer);
    return ONE;
}
