/* Which consumer's turn it is, of those that may take a message: one after the other; with priorities, only those with
 * the lowest number. The cost depends neither on the number of consumers nor on the number of priorities. */
#include "shards/rotation.h"

#include <assert.h>
#include <stdlib.h>

#include "shards/due.h"
#include "shards/redelivery.h"

enum { PRIORITIES = 64 };

struct rotation {
    uint64_t there;            /* a bit for each priority with consumers that may take a message */
    uint32_t turn[PRIORITIES]; /* for each priority what subscription.turn is for one */
};

static uint32_t *turn_of(struct subscription *s, uint32_t priority) {
    return s->rotation ? &s->rotation->turn[priority] : &s->turn;
}

/* Updates the subscription after a consumer of that priority has come, left or had its turn. */
static void settle(struct subscription *s, uint32_t priority) {
    struct rotation *all = s->rotation;
    if (!all) return;
    uint64_t bit = (uint64_t)1 << priority;
    all->there = all->turn[priority] ? all->there | bit : all->there & ~bit;
    s->turn = all->there ? all->turn[__builtin_ctzll(all->there)] : 0;
}

bool rotation_prefer(struct worker *w, uint32_t consumer, uint32_t priority) {
    struct consumer *c = worker_consumer(w, consumer);
    struct subscription *s = worker_subscription(w, c->subscription);
    assert(!c->next_turn);
    if (priority && !s->rotation) {
        s->rotation = calloc(1, sizeof *s->rotation);
        if (!s->rotation) return false;
        s->rotation->turn[0] = s->turn;
        settle(s, 0);
    }
    c->priority = priority < PRIORITIES ? priority : PRIORITIES - 1;
    return true;
}

void rotation_leave(struct worker *w, uint32_t consumer) {
    struct consumer *c = worker_consumer(w, consumer);
    struct subscription *s = worker_subscription(w, c->subscription);
    if (!c->next_turn) return;
    uint32_t *turn = turn_of(s, c->priority);
    worker_consumer(w, c->previous_turn)->next_turn = c->next_turn;
    worker_consumer(w, c->next_turn)->previous_turn = c->previous_turn;
    if (*turn == consumer) *turn = c->next_turn == consumer ? 0 : c->next_turn;
    c->previous_turn = c->next_turn = 0;
    settle(s, c->priority);
}

/* Puts the consumer behind all the others. */
void rotation_join(struct worker *w, uint32_t consumer) {
    struct consumer *c = worker_consumer(w, consumer);
    struct subscription *s = worker_subscription(w, c->subscription);
    uint32_t *turn = turn_of(s, c->priority);
    if (*turn) {
        struct consumer *front = worker_consumer(w, *turn);
        c->next_turn = *turn;
        c->previous_turn = front->previous_turn;
        worker_consumer(w, front->previous_turn)->next_turn = consumer;
        front->previous_turn = consumer;
    } else {
        *turn = c->previous_turn = c->next_turn = consumer;
    }
    settle(s, c->priority);
}

static uint32_t next_of(const struct worker *w, uint32_t *turn) {
    uint32_t first = *turn;
    if (!first) return 0;
    do {
        uint32_t consumer = *turn;
        const struct consumer *c = worker_consumer(w, consumer);
        *turn = c->next_turn;
        if (!w->peers[client_at(&w->clients, c->client)->acceptor].full) return consumer;
    } while (*turn != first);
    return 0;
}

__attribute__((cold)) static uint32_t first_of(const struct worker *w, struct subscription *s) {
    struct rotation *all = s->rotation;
    uint32_t consumer = 0;
    for (uint64_t rest = all->there; rest && !consumer; rest &= rest - 1)
        consumer = next_of(w, &all->turn[__builtin_ctzll(rest)]);
    if (consumer) settle(s, worker_consumer(w, consumer)->priority);
    return consumer;
}

uint32_t rotation_next(const struct worker *w, struct subscription *s) {
    return s->rotation ? first_of(w, s) : next_of(w, &s->turn);
}

void rotation_give_back(struct worker *w, uint32_t consumer) {
    const struct consumer *c = worker_consumer(w, consumer);
    struct subscription *s = worker_subscription(w, c->subscription);
    if (!c->next_turn) return;
    *turn_of(s, c->priority) = consumer;
    settle(s, c->priority);
}

void consumer_settle(struct worker *w, uint32_t consumer) {
    struct consumer *c = worker_consumer(w, consumer);
    /* One with permits may have another message as long as it is not blocked. */
    bool counted = c->permits != INT64_MAX, room = c->credit > (counted ? 0 : c->inflight);
    bool may = room && c->window_bytes < consumer_window(w, c) &&
               (c->permits > 0 || consumer_entries_left(worker_subscription(w, c->subscription), c)) && !c->yields &&
               !c->blocked && policy_lets(worker_subscription(w, c->subscription), consumer);
    if (may == (c->next_turn != 0)) return;
    if (!may) {
        rotation_leave(w, consumer);
        return;
    }
    rotation_join(w, consumer);
    if (c->rank) redelivery_look_for(worker_subscription(w, c->subscription), c->rank);
    subscription_due(w, c->subscription);
}
