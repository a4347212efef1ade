/* Deliveries: the messages that a subscription has passed and not finished, in flight, deferred, or to be delivered
 * again. Memory only. */
#include "shards/delivery.h"

#include <assert.h>
#include <stddef.h>

#include "shards/due.h"
#include "shards/keys_in_flight.h"
#include "shards/parts.h"
#include "shards/redelivery.h"
#include "shards/rotation.h"

static struct heap_places flight_places(const struct worker *w) {
    return (struct heap_places){w->subscriptions.consumers.base + offsetof(struct consumer, flight_place),
                                sizeof(struct consumer)};
}
static struct heap_places deadline_places(const struct worker *w) {
    return (struct heap_places){w->subscriptions.deliveries.base + offsetof(struct delivery, place),
                                sizeof(struct delivery)};
}

static void push(struct heap *heap, struct heap_places places, struct heap_entry entry) {
    if (!heap_push(heap, places, entry)) process_die("out of memory");
}

uint32_t delivery_find(const struct worker *w, uint32_t subscription, uint64_t id) {
    const struct subscriptions *all = &w->subscriptions;
    uint32_t n = index_find(&all->index, &all->deliveries, id ^ worker_subscription(w, subscription)->mix);
    while (n && worker_delivery(w, n)->subscription != subscription) n = index_next(&all->deliveries, n);
    return n;
}

uint32_t delivery_make(struct worker *w, uint32_t subscription, uint64_t seq, uint64_t id) {
    struct subscriptions *all = &w->subscriptions;
    uint32_t n = arena_take(&all->deliveries);
    if (!n) return 0;
    *worker_delivery(w, n) = (struct delivery){.key = id ^ worker_subscription(w, subscription)->mix,
                                               .seq = seq,
                                               .subscription = subscription,
                                               .place = HEAP_NOWHERE};
    index_insert(&all->index, &all->deliveries, n);
    return n;
}

void delivery_forget(struct worker *w, uint32_t delivery) {
    struct subscriptions *all = &w->subscriptions;
    assert(!worker_delivery(w, delivery)->state);
    if (worker_delivery(w, delivery)->in_parts) delivery_parts_forget(w, delivery);
    index_remove(&all->index, &all->deliveries, delivery);
    arena_give(&all->deliveries, delivery);
}

/* Appends a delivery to those in flight. All have their consumer's timeout from then on, so they are in the order of
 * their deadlines. One with a shorter timeout is also in the heap of deadlines. */
static void link_flight(struct worker *w, struct consumer *c, uint32_t delivery) {
    struct delivery *d = worker_delivery(w, delivery);
    d->previous = c->inflight_last;
    d->following = 0;
    *(d->previous ? &worker_delivery(w, d->previous)->following : &c->inflight_first) = delivery;
    c->inflight_last = delivery;
}

static void unlink_flight(struct worker *w, struct consumer *c, const struct delivery *d) {
    if (d->place != HEAP_NOWHERE) heap_remove(&w->subscriptions.deadlines, deadline_places(w), d->place);
    if (d->previous)
        worker_delivery(w, d->previous)->following = d->following;
    else
        c->inflight_first = d->following;
    if (d->following)
        worker_delivery(w, d->following)->previous = d->previous;
    else
        c->inflight_last = d->previous;
}

/* Updates a consumer's first deadline in the heap only if it is earlier than before. If it is later, that is found when
 * the old one is due. */
static void expect(struct worker *w, uint32_t consumer, uint64_t deadline_ns) {
    struct heap *flights = &w->subscriptions.flights;
    uint32_t place = worker_consumer(w, consumer)->flight_place;
    if (place != HEAP_NOWHERE) {
        if (flights->entries[place].high <= deadline_ns) return;
        heap_remove(flights, flight_places(w), place);
    }
    push(flights, flight_places(w), heap_key(deadline_ns, 0, consumer));
}

static uint64_t later(uint64_t now_ns, uint64_t by_ns) {
    return by_ns > UINT64_MAX - now_ns ? UINT64_MAX : now_ns + by_ns;
}

#define NO_LIMIT (((uint64_t)1 << LIMIT_BITS) - 1)

static uint64_t limit_of(const struct delivery *d) {
    return d->limit == NO_LIMIT ? UINT64_MAX : d->limit * LIMIT_NS;
}

