#include "shards/subscription.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "shards/consumer.h"
#include "shards/delays.h"
#include "shards/delivery.h"
#include "shards/due.h"
#include "shards/finished_ahead.h"
#include "shards/handover_state.h"
#include "shards/key_owners.h"
#include "shards/parts.h"
#include "shards/shard.h"
#include "shards/split.h"
#include "shards/stream.h"
#include "shards/tomb.h"
#include "shards/transactions.h"
#include "shards/unheld.h"
#include "shards/unreadable.h"

bool subscriptions_open(struct subscriptions *all, uint32_t limit, uint32_t consumer_limit, uint32_t delivery_limit,
                        uint32_t shards, uint64_t seed) {
    *all = (struct subscriptions){.random = seed | 1};
    return arena_open(&all->arena, sizeof(struct subscription), limit) &&
           arena_open(&all->consumers, sizeof(struct consumer), consumer_limit) &&
           arena_open(&all->deliveries, sizeof(struct delivery), delivery_limit) &&
           arena_open(&all->slots, sizeof(struct slot_use), WORKER_MAX_SLOTS) && parts_open(all) &&
           arena_open(&all->finished_ahead.arena, sizeof(struct finished_message), WORKER_MAX_IN_TRANSACTIONS + 1) &&
           index_open(&all->index, delivery_limit, shards);
}

void subscriptions_close(struct subscriptions *all) {
    for (uint32_t n = 1; all->arena.base && n < all->arena.end; n++) {
        struct subscription *s = subscription_at(all, n);
        free(s->rotation); /* a deleted one that is not let go of yet has it, too */
        if (!s->name) continue;
        free(s->name);
        free(s->acks);
        for (uint32_t c = s->consumer_first; c; c = consumer_at(all, c)->next) {
            free(consumer_at(all, c)->description);
            free(consumer_at(all, c)->rank);
        }
    }
    map_free(&all->numbers);
    map_free(&all->slot_uses);
    key_owners_free(all);
    map_free(&all->parts_of);
    map_free(&all->finished_ahead.by_seq);
    arena_close(&all->finished_ahead.arena);
    arena_close(&all->slots);
    arena_close(&all->parts);
    heap_free(&all->flights);
    heap_free(&all->deadlines);
    index_close(&all->index);
    arena_close(&all->deliveries);
    arena_close(&all->consumers);
    arena_close(&all->arena);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

void message_release(struct worker *w, uint32_t topic, uint64_t seq) {
    struct topic *t = topic_at(&w->topics, topic);
    log_position position = stream_position(&t->stream, seq);
    worker_step(w);
    /* Its stream is in a tomb; or, on recovery, an earlier record was damaged. */
    if ((w->replaying || t->ending) && !position) return;
    if (stream_release(&t->stream, seq)) shard_count_out(shard_of_topic(w, t), position);
}

void subscription_release(struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct subscription *s = worker_subscription(w, subscription);
    if (!s->reader && s->topic) message_release(w, s->topic, seq);
}

bool subscription_front(struct worker *w, uint32_t subscription, uint64_t *seq) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    uint64_t horizon = subscription_horizon(t);
    if (s->cursor < s->held_from && position_front(w, subscription, horizon, seq)) return true;
    while (s->cursor < horizon) {
        uint64_t next = stream_next(&t->stream, s->cursor);
        if (next >= horizon) {
            s->cursor = horizon;
            break;
        }
        s->cursor = next;
        if (!stream_delayed(&t->stream, next)) {
            *seq = next;
            return true;
        }
        s->cursor++;
    }
    return false;
}

void subscription_pass(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    if (s->cursor < s->held_from)
        position_pass(w, subscription);
    else
        s->taken++;
    s->cursor++;
    subscription_touched(w, subscription);
}

bool subscription_holds(const struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id, bool delayed) {
    const struct subscription *s = worker_subscription(w, subscription);
    bool ahead = seq >= subscription_held_from(s) && seq < topic_given_until(subscription_topic(w, s)) && !delayed;
    return ahead || delivery_find(w, subscription, id);
}

