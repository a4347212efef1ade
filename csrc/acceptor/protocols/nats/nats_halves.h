/* Measured requests of other acceptors and servers that clients here have got. */
#ifndef MQ_NATS_HALVES_H
#define MQ_NATS_HALVES_H

#include "acceptor/protocols/nats/nats_state.h"

/* A message from elsewhere was given to a client here, perhaps a measured request. Services are measured here. */
__attribute__((noinline, cold)) void nats_half_begin(struct acceptor *a, struct nats_server *server, uint32_t account,
                                                     struct text reply);
/* A client publishes: has its half of a measurement published, if it answers such a request. */
__attribute__((noinline, cold)) void nats_half_end(struct acceptor *a, struct nats_server *server,
                                                   const struct connection *c, struct text subject);

#endif
