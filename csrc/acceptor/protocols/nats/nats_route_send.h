/* Sends interest and messages to other servers. */
#ifndef MQ_NATS_ROUTE_SEND_H
#define MQ_NATS_ROUTE_SEND_H

#include "acceptor/protocols/nats/nats_chosen.h"
#include "acceptor/protocols/nats/nats_message.h"
#include "acceptor/protocols/nats/nats_route_state.h"

/* Sends a client's message to a server: for its plain subscribers, and for the groups that were chosen for `other`. */
void nats_route_send(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t account,
                     const struct nats_message *message, const struct nats_chosen *chosen);
/* Whether it may receive a message, for ROUTE_DENIED_SOME. */
bool nats_route_may_have(struct nats_server *server, const struct nats_route *r, struct text subject);
void nats_route_say(struct acceptor *a, struct connection *c, const void *text, size_t bytes);
/* Closes the connection when its output has been sent, or is not taken in time, ... */
void nats_route_hang_up(struct acceptor *a, struct connection *c);
/* ... after saying -ERR 'text'. */
void nats_route_end(struct acceptor *a, struct connection *c, const char *text);

/* Sends RS+ or RS-, LS+ or LS-. */
void nats_route_say_interest(struct acceptor *a, struct nats_server *server, struct connection *c,
                             const struct nats_interest *interest);
/* Starts the clock of the write deadline, if there is output. */
void nats_route_watch(struct acceptor *a, struct connection *c);
/* Publishers begin to wait for the server, or still do. */
void nats_route_holds(struct acceptor *a, struct connection *c);
void nats_route_schedule(struct acceptor *a, struct connection *c);

#endif