uint64_t subscription_depth(const struct worker *w, const struct subscription *s) {
    const struct topic *t = subscription_topic(w, s);
    return (t->ahead > s->taken ? t->ahead - s->taken : 0) + s->redeliveries +
           (s->cursor < s->held_from ? position_depth(w, s) : 0);
}

/* --- subscriptions ------------------------------------------------------------------------------------------------ */

uint32_t subscription_find(const struct worker *w, uint32_t topic, const char *name, size_t name_bytes) {
    uint32_t n = topic_at(&w->topics, topic)->subscriptions;
    while (n && (worker_subscription(w, n)->name_bytes != name_bytes ||
                 memcmp(worker_subscription(w, n)->name, name, name_bytes) != 0))
        n = worker_subscription(w, n)->next;
    return n;
}

uint64_t message_deadline(const struct worker *w, const struct record *r) {
    uint64_t delay_ns = publish_attributes_of(r).delay_ns;
    if (!delay_ns) return w->now_ns;
    return worker_deadline(w, delay_ends(r->time_ns, delay_ns),
                           delay_ns > UINT64_MAX - MS_NS ? delay_ns : delay_ns + MS_NS);
}

void subscription_defer(struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id) {
    const struct topic *t = subscription_topic(w, worker_subscription(w, subscription));
    const struct record *r = log_read(shard_of_topic(w, t)->log, stream_position(&t->stream, seq));
    uint32_t delivery = delivery_make(w, subscription, seq, id);
    if (!delivery) process_die("more deliveries than a worker can hold");
    delivery_defer(w, delivery, message_deadline(w, r));
}

/* Delayed messages are not taken by a cursor: each waits for its time as a delivery. */
static void defer_all(struct worker *w, uint32_t subscription, uint64_t from) {
    const struct topic *t = subscription_topic(w, worker_subscription(w, subscription));
    const struct stream *stream = &t->stream;
    uint64_t end = topic_given_until(t);
    for (uint64_t seq = stream_next(stream, from); seq < end; seq = stream_next(stream, seq + 1)) {
        const struct record *r = stream_delayed(stream, seq) ? message_head(w, t, seq) : NULL;
        if (r) subscription_defer(w, subscription, seq, r->id);
    }
}

/* Adds a subscription to the topic's list, and nothing more. */
static uint32_t add(struct worker *w, uint32_t topic, const char *name, size_t name_bytes) {
    struct topic *t = topic_at(&w->topics, topic);
    struct subscriptions *all = &w->subscriptions;
    if (t->subscription_count + t->reader_count >= TOPIC_MAX_SUBSCRIPTIONS) return 0;
    if (!name_bytes || name_bytes > CHANNEL_NAME_MAX) return 0;
    char *copy = malloc(name_bytes);
    uint32_t subscription = copy ? arena_take(&all->arena) : 0;
    if (!subscription) {
        free(copy);
        return 0;
    }
    memcpy(copy, name, name_bytes);
    *worker_subscription(w, subscription) =
        (struct subscription){.topic = topic,
                              .next = t->subscriptions,
                              .name = copy,
                              .name_bytes = (uint32_t)name_bytes,
                              .joined = t->messages - t->kept_messages - t->kept_delayed,
                              .mix = subscriptions_random(all)};
    t->subscriptions = subscription;
    if (compacted_is_name(name, name_bytes)) t->compacted = subscription;
    if (retention_is_name(name, name_bytes)) t->retention = subscription;
    return subscription;
}

uint32_t subscription_make_reader(struct worker *w, uint32_t topic, const char *name, size_t name_bytes) {
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t subscription = add(w, topic, name, name_bytes);
    if (!subscription) return 0;
    struct subscription *s = worker_subscription(w, subscription);
    t->reader_count++;
    s->reader = true;
    s->cursor = s->logged_cursor = t->next_seq;
    s->held_from = s->taken = UINT64_MAX;
    return subscription;
}

