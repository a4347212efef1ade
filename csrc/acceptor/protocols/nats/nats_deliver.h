/* From one publisher to all in an account that want the message. */
#ifndef MQ_NATS_DELIVER_H
#define MQ_NATS_DELIVER_H

#include "acceptor/protocols/nats/nats_account_state.h"
#include "acceptor/protocols/nats/nats_delivery.h"
#include "acceptor/protocols/nats/nats_message.h"
#include "acceptor/protocols/nats/nats_route_state.h"

struct nats_share;
struct subject_pattern;

/* Delivers a message that this server publishes itself. */
void nats_deliver_as_server(struct acceptor *a, struct nats_server *server, uint32_t account,
                            const struct nats_message *message);
/* A subscription of the connection without a queue group that matches a subject, or NULL. */
struct nats_subscription *nats_own_subscription(struct acceptor *a, struct connection *c, struct text subject);

/* Gives the message to all plain subscribers of these patterns and to one of each group; there are none elsewhere. */
void nats_deliver_matching(struct nats_delivery *d, struct subject_pattern *const *patterns, size_t count);

/* Picks one with members of a group at random, in proportion; NULL: none. */
struct subject_entry *nats_pick_other(struct nats_server *server, const struct nats_account *account,
                                      struct subject_pattern *const *patterns, size_t count, struct text name,
                                      struct nats_candidates among);

/* All of these deliver in one account, and set *answers if another account may wait for the message. */

/* Delivers a message that is published here; false if nobody got it. `from`: the publisher, who gets no echo, or NULL.
 * `asker`: the client whose next PONG has to wait for this, or NULL. */
bool nats_deliver_in(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *from,
                     struct connection *asker, const struct nats_message *message, bool *answers);
/* See nats_deliver_here(). */
size_t nats_deliver_from_acceptor(struct acceptor *a, struct nats_server *server, uint32_t account,
                                  const struct nats_message *message, bool alone, struct text *groups, size_t count,
                                  bool *answers);
/* See nats_deliver_routed(). */
void nats_deliver_from_route(struct acceptor *a, struct nats_server *server, uint32_t account,
                             const struct nats_routed *how, const struct nats_message *message, bool *answers);

/* Delivers a message that `account` imports as a stream: to all here who want it, and to leaf nodes, but to no server,
 * since each imports for itself. Groups get it as they were awarded to the import (nats_shadows.h). `from_server`: it
 * came over a route, so that it does not go to hubs either. False if nobody got it. */
bool nats_deliver_imported(struct acceptor *a, struct nats_server *server, uint32_t account,
                           const struct nats_share *import, bool from_server, struct connection *asker,
                           const struct nats_message *message, bool *answers);

#endif
