/* The way of a message through mappings, and from account to account. */
#ifndef MQ_NATS_JOURNEY_H
#define MQ_NATS_JOURNEY_H

#include "acceptor/protocols/nats/nats_message.h"

/* Delivers a message of one of our clients to all who want it; false if nobody did. */
bool nats_deliver(struct acceptor *a, struct connection *from, const struct nats_message *message);
/* Delivers a message from another acceptor to our clients: to plain subscribers if `alone`, and to one member of each
 * group named. Groups without members here stay in `groups`; returns how many. */
size_t nats_deliver_here(struct acceptor *a, struct nats_server *server, uint32_t account,
                         const struct nats_message *message, bool alone, struct text *groups, size_t count);
/* Delivers a message that came over a route: to all plain subscribers and to one member of each group named, on this
 * server and behind its leaf nodes. A leaf node's message goes to routes too, but not back to its cluster. A hub's goes
 * to no route, since other servers have hubs of their own. */
void nats_deliver_routed(struct acceptor *a, struct nats_server *server, uint32_t account,
                         const struct nats_routed *how, const struct nats_message *message);
/* Delivers a message that this server publishes in an account, whose imports hold, too. */
void nats_deliver_on(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_message *m);

/* Must be called before there are shares or answers. False when memory is short. */
bool nats_journey_open(struct nats_server *server);
void nats_journey_close(struct nats_server *server);
/* Passes a message that was delivered in its account on to other accounts. `answers`: it may answer a request of
 * another account; `imports`: other accounts may import it. `asker`: the client, leaf node or hub that it came from;
 * NULL: none. False if nobody there got it. */
bool nats_go_on(struct acceptor *a, struct nats_server *server, uint32_t account, struct connection *asker,
                const struct nats_message *message, bool answers, bool imports);
/* The same for a message that came over a route, from `from`: of a server's only streams are imported. */
void nats_go_on_routed(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t from,
                       const struct nats_message *message, bool answers, bool imports);

#endif