uint32_t subscription_make(struct worker *w, uint32_t topic, const char *name, size_t name_bytes, uint32_t number) {
    struct topic *t = topic_at(&w->topics, topic);
    uint32_t subscription = add(w, topic, name, name_bytes);
    if (!subscription) return 0;
    struct subscription *s = worker_subscription(w, subscription);
    bool first = t->subscription_count == 0;
    uint64_t end = t->keeps ? t->stopped_seq : t->next_seq; /* messages that its topic keeps come later */
    s->number = number;
    t->subscription_count++;
    if (!number) t->ephemeral_count++;
    if (!number) t->had_ephemeral = true;
    if (first) {
        s->cursor = t->waiting_messages + t->waiting_delayed ? stream_next(&t->stream, 0) : end;
        /* No subscription has passed anything yet: only messages there now count. */
        t->ahead = t->waiting_messages;
        s->joined -= t->waiting_messages + t->waiting_delayed;
        if (t->waiting_delayed) defer_all(w, subscription, s->cursor);
        t->waiting_messages = t->waiting_delayed = 0;
    } else {
        s->cursor = end;
        s->taken = t->ahead;
    }
    s->logged_cursor = s->cursor;
    return subscription;
}

void delivery_drop(struct worker *w, uint32_t delivery) {
    struct delivery *d = worker_delivery(w, delivery);
    uint32_t subscription = d->subscription;
    uint64_t seq = d->seq;
    bool over = true;
    if (d->part) {
        over = split_part_over(w, delivery);
    } else if (d->state == DELIVERY_SPLIT) {
        split_over(w, delivery);
    } else {
        if (d->state) delivery_take(w, delivery);
        delivery_forget(w, delivery);
    }
    if (over) subscription_release(w, subscription, seq);
}

void subscription_release_ahead(struct worker *w, uint32_t subscription, uint64_t until) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct stream *stream = &subscription_topic(w, s)->stream;
    uint64_t given = topic_given_until(subscription_topic(w, s)), end = until < given ? until : given;
    for (uint64_t seq = stream_next(stream, subscription_held_from(s)); seq < end; seq = stream_next(stream, seq + 1)) {
        if (stream_delayed(stream, seq)) continue;
        message_release(w, s->topic, seq);
        s->taken++;
    }
    if (until > s->cursor) s->cursor = until;
}

bool subscription_skip(struct worker *w, uint32_t subscription, uint64_t until, uint32_t most) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct stream *stream = &subscription_topic(w, s)->stream;
    uint64_t given = topic_given_until(subscription_topic(w, s)), end = until < given ? until : given;
    uint64_t seq = stream_next(stream, subscription_held_from(s));
    for (; seq < end; seq = stream_next(stream, seq + 1)) {
        if (!most--) break;
        /* It passes messages without a reference at once. */
        s->cursor = s->logged_cursor = seq + 1;
        if (stream_delayed(stream, seq)) continue;
        message_release(w, s->topic, seq);
        s->taken++;
    }
    return seq >= end;
}

bool subscription_owns_stream(const struct worker *w, const struct subscription *s, uint64_t until) {
    const struct topic *t = subscription_topic(w, s);
    return t->subscription_count == 1 && !s->reader && !t->tube && !t->keeps && !t->stream.retains &&
           !handover_leaves(t) && until >= t->stream.end && t->stream.live > STREAM_PAGE;
}

void subscription_empty(struct worker *w, uint32_t subscription, uint64_t until) {
    struct subscription *s = worker_subscription(w, subscription);
    consumers_have_left(w, subscription);
    while (s->redelivery_first) delivery_drop(w, s->redelivery_first);
    while (s->deferred_first) delivery_drop(w, s->deferred_first);
    for (uint32_t c = s->consumer_first; c; c = worker_consumer(w, c)->next)
        while (worker_consumer(w, c)->inflight_first) delivery_drop(w, worker_consumer(w, c)->inflight_first);
    if (!subscription_owns_stream(w, s, until)) {
        subscription_release_ahead(w, subscription, until);
        return;
    }
    stream_bury(w, s->topic);
    s->cursor = until;
    s->taken = subscription_topic(w, s)->ahead;
}

/* Drops deliveries up to a seq. Returns how many more may be dropped. */
static uint32_t drop_upto(struct worker *w, uint32_t first, uint64_t seq, uint32_t most) {
    for (uint32_t n = first, next; n && most; n = next) {
        next = worker_delivery(w, n)->following;
        if (worker_delivery(w, n)->seq > seq) continue;
        delivery_drop(w, n);
        most--;
    }
    return most;
}

