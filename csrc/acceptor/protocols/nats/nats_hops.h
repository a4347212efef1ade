/* Traced messages that go to other servers. */
#ifndef MQ_NATS_HOPS_H
#define MQ_NATS_HOPS_H

#include "acceptor/protocols/nats/nats_chosen.h"
#include "acceptor/protocols/nats/nats_message.h"

/* Sends the traced message to a server. */
void nats_trace_send(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t account, uint32_t flags,
                     const struct nats_message *m, const struct nats_chosen *chosen);
/* The same at the acceptor with the route. */
void nats_trace_route(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t account,
                      const struct nats_message *m, const struct nats_chosen *chosen);

#endif
