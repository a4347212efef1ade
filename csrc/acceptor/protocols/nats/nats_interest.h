/* What others want, and are told that clients here want. */
#ifndef MQ_NATS_INTEREST_H
#define MQ_NATS_INTEREST_H

#include "acceptor/protocols/nats/nats_state.h"

/* Tells the others that `weight` clients here want a subject; 0: none any more. */
void nats_tell(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject, struct text queue,
               uint32_t weight);
/* Notes that `weight` subscribers of `other`, of cluster `origin`, want a subject, and tells the others of it. */
void nats_hear_interest(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t origin,
                        uint32_t account, struct text subject, struct text queue, uint32_t weight);
/* Forgets interest without telling anybody. */
void nats_forget_remote(struct nats_server *server, struct nats_remote *wanted);
/* The same, and its memory counts towards the next time that the heap is trimmed. */
void nats_drop_remote(struct acceptor *a, struct nats_server *server, struct nats_remote *wanted);

/* Forgets the interest in an account that came over this connection: the server tells it again over another. */
void nats_route_forget(struct acceptor *a, struct nats_server *server, const struct connection *c, uint32_t account);
/* Forgets interest of a server that its permissions no longer allow. */
void nats_route_forget_forbidden(struct acceptor *a, struct nats_server *server, const struct connection *c);

#endif
