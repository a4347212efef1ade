/* Producers and consumers of connections that have closed. */
#ifndef MQ_PULSAR_LEAVING_H
#define MQ_PULSAR_LEAVING_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

/* Removes the producers and consumers of a connection that has closed, or begins to. */
void pulsar_leave(struct acceptor *a, struct connection *c);
/* Goes on with that in a later turn: the codec's go_on. */
void pulsar_leave_on(struct acceptor *a, void *state);
/* Frees the connections that are still leaving when the acceptor ends. */
void pulsar_leaving_free(struct pulsar_options *options, void (*freed)(struct connection *));

#endif