static void set_limit(struct delivery *d, uint64_t limit_ns) {
    const uint64_t limit = limit_ns / LIMIT_NS;
    d->limit = (limit < NO_LIMIT ? limit : NO_LIMIT) & NO_LIMIT;
}

static void note_full(struct consumer *c, struct subscription *s) {
    if (consumer_is_full(c)) c->blocked = true;
    if (s->most_inflight && s->inflight_parts >= s->most_inflight) s->blocked = true;
}

void delivery_fly(struct worker *w, uint32_t delivery, uint32_t consumer) {
    struct delivery *d = worker_delivery(w, delivery);
    struct consumer *c = worker_consumer(w, consumer);
    assert(!d->state);
    d->state = DELIVERY_IN_FLIGHT;
    d->consumer = consumer;
    d->deadline_ns = later(w->now_ns, c->timeout_ns);
    set_limit(d, later(w->now_ns, c->timeout_max_ns));
    d->parts = 1;
    if (d->attempts < UINT16_MAX) d->attempts++;
    link_flight(w, c, delivery);
    expect(w, consumer, d->deadline_ns);
    c->inflight++;
    c->inflight_parts++;
    c->messages++;
    struct subscription *s = worker_subscription(w, d->subscription);
    s->inflight++;
    s->inflight_parts++;
    s->delivered++;
    note_full(c, s);
    consumer_settle(w, consumer);
}

void delivery_extend(struct worker *w, uint32_t delivery) {
    struct delivery *d = worker_delivery(w, delivery);
    struct consumer *c = worker_consumer(w, d->consumer);
    assert(d->state == DELIVERY_IN_FLIGHT);
    unlink_flight(w, c, d);
    d->deadline_ns = later(w->now_ns, c->timeout_ns);
    link_flight(w, c, delivery);
    if (d->deadline_ns <= limit_of(d)) return; /* those before it end sooner, so the heap knows of them */
    d->deadline_ns = limit_of(d);
    push(&w->subscriptions.deadlines, deadline_places(w), heap_key(d->deadline_ns, (uint32_t)d->seq, delivery));
}

void delivery_again(struct worker *w, uint32_t delivery) {
    struct delivery *d = worker_delivery(w, delivery);
    struct subscription *s = worker_subscription(w, d->subscription);
    assert(!d->state);
    d->state = DELIVERY_REDELIVERED;
    redelivery_put(w, s, delivery);
    subscription_due(w, d->subscription);
}

void delivery_defer(struct worker *w, uint32_t delivery, uint64_t deadline_ns) {
    struct delivery *d = worker_delivery(w, delivery);
    struct subscription *s = worker_subscription(w, d->subscription);
    assert(!d->state);
    d->state = DELIVERY_DEFERRED;
    d->deadline_ns = deadline_ns;
    d->previous = 0;
    d->following = s->deferred_first;
    if (d->following) worker_delivery(w, d->following)->previous = delivery;
    s->deferred_first = delivery;
    s->deferred++;
    push(&w->subscriptions.deadlines, deadline_places(w), heap_key(deadline_ns, (uint32_t)d->seq, delivery));
}

static void take_deferred(struct worker *w, struct subscription *s, const struct delivery *d) {
    if (d->previous)
        worker_delivery(w, d->previous)->following = d->following;
    else
        s->deferred_first = d->following;
    if (d->following) worker_delivery(w, d->following)->previous = d->previous;
    s->deferred--;
    heap_remove(&w->subscriptions.deadlines, deadline_places(w), d->place);
}

/* New messages come again when less than half as many are in flight as there may be. */
static void unblock(struct worker *w, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    if (s->inflight_parts && s->inflight_parts >= s->most_inflight / 2) return;
    s->blocked = false;
    if (s->policy == POLICY_KEY) redelivery_look_from(s, 0);
    subscription_due(w, subscription);
}

/* So many messages are not in flight any more. */
static void land(struct worker *w, const struct delivery *d, uint64_t parts) {
    struct consumer *c = worker_consumer(w, d->consumer);
    struct subscription *s = worker_subscription(w, d->subscription);
    c->inflight_parts -= parts;
    if (c->inflight_parts <= c->credit / 2) c->blocked = false;
    s->inflight_parts -= parts;
    if (s->blocked) unblock(w, d->subscription);
}

