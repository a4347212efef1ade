/* What clients and servers call themselves. */
#ifndef MQ_NATS_NAME_H
#define MQ_NATS_NAME_H

#include "acceptor/protocols/nats/nats_state.h"

/* Sets the name of a client or server. Without memory it has none. */
void nats_set_name(struct nats_name **name, const void *text, size_t bytes);

#endif
