/* Consecutive PUBLISHes, sent as one message. */
#ifndef MQ_PUBLISHES_H
#define MQ_PUBLISHES_H

#include "acceptor/acceptor_state.h"

/* Sends a PUBLISH whose head is complete, joined with those before it if possible. False: it must travel by itself. */
bool publishes_send(struct acceptor *a, uint32_t worker, const struct message *request, const void *body);

#endif
