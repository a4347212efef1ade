/* Requests to workers without a slot of the connection: an answer to a SEND or to the barrier of an ACK finds it by its
 * place here. */
#include "acceptor/protocols/pulsar/pulsar_asks.h"

#include <stdlib.h>

void pulsar_tell_worker(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                        struct message message, const void *body) {
    message.conn = c->number;
    message.consumer = consumer->number;
    peer_send(a, consumer->worker, &message, body);
}

/* Who may leave fewer messages unacknowledged may be waiting for the next one. */
enum { UNHURRIED_UNACKED = 1000 };

void pulsar_tell_finished(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                          struct message finish, const void *body) {
    finish.conn = c->number;
    finish.consumer = consumer->number;
    const bool is_limited = consumer->most_unacked > 0 && consumer->most_unacked < UNHURRIED_UNACKED;
    if (is_limited)
        peer_send(a, consumer->worker, &finish, body);
    else
        peer_send_unhurried(a, consumer->worker, &finish, body);
}

void pulsar_tell_permits(struct acceptor *a, struct connection *c, const struct pulsar_consumer *consumer,
                         uint64_t permits) {
    pulsar_tell_worker(a, c, consumer, (struct message){.kind = MSG_CREDIT, .flags = MSG_PERMITS, .credit = permits},
                       NULL);
}

enum { FIRST_PENDING = 8 };

static bool grow_pending(struct pulsar *p) {
    uint32_t capacity = p->pending_capacity > 0 ? 2u * p->pending_capacity : FIRST_PENDING;
    struct pulsar_pending *larger = realloc(p->pending, capacity * sizeof *larger);
    if (larger == NULL) return false;
    for (uint32_t i = p->pending_capacity; i < capacity; i++)
        larger[i] = (struct pulsar_pending){.next_free = i + 1 < capacity ? i + 2 : 0};
    p->pending_free = (uint16_t)(p->pending_capacity + 1u);
    p->pending = larger;
    p->pending_capacity = (uint16_t)capacity;
    return true;
}

struct pulsar_pending *pulsar_pend(struct acceptor *a, struct connection *c, uint8_t kind, uint8_t worker,
                                   uint32_t *place) {
    struct pulsar *p = pulsar_of(c);
    assert(p->pending_count < PULSAR_MAX_PENDING);
    if (p->pending_free == 0 && !grow_pending(p)) {
        engine_oom(a, c);
        return NULL;
    }
    *place = p->pending_free - 1u;
    struct pulsar_pending *pending = &p->pending[*place];
    p->pending_free = (uint16_t)pending->next_free;
    p->pending_count++;
    *pending = (struct pulsar_pending){.worker = worker, .kind = kind};
    a->expected++;
    return pending;
}

void pulsar_free_pending(struct pulsar *p) {
    if (p->pending_count > 0) return;
    free(p->pending);
    p->pending = NULL;
    p->pending_capacity = p->pending_free = 0;
}

void pulsar_settle(struct acceptor *a, struct connection *c, struct pulsar_pending *pending) {
    struct pulsar *p = pulsar_of(c);
    if (pending->copy != NULL) bridge_drop(&a->blocks, pending->copy);
    pending->copy = NULL;
    pending->owner = 0;
    pending->next_free = p->pending_free;
    p->pending_free = (uint16_t)(pending - p->pending + 1);
    a->expected--;
    p->pending_count--;
    if (p->pending_count == PULSAR_MAX_PENDING / 2) pulsar_wake(a, c);
}

void pulsar_wake(struct acceptor *a, struct connection *c) {
    if (c->stall == STALL_OUTSTANDING) socket_wake(a, c);
}

bool pulsar_may_send(struct acceptor *a, struct connection *c, uint32_t worker) {
    struct worker_link *link = &a->links[worker];
    if (pulsar_of(c)->pending_count >= PULSAR_MAX_PENDING) return stalled(c, STALL_OUTSTANDING);
    const uint64_t waiting = link->channel != NULL ? channel_overflow(link->channel) : 0;
    if (!link->backlogged && waiting == 0) return true;
    const bool has_others = (c->touched_workers & ~bit_of(worker)) != 0;
    if (has_others && waiting < PULSAR_OVERFLOW_BYTES) return true;
    connection_list_add(&link->stalled, c->number);
    return stalled(c, STALL_WORKER);
}
