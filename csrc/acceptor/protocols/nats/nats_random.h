/* Random numbers. */
#ifndef MQ_NATS_RANDOM_H
#define MQ_NATS_RANDOM_H

#include "acceptor/protocols/nats/nats_state.h"

uint64_t nats_random(struct nats_server *server);

#endif
