/* Large commands for Python: one a turn. */
#ifndef MQ_PULSAR_LARGE_H
#define MQ_PULSAR_LARGE_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

/* A command of so many bytes may go to Python in this turn; else the connection stalls until a later one. */
bool pulsar_may_hand_over(struct acceptor *a, struct connection *c, size_t bytes);
/* In a later turn: lets those that wait go on. */
void pulsar_large_go_on(struct acceptor *a, struct pulsar_options *options);

#endif