uint32_t subscription_finish_upto(struct worker *w, uint32_t subscription, uint64_t seq, uint32_t most) {
    struct subscription *s = worker_subscription(w, subscription);
    if (!s->cursor) return 0;
    consumers_have_left(w, subscription);
    if (seq >= s->cursor) seq = s->cursor - 1;
    uint32_t left = drop_upto(w, s->deferred_first, seq, drop_upto(w, s->redelivery_first, seq, most));
    for (uint32_t c = s->consumer_first; c && left; c = worker_consumer(w, c)->next)
        left = drop_upto(w, worker_consumer(w, c)->inflight_first, seq, left);
    s->finished += most - left;
    return most - left;
}

void subscription_remove(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    struct topic *t = subscription_topic(w, s);
    assert(!s->consumer_first);
    consumers_have_left(w, subscription);
    /* Messages held up by an open transaction are released too. */
    subscription_empty(w, subscription, topic_given_until(t));
    subscription_unlink(w, subscription);
    subscription_free(w, subscription);
}

void subscription_unlink(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    struct topic *t = subscription_topic(w, s);
    subscription_leave_lists(w, subscription);
    subscription_unpin(w, subscription);
    finished_ahead_forget(w, subscription);
    uint32_t *link = &t->subscriptions;
    while (*link != subscription) link = &worker_subscription(w, *link)->next;
    *link = s->next;
    if (t->compacted == subscription) t->compacted = 0;
    if (t->retention == subscription) t->retention = 0;
    *(s->reader ? &t->reader_count : &t->subscription_count) -= 1;
    if (!s->number && !s->reader) t->ephemeral_count--;
    free(s->name);
    free(s->acks);
    s->name = NULL;
    s->acks = NULL;
}

void subscription_orphan(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    s->topic = 0;
    s->next = w->orphans;
    w->orphans = subscription;
}

void subscription_free(struct worker *w, uint32_t subscription) {
    free(worker_subscription(w, subscription)->rotation);
    *worker_subscription(w, subscription) = (struct subscription){0};
    arena_give(&w->subscriptions.arena, subscription);
}

/* On recovery: the message was delivered once, as far as is known. One that was not due when it was passed waits for
 * that, unless a REDELIVERY behind it says that it was delivered all the same; but the compacted view delivers none. */
static void come_again(struct worker *w, uint32_t subscription, uint64_t seq) {
    const struct topic *t = subscription_topic(w, worker_subscription(w, subscription));
    const struct record *r = log_read(shard_of_topic(w, t)->log, stream_position(&t->stream, seq));
    uint32_t delivery = delivery_make(w, subscription, seq, r->id);
    if (!delivery) process_die("more deliveries than a worker can hold");
    bool held = transactions_hold(w, subscription, seq);
    uint64_t deadline_ns = held ? DELIVERY_PENDING_NS : message_deadline(w, r);
    bool waits = deadline_ns > w->now_ns && subscription != t->compacted;
    if (held || !waits) worker_delivery(w, delivery)->attempts = 1;
    if (waits)
        delivery_defer(w, delivery, deadline_ns);
    else
        delivery_again(w, delivery);
}

void subscription_advance(struct worker *w, uint32_t subscription, uint64_t cursor) {
    struct subscription *s = worker_subscription(w, subscription);
    const struct topic *t = subscription_topic(w, s);
    const struct stream *stream = &t->stream;
    uint64_t given = topic_given_until(t), until = cursor < given ? cursor : given;
    for (uint64_t seq; position_front(w, subscription, until, &seq); s->cursor++) {
        if (finished_ahead_take(w, subscription, seq)) continue;
        position_pass(w, subscription);
        come_again(w, subscription, seq);
    }
    for (uint64_t seq = stream_next(stream, s->cursor); seq < until; seq = stream_next(stream, seq + 1)) {
        if (stream_delayed(stream, seq)) continue;
        s->taken++;
        if (finished_ahead_take(w, subscription, seq))
            message_release(w, s->topic, seq);
        else
            come_again(w, subscription, seq);
    }
    if (cursor > s->cursor) s->cursor = cursor;
    if (s->cursor > s->logged_cursor) s->logged_cursor = s->cursor;
}
