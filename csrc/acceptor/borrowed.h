/* Output that refers to messages in rings. */
#ifndef MQ_BORROWED_H
#define MQ_BORROWED_H

#include "acceptor/acceptor_state.h"

/* Writes bytes to the output; if they are BORROWED_BYTES or more of the message being handled, without a copy. False:
 * memory is short, the connection is closed. */
bool socket_say(struct acceptor *a, struct connection *c, const void *bytes, size_t count);
/* Copies what the turn's output still borrows, and gives the rings back. */
void borrowed_give_back(struct acceptor *a);

#endif
