/* The other acceptors of this broker, which together are one server to clients. */
#ifndef MQ_NATS_MESH_H
#define MQ_NATS_MESH_H

#include "acceptor/protocols/nats/nats_state.h"

/* Whether all others know the connection's subscriptions and have delivered its messages; else it stalls until they
 * have. */
bool nats_is_known(struct acceptor *a, struct connection *c);
/* Lets publishers go on that waited for a route. */
void nats_wake_route(struct acceptor *a, struct nats_server *server, uint32_t route);
void nats_mesh_joined(struct acceptor *a, void *state, uint32_t other);
void nats_mesh_lost(struct acceptor *a, void *state, uint32_t other);
void nats_mesh_heard(struct acceptor *a, void *state, uint32_t other, const struct message *message);
/* Goes on telling newcomers. */
void nats_mesh_tell_on(struct acceptor *a, struct nats_server *server);
bool nats_may_serve(const struct acceptor *a, const void *state);

#endif
