/* Requests to workers: whether one can be sent now, and sending it. */
#ifndef MQ_ASKS_H
#define MQ_ASKS_H

#include "acceptor/bridge.h"
#include "acceptor/lists.h"
#include "acceptor/requests.h"

/* Another reply can be queued. */
static inline bool may_reply(struct connection *c) {
    return c->slot_count < MAX_OUTSTANDING || stalled(c, STALL_OUTSTANDING);
}

/* No reserve is under way on the connection. */
static inline bool may_change(struct connection *c) {
    return c->reserves == 0 || stalled(c, STALL_RESERVES);
}

/* No request is under way on the connection. */
static inline bool may_do_alone(struct connection *c) {
    return c->slot_count == 0 || stalled(c, STALL_IDLE);
}

/* A worker takes messages without a reply. If it is gone they are not needed: it is told everything when it is back. */
static inline bool may_tell(struct acceptor *a, struct connection *c, uint32_t worker) {
    if (!a->links[worker].backlogged) return true;
    connection_list_add(&a->links[worker].stalled, c->number);
    return stalled_by(a, c, STALL_WORKER, WAITS_WORKER);
}

/* A worker can take a large body now; else the connection stalls until it can. */
bool peer_may_bring_large(struct acceptor *a, struct connection *c, uint32_t worker, size_t body_bytes);

/* A worker can be sent a request. A reserve may wait for long: later requests to the same worker wait behind it there,
 * but none may overtake it at another worker. */
static inline bool may_ask(struct acceptor *a, struct connection *c, uint32_t worker) {
    if (!may_reply(c)) return false;
    if (c->reserves > 0 && c->reserve_worker != worker) return stalled(c, STALL_RESERVES);
    if (a->bridges && !bridge_may_publish(a, c)) return false;
    if (a->links[worker].channel == NULL || a->links[worker].backlogged) {
        connection_list_add(&a->links[worker].stalled, c->number);
        return stalled_by(a, c, STALL_WORKER, WAITS_WORKER);
    }
    return true;
}

/* A worker can be sent a request with a body of that size. */
static inline bool may_bring(struct acceptor *a, struct connection *c, uint32_t worker, size_t body_bytes) {
    return may_ask(a, c, worker) && (body_bytes < LARGE_BODY_BYTES || peer_may_bring_large(a, c, worker, body_bytes));
}

/* Sends a request (conn, slot and body_bytes are filled in here) and opens a slot for its reply. may_ask() has allowed
 * it. */
void peer_ask(struct acceptor *a, struct connection *c, uint32_t worker, struct message *request, const void *body,
              uint32_t body_bytes, uint64_t value);
/* Sends a reserve to a single worker. */
void peer_reserve(struct acceptor *a, struct connection *c, uint32_t worker, uint64_t timeout_ns);

/* The worker is back: sends again what it may not have been sent. */
void peer_ask_again(struct acceptor *a, struct connection *c, uint32_t worker);

#endif
