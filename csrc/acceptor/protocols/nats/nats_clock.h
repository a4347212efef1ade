/* When something of a connection is due. */
#ifndef MQ_NATS_CLOCK_H
#define MQ_NATS_CLOCK_H

#include "acceptor/protocols/nats/nats_write.h"

/* A measured round-trip time is used for this long. */
#define NATS_RTT_VALID_NS ((uint64_t)3600 * 1000000000u)

/* Nanoseconds since 1970. */
uint64_t nats_wall_now(const struct acceptor *a);
/* Sets the connection's timer to when something may be due next. */
void nats_schedule(struct acceptor *a, struct connection *c);
void nats_sent(struct acceptor *a, struct connection *c);
/* Output waits, and its deadline begins. */
void nats_waits(struct acceptor *a, struct connection *c);

static inline struct nats_write nats_write_of(const struct connection *c) {
    struct nats *n = nats_of(c);
    return (struct nats_write){&n->write_ns, &n->write_end, &n->flags};
}

/* PINGs beyond those that can be counted are as many as could be. */
static inline void nats_note_ping(const struct acceptor *a, uint16_t *pings, uint64_t *asked_ns) {
    if (*pings < UINT16_MAX) (*pings)++;
    *asked_ns = exact_now(a);
}

/* A client or server has answered a PING. */
static inline void nats_note_pong(const struct acceptor *a, uint16_t *pings, uint64_t asked_ns, uint64_t *rtt_ns) {
    uint64_t now = exact_now(a);
    if (*pings > 0) *rtt_ns = now > asked_ns ? now - asked_ns : 1;
    *pings = 0;
}

#endif
