/* Tells other acceptors. */
#ifndef MQ_NATS_MESH_SEND_H
#define MQ_NATS_MESH_SEND_H

#include "acceptor/protocols/nats/nats_chosen.h"
#include "acceptor/protocols/nats/nats_mesh_message.h"
#include "acceptor/protocols/nats/nats_message.h"

void nats_mesh_send_interest(struct acceptor *a, struct nats_server *server, uint32_t other,
                             const struct nats_mesh_interest *i, const void *subject, const void *queue);
void nats_mesh_send_account(struct acceptor *a, const struct nats_server *server, uint32_t other, uint32_t number);
void nats_mesh_send_number(struct acceptor *a, const struct nats_server *server, uint32_t other,
                           enum nats_mesh_kind kind, uint64_t number);
/* Tells interest to all other acceptors. */
void nats_mesh_tell(struct acceptor *a, struct nats_server *server, const struct nats_mesh_interest *i,
                    struct text subject, struct text queue);

/* Sends a message to another acceptor, for its plain subscribers and for groups; a message for a route goes to the
 * acceptor that has it. `flags` are PASSED_*. */
void nats_pass_to(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t other, uint32_t flags,
                  const struct nats_message *m, const struct nats_chosen *chosen);
/* Tells another acceptor what has become here of a message that it traces. */
void nats_tell_traced(struct acceptor *a, const struct nats_server *server, uint32_t other, uint64_t number,
                      struct text head, struct text events);
/* Tells other acceptors that a route has ended, or that it is full or no longer. */
void nats_tell_lost(struct acceptor *a, struct nats_server *server, uint32_t route);
void nats_tell_full(struct acceptor *a, struct nats_server *server, uint32_t route, bool full);
/* Tells others that our number of an account is free. */
void nats_mesh_unname(struct acceptor *a, struct nats_server *server, uint32_t number);

#endif
