/* Heartbeats of connections. */
#ifndef MQ_NSQ_HEARTBEAT_H
#define MQ_NSQ_HEARTBEAT_H

#include "acceptor/protocols/nsq/nsq_state.h"

/* Sends a heartbeat every interval_ns from now on; 0: never. */
void nsq_set_heartbeat(struct acceptor *a, struct connection *c, uint64_t interval_ns);
void nsq_due(struct acceptor *a, struct connection *c);

#endif
