/* Which streams accounts import from each other. */
#ifndef MQ_NATS_STREAMS_H
#define MQ_NATS_STREAMS_H

#include "acceptor/protocols/nats/nats_state.h"

/* Makes an account's streams and shadows anew, after its shares were replaced, and tells servers what differs. */
void nats_streams_make(struct acceptor *a, struct nats_server *server, uint32_t account);

#endif