void delivery_weigh(struct worker *w, uint32_t delivery, uint64_t parts) {
    struct delivery *d = worker_delivery(w, delivery);
    assert(d->state == DELIVERY_IN_FLIGHT && parts);
    if (parts > UINT16_MAX) parts = UINT16_MAX;
    uint64_t before = d->parts;
    d->parts = parts & UINT16_MAX;
    if (parts < before) {
        land(w, d, before - parts);
        consumer_settle(w, d->consumer);
        return;
    }
    struct consumer *c = worker_consumer(w, d->consumer);
    struct subscription *s = worker_subscription(w, d->subscription);
    c->inflight_parts += parts - before;
    s->inflight_parts += parts - before;
    note_full(c, s);
}

void delivery_weigh_again(struct worker *w, uint32_t delivery) {
    const struct delivery *d = worker_delivery(w, delivery);
    const struct parts_left *left = delivery_parts(w, delivery);
    uint64_t count = d->state == DELIVERY_IN_FLIGHT && left ? parts_count(left) : UINT64_MAX;
    if (count < d->parts) delivery_weigh(w, delivery, count);
}

void consumer_unblock(struct worker *w, uint32_t consumer) {
    worker_consumer(w, consumer)->blocked = false;
    consumer_settle(w, consumer);
}

void delivery_take(struct worker *w, uint32_t delivery) {
    struct delivery *d = worker_delivery(w, delivery);
    struct subscription *s = worker_subscription(w, d->subscription);
    worker_step(w);
    switch (d->state) {
    case DELIVERY_REDELIVERED: redelivery_take(w, s, delivery); break;
    case DELIVERY_DEFERRED: take_deferred(w, s, d); break;
    case DELIVERY_IN_FLIGHT:
        if (d->keyed) policy_slot_release(w, delivery);
        unlink_flight(w, worker_consumer(w, d->consumer), d);
        worker_consumer(w, d->consumer)->inflight--;
        s->inflight--;
        land(w, d, d->parts);
        consumer_settle(w, d->consumer);
        d->consumer = 0;
        break;
    default: assert(!"a delivery in no state cannot be taken out of it");
    }
    d->state = 0;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

static void flights_due(struct worker *w, uint32_t consumer, uint64_t most_steps) {
    struct consumer *c = worker_consumer(w, consumer);
    heap_remove(&w->subscriptions.flights, flight_places(w), c->flight_place);
    while (c->inflight_first && worker_delivery(w, c->inflight_first)->deadline_ns <= w->now_ns &&
           w->steps < most_steps) {
        uint32_t delivery = c->inflight_first;
        delivery_take(w, delivery);
        worker_subscription(w, c->subscription)->timeouts++;
        delivery_again(w, delivery);
    }
    if (c->inflight_first) expect(w, consumer, worker_delivery(w, c->inflight_first)->deadline_ns);
}

void delivery_forget_flights(struct worker *w, uint32_t consumer) {
    uint32_t place = worker_consumer(w, consumer)->flight_place;
    if (place != HEAP_NOWHERE) heap_remove(&w->subscriptions.flights, flight_places(w), place);
}

uint64_t subscriptions_next_ns(const struct worker *w) {
    const struct heap_entry *flight = heap_top(&w->subscriptions.flights);
    const struct heap_entry *deferred = heap_top(&w->subscriptions.deadlines);
    uint64_t next = flight ? flight->high : UINT64_MAX;
    return deferred && deferred->high < next ? deferred->high : next;
}

bool subscriptions_tick(struct worker *w) {
    if (subscriptions_next_ns(w) > w->now_ns) return false;
    const struct heap_entry *first;
    uint64_t most = w->steps + w->piece;
    while ((first = heap_top(&w->subscriptions.flights)) && first->high <= w->now_ns && w->steps < most)
        flights_due(w, heap_item(*first), most);
    while ((first = heap_top(&w->subscriptions.deadlines)) && first->high <= w->now_ns && w->steps < most) {
        uint32_t delivery = heap_item(*first);
        const struct delivery *d = worker_delivery(w, delivery);
        worker_subscription(w, d->subscription)->timeouts += d->state == DELIVERY_IN_FLIGHT;
        delivery_take(w, delivery);
        delivery_again(w, delivery);
    }
    return true;
}
