/* Keep-alive. */
#ifndef MQ_PULSAR_CLOCK_H
#define MQ_PULSAR_CLOCK_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

void pulsar_opened(struct acceptor *a, struct connection *c);
void pulsar_due(struct acceptor *a, struct connection *c);

#endif
