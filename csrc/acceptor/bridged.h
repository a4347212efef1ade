/* Which topics are bridged: those about which the codec of another protocol wants to be told (bridge.h). */
#ifndef MQ_BRIDGED_H
#define MQ_BRIDGED_H

#include "acceptor/acceptor_state.h"

/* Whether a codec wants to hear of what is published to a topic of that name. */
bool bridge_wants(struct acceptor *a, uint32_t protocol, const void *name, size_t bytes);
/* A name has just been bound: notes whether a protocol wants to hear of its messages. */
void bridge_bound(struct acceptor *a, struct binding *binding);
/* The set of topics that a protocol wants to hear of has changed. */
void bridge_look(struct acceptor *a);

#endif
