/* Why a websocket ends. */
#ifndef MQ_NATS_WEBSOCKET_H
#define MQ_NATS_WEBSOCKET_H

#include "acceptor/protocols/nats/nats_state.h"

/* Tells a websocket's client, behind all other output, why its connection ends. */
void nats_say_closing(struct acceptor *a, struct connection *c);

#endif
