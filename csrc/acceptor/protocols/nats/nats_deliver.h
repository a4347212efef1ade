/* A message, and its way to all who want it. */
#ifndef MQ_NATS_DELIVER_H
#define MQ_NATS_DELIVER_H

#include "acceptor/protocols/nats/nats.h"

/* A message being delivered. The payload begins with `header_bytes` of headers. */
struct nats_message {
    struct text subject, reply;
    struct text size, header_size; /* as the publisher wrote them */
    const uint8_t *payload;
    size_t payload_bytes, header_bytes;
    uint64_t from;   /* nats_sender(); 0: it came over a route */
    uint64_t tried;  /* acceptors that should have chosen a group member but had none, as bits */
    uint32_t origin; /* the cluster of leaf nodes that has the message already; 0: none known here */
    bool joined;     /* reply, sizes, payload and its CRLF are contiguous, as a subscriber gets them */
};

/* A number of a client that is unique over all acceptors. */
static inline uint64_t nats_sender(const struct acceptor *a, const struct connection *c) {
    return ((uint64_t)a->index + 1) << 32 | c->number;
}

/* Delivers a message of one of our clients to all who want it; false if nobody did. */
bool nats_deliver(struct acceptor *a, struct connection *from, const struct nats_message *message);
/* Delivers a message from another acceptor to our clients: to plain subscribers if `alone`, and to one member of each
 * group named. Groups without members here stay in `groups`; returns how many. */
size_t nats_deliver_here(struct acceptor *a, struct nats_server *server, uint32_t account,
                         const struct nats_message *message, bool alone, struct text *groups, size_t count);
/* Delivers a message that came over a route, from `from`: to all plain subscribers and to one member of each group
 * named, on this server and behind its leaf nodes. A leaf node's message goes to routes too, but not back to its
 * cluster. A hub's goes to no route, since other servers have hubs of their own. `kept`: it is logged here, so no other
 * server of the topics-queue may log it. */
void nats_deliver_routed(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t from, bool kept,
                         const struct nats_message *message, const struct text *groups, size_t count);
/* Delivers a message that this server publishes in an account, whose imports hold, too. */
void nats_deliver_on(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_message *m);

/* Delivers a message that this server publishes itself. */
void nats_deliver_as_server(struct acceptor *a, struct nats_server *server, uint32_t account,
                            const struct nats_message *message);
/* A subscription of the connection without a queue group that matches a subject, or NULL. */
struct nats_subscription *nats_own_subscription(struct acceptor *a, struct connection *c, struct text subject);

/* Whether a client or server may publish in this turn; else its connection stalls until a later one. */
bool nats_wait_for_turn(struct acceptor *a, struct nats_server *server, struct connection *c);
static inline bool nats_may_hand_out(struct acceptor *a, struct nats_server *server, struct connection *c) {
    return (a->handed < HANDED_PER_TURN && server->fanouts.first == NULL) || nats_wait_for_turn(a, server, c);
}

/* At the beginning of a turn: lets publishers go on, those that have waited longest first. */
void nats_hand_on(struct acceptor *a, struct nats_server *server);

#endif
