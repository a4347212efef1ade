/* The fast path of many PUBs in a row. */
#ifndef MQ_NATS_RUN_H
#define MQ_NATS_RUN_H

#include "acceptor/protocols/nats/nats_state.h"

/* Handles plain whole PUBs at the front of the input. Returns how many bytes they took; 0: the first command is
 * something else. */
size_t nats_take_run(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);

#endif
