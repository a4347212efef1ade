/* Consumers: links them to the subscription they share, and gives back their messages when they leave. Memory only. */
#include "shards/consumer.h"

#include <assert.h>
#include <stdlib.h>

#include "shards/delivery.h"
#include "shards/key_owners.h"
#include "shards/rotation.h"

static uint64_t number_key(uint32_t client, uint32_t number) {
    return (uint64_t)client << 32 | number;
}

uint32_t consumer_find(const struct worker *w, uint32_t client, uint32_t number) {
    const struct client *c = client_at(&w->clients, client);
    /* Most connections have a single consumer. */
    if (!c->consumer || worker_consumer(w, c->consumer)->number == number) return c->consumer;
    return c->consumers > 1 ? map_find(&w->subscriptions.numbers, number_key(client, number)) : 0;
}

uint32_t consumer_make(struct worker *w, uint32_t client, uint32_t number, uint32_t subscription) {
    struct subscription *s = worker_subscription(w, subscription);
    struct client *of = client_at(&w->clients, client);
    uint32_t consumer = arena_take(&w->subscriptions.consumers);
    if (!consumer) return 0;
    if (!map_insert(&w->subscriptions.numbers, number_key(client, number), consumer)) {
        arena_give(&w->subscriptions.consumers, consumer);
        return 0;
    }
    *worker_consumer(w, consumer) = (struct consumer){.client = client,
                                                      .number = number,
                                                      .next_of_client = of->consumer,
                                                      .subscription = subscription,
                                                      .next = s->consumer_first,
                                                      .permits = INT64_MAX,
                                                      .flight_place = HEAP_NOWHERE};
    of->consumer = consumer;
    of->consumers++;
    if (s->consumer_first) worker_consumer(w, s->consumer_first)->previous = consumer;
    s->consumer_first = consumer;
    s->consumers++;
    key_owners_changed(s);
    return consumer;
}

static void leave_client(struct worker *w, const struct consumer *c, uint32_t consumer) {
    struct client *of = client_at(&w->clients, c->client);
    uint32_t *link = &of->consumer;
    for (; *link != consumer; worker_walk(w, 1)) link = &worker_consumer(w, *link)->next_of_client;
    *link = c->next_of_client;
    of->consumers--;
    map_remove(&w->subscriptions.numbers, number_key(c->client, c->number));
}

/* Gives back some of a consumer's messages in flight, to be delivered again. False: those were all. */
static bool give_back(struct worker *w, const struct consumer *c, bool all) {
    while (c->inflight_first && (all || worker_spare(w))) {
        uint32_t delivery = c->inflight_first;
        delivery_take(w, delivery);
        if (c->uncounted && !c->yields) worker_delivery(w, delivery)->attempts--;
        delivery_again(w, delivery);
    }
    return c->inflight_first != 0;
}

/* Remembers a consumer that left with more messages in flight than could be given back in that turn. */
static void put_leaving(struct worker *w, uint32_t consumer) {
    uint32_t last = w->leaving_consumers_last;
    struct consumer *c = worker_consumer(w, consumer);
    c->previous = last;
    c->next = 0;
    *(last ? &worker_consumer(w, last)->next : &w->leaving_consumers) = consumer;
    w->leaving_consumers_last = consumer;
    worker_subscription(w, c->subscription)->giving_back++;
}

static void has_left(struct worker *w, uint32_t consumer) {
    const struct consumer *c = worker_consumer(w, consumer);
    *(c->previous ? &worker_consumer(w, c->previous)->next : &w->leaving_consumers) = c->next;
    *(c->next ? &worker_consumer(w, c->next)->previous : &w->leaving_consumers_last) = c->previous;
    worker_subscription(w, c->subscription)->giving_back--;
    arena_give(&w->subscriptions.consumers, consumer);
}

static void put_yielding(struct worker *w, uint32_t consumer) {
    struct consumer *c = worker_consumer(w, consumer);
    c->previous_yielding = 0;
    c->next_yielding = w->yielding_consumers;
    if (c->next_yielding) worker_consumer(w, c->next_yielding)->previous_yielding = consumer;
    w->yielding_consumers = consumer;
    worker_subscription(w, c->subscription)->giving_back++;
}

static void yield_no_more(struct worker *w, uint32_t consumer) {
    struct consumer *c = worker_consumer(w, consumer);
    uint32_t previous = c->previous_yielding;
    if (!c->yields) return;
    *(previous ? &worker_consumer(w, previous)->next_yielding : &w->yielding_consumers) = c->next_yielding;
    if (c->next_yielding) worker_consumer(w, c->next_yielding)->previous_yielding = previous;
    worker_subscription(w, c->subscription)->giving_back--;
    c->yields = false;
}

/* Gives back messages of consumers that left. `of` 0: of all subscriptions, as many as the turn allows; else all of
 * that one. */
static void give_back_left(struct worker *w, uint32_t of) {
    for (uint32_t consumer = w->leaving_consumers, next; consumer && (of || worker_spare(w)); consumer = next) {
        const struct consumer *c = worker_consumer(w, consumer);
        next = c->next;
        if ((!of || c->subscription == of) && !give_back(w, c, of != 0)) has_left(w, consumer);
    }
}

static void give_back_yielded(struct worker *w, uint32_t of) {
    for (uint32_t consumer = w->yielding_consumers, next; consumer && (of || worker_spare(w)); consumer = next) {
        const struct consumer *c = worker_consumer(w, consumer);
        next = c->next_yielding;
        if ((of && c->subscription != of) || give_back(w, c, of != 0)) continue;
        yield_no_more(w, consumer);
        consumer_settle(w, consumer);
    }
}

void consumer_yield(struct worker *w, uint32_t consumer) {
    struct consumer *c = worker_consumer(w, consumer);
    if (c->yields) return;
    c->yields = true;
    if (give_back(w, c, false))
        put_yielding(w, consumer);
    else
        c->yields = false;
}

bool consumers_leave(struct worker *w) {
    worker_share_piece(w);
    give_back_left(w, 0);
    worker_share_piece(w);
    give_back_yielded(w, 0);
    return w->leaving_consumers || w->yielding_consumers;
}

bool consumers_give_back(const struct worker *w, uint32_t subscription) {
    return worker_subscription(w, subscription)->giving_back > 0;
}

void consumers_have_left(struct worker *w, uint32_t subscription) {
    if (consumers_give_back(w, subscription)) give_back_left(w, subscription);
    if (consumers_give_back(w, subscription)) give_back_yielded(w, subscription);
}

void consumer_remove(struct worker *w, uint32_t consumer) {
    struct consumer *c = worker_consumer(w, consumer);
    struct subscription *s = worker_subscription(w, c->subscription);
    c->credit = 0;
    yield_no_more(w, consumer);
    w->peers[client_at(&w->clients, c->client)->acceptor].window_bytes -= c->window_bytes;
    bool leaves = give_back(w, c, false);
    rotation_leave(w, consumer);
    delivery_forget_flights(w, consumer);
    if (c->previous)
        worker_consumer(w, c->previous)->next = c->next;
    else
        s->consumer_first = c->next;
    if (c->next) worker_consumer(w, c->next)->previous = c->previous;
    s->consumers--;
    key_owners_changed(s);
    leave_client(w, c, consumer);
    free(c->description);
    free(c->rank);
    c->description = NULL;
    c->rank = NULL;
    if (leaves)
        put_leaving(w, consumer);
    else
        arena_give(&w->subscriptions.consumers, consumer);
}
