/* What connections hold of workers. */
#ifndef MQ_SLOTS_H
#define MQ_SLOTS_H

#include "acceptor/acceptor_state.h"

/* The client has gone: cancels its waiting reserves. */
void peer_cancel_reserves(struct acceptor *a, struct connection *c);
/* Takes a connection's requests out of a->expected. */
void slots_forget(struct acceptor *a, struct connection *c);
/* The request in a slot has been answered, or nobody waits for the answer: its large body no longer counts. */
void slot_settle_large(struct acceptor *a, struct connection *c, uint32_t worker, uint32_t slot);
/* A request of Python's that waits for its worker holds a reference to its topic. */
void slot_forget_unsent(struct acceptor *a, struct connection *c, struct slot *slot);

#endif
