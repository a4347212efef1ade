/* Results of measurements that wait to be published. */
#ifndef MQ_NATS_RESULTS_H
#define MQ_NATS_RESULTS_H

#include "acceptor/protocols/nats/nats_state.h"

/* Publishes results that wait. */
void nats_latency_publish(struct acceptor *a, struct nats_server *server);

#endif
