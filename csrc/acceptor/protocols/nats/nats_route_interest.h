/* Which interest other servers are told. */
#ifndef MQ_NATS_ROUTE_INTEREST_H
#define MQ_NATS_ROUTE_INTEREST_H

#include "acceptor/protocols/nats/nats_shadows_state.h"
#include "acceptor/protocols/nats/nats_state.h"

struct nats_permissions;
struct nats_telling;

/* Tells that `weight` clients of this acceptor want a subject from now on, ... */
void nats_tell_routes(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                      struct text queue, uint32_t weight);
/* ... or those of another acceptor. */
void nats_tell_routes_of(struct acceptor *a, struct nats_server *server, const struct nats_remote *remote,
                         uint32_t weight);
/* Tells what importing accounts want of a subject of this one now, if that differs from before. */
void nats_tell_shadows(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                       struct text queue, struct nats_shadows_weights before);
/* How often a pattern is wanted by these, without `except` (NULL: all of them), ... */
uint64_t nats_weight_wanting(const struct nats_server *server, uint32_t account, struct text subject, struct text queue,
                             struct nats_wanting by, const struct nats_remote *except);
/* ... and without clients of this acceptor. */
uint64_t nats_weight_beside(const struct nats_server *server, uint32_t account, struct text subject, struct text queue,
                            struct nats_wanting by, const struct nats_remote *except);
/* Tells a newly connected server all that is wanted here: a piece at once, more in later turns as its output leaves. */
void nats_tell_route(struct acceptor *a, struct nats_server *server, struct connection *c);
/* The same for one account. */
void nats_tell_route_of(struct acceptor *a, struct nats_server *server, struct connection *c, uint32_t account);
void nats_tell_route_on(struct acceptor *a, struct connection *c);
void nats_telling_free(struct nats_telling *telling);
/* Replaces a server's permissions, and tells it the interest that it may know now, or no longer. Owns `now`. */
void nats_route_permit(struct acceptor *a, struct nats_server *server, struct connection *c,
                       struct nats_permissions *now);
/* The bound subjects have changed: tells servers and leaf nodes. `before`: those that were bound. */
void nats_tell_routes_bound(struct acceptor *a, struct nats_server *server, const struct nats_bound *before);

#endif
