/* Removes what clients and others that have gone wanted, in pieces. */
#ifndef MQ_NATS_LEAVING_H
#define MQ_NATS_LEAVING_H

#include "acceptor/protocols/nats/nats_state.h"

/* A client has gone: removes its subscriptions, piece by piece if they are many. */
void nats_client_left(struct acceptor *a, struct connection *c);
/* One of the others has gone, and with it its interest. */
void nats_other_left(struct acceptor *a, struct nats_server *server, uint32_t other);
/* Whether the limit of interest allows one more. If need be, interest that is to be forgotten makes room. */
bool nats_may_hear(struct acceptor *a, struct nats_server *server);
void nats_leave_on(struct acceptor *a, void *state);
/* The acceptor ends: frees what has not been forgotten yet. `freed` frees what a connection refers to. */
void nats_leaving_free(struct nats_server *server, void (*freed)(struct connection *));

#endif
