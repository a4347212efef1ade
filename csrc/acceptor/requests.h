/* Sending to workers: consecutive requests travel as one message. */
#ifndef MQ_REQUESTS_H
#define MQ_REQUESTS_H

#include "acceptor/acceptor_state.h"
#include "ringbuf/request_each.h"

/* Sends a request of a kind that may be joined with its neighbours; see requests.c. */
void requests_send(struct worker_link *link, const struct message *request);

/* Sends a message, unless the worker is gone; the caller has it published. */
static inline void peer_put(struct acceptor *a, uint32_t worker, const struct message *message, const void *body) {
    struct worker_link *link = &a->links[worker];
    if (link->channel == NULL) return;
    if (request_each_has(message->kind) && message->body_bytes == 0)
        requests_send(link, message);
    else
        channel_send(link->channel, message, body, message->body_bytes);
}

static inline void peer_send(struct acceptor *a, uint32_t worker, const struct message *message, const void *body) {
    a->published_to |= bit_of(worker);
    peer_put(a, worker, message, body);
}

/* Sends a message that nobody waits for. A worker that sleeps is not woken for it within UNHURRIED_NS: mostly something
 * else wakes it before. */
static inline void peer_send_unhurried(struct acceptor *a, uint32_t worker, const struct message *message,
                                       const void *body) {
    a->unhurried_to |= bit_of(worker);
    peer_put(a, worker, message, body);
}

/* Sends a message about a connection that has no reply. */
static inline void peer_tell(struct acceptor *a, struct connection *c, uint32_t worker, uint8_t kind, uint32_t topic,
                             uint16_t flags) {
    struct message message = {.kind = kind, .flags = flags, .conn = c->number, .topic = topic};
    c->touched_workers |= bit_of(worker);
    peer_send(a, worker, &message, NULL);
}

#endif
