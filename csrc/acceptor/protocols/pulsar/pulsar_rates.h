/* How fast producers may publish, and consumers be sent messages. */
#ifndef MQ_PULSAR_RATES_H
#define MQ_PULSAR_RATES_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

/* False: it must wait, and the connection is stalled. */
bool pulsar_may_publish(struct acceptor *a, struct connection *c, const struct pulsar_producer *producer);
void pulsar_take_published(struct acceptor *a, const struct pulsar_producer *producer, uint64_t messages,
                           uint64_t bytes);
/* Gives a producer other rates; false when memory is short, with nothing changed. */
bool pulsar_limit_producer(struct acceptor *a, struct connection *c, struct pulsar_producer *producer,
                           const struct pulsar_rate *rates);
/* Gives the worker as many permits of a consumer with rates as may be used now. */
void pulsar_lend(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer);
void pulsar_take_delivered(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer,
                           uint64_t messages, uint64_t bytes);
bool pulsar_limit_consumer(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer,
                           const struct pulsar_rate *rates);
/* Resumes the connection's producers and consumers that have waited long enough for their rates. */
void pulsar_rates_due(struct acceptor *a, struct connection *c);

#endif
