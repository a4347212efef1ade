/* Messages for others. */
#ifndef MQ_NATS_PASS_H
#define MQ_NATS_PASS_H

#include "acceptor/protocols/nats/nats_chosen.h"
#include "acceptor/protocols/nats/nats_message.h"

/* Sends a message to the others in `alone`, for their plain subscribers, and to those chosen for groups. */
void nats_pass_on(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_message *message,
                  uint32_t flags, const struct nats_alone *alone, const struct nats_chosen *chosen);

#endif
