/* What is delivered. */
#ifndef MQ_NATS_MESSAGE_H
#define MQ_NATS_MESSAGE_H

#include "acceptor/protocols/nats/nats_state.h"

/* A message being delivered. The payload begins with `header_bytes` of headers. */
struct nats_message {
    struct text subject, reply;
    struct text size, header_size; /* as the publisher wrote them */
    const uint8_t *payload;
    size_t payload_bytes, header_bytes;
    uint64_t from;   /* nats_sender(); 0: it came over a route */
    uint64_t tried;  /* acceptors that should have chosen a group member but had none, as bits */
    uint32_t origin; /* the cluster of leaf nodes that has the message already; 0: none known here */
    uint32_t hub;    /* the cluster of the hub that it came from, if it is imported; 0: from none */
    bool joined;     /* reply, sizes, payload and its CRLF are contiguous, as a subscriber gets them */
};

/* How a message came over a route, a leaf node's connection or a hub's. */
struct nats_routed {
    uint32_t from;             /* the other side */
    bool kept;                 /* it is logged here, so no other server of the topics-queue may log it */
    const struct text *groups; /* of which one member each gets it */
    size_t count;
};

/* A number of a client that is unique over all acceptors. */
static inline uint64_t nats_sender(const struct acceptor *a, const struct connection *c) {
    return ((uint64_t)a->index + 1) << 32 | c->number;
}

#endif
