/* What is due: PINGs, and clients that do not take their output. */
#ifndef MQ_NATS_DUE_H
#define MQ_NATS_DUE_H

#include "acceptor/protocols/nats/nats_state.h"

/* Hands the first byte, if it has come, to Python, which waits for it. */
void nats_sniffed(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);
void nats_due(struct acceptor *a, struct connection *c);

#endif
