/* What becomes of a reply; in the order of the requests. */
#ifndef MQ_REPLIES_H
#define MQ_REPLIES_H

#include "acceptor/acceptor_state.h"

/* Queues a reply that is made here, behind those due before it. may_reply() has allowed it. */
void reply_text(struct acceptor *a, struct connection *c, const void *text, size_t bytes);

/* Handles a worker's message, whose body needs no opening. */
void peer_said(struct acceptor *a, uint32_t worker, const struct message *message);
/* Handles the replies that a joined one stands for. Returns how many. */
uint32_t peer_said_joined(struct acceptor *a, uint32_t worker, const struct message *reply);
/* Writes the replies of answered slots at the head into the output, and removes the slots. */
void slots_emit(struct acceptor *a, struct connection *c);
/* Ends a stall whose reason is gone. */
void slots_changed(struct acceptor *a, struct connection *c);

#endif
