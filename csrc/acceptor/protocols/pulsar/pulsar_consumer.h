/* Messages that a worker pushes to consumers, and their FLOW, ACK and REDELIVER. */
#ifndef MQ_PULSAR_CONSUMER_H
#define MQ_PULSAR_CONSUMER_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

bool pulsar_flow(struct acceptor *a, struct connection *c, const struct pulsar_flow *flow);
bool pulsar_ack(struct acceptor *a, struct connection *c, struct pulsar_ids *ids);
/* Whether it is of all up to an entry that was not delivered to the consumer: then it is Python's. */
bool pulsar_acks_ahead(struct connection *c, struct pulsar_ids ids);
bool pulsar_redeliver(struct acceptor *a, struct connection *c, struct pulsar_ids *ids);
void pulsar_acked(struct acceptor *a, struct connection *c, const struct pulsar_pending *pending);
void pulsar_pushed(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message);
void pulsar_sent(struct acceptor *a, struct connection *c);
void pulsar_consumer_end(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer);
void pulsar_consumer_free(struct pulsar *p, struct pulsar_consumer *consumer);
void pulsar_consumer_lose(struct acceptor *a, struct connection *c, struct pulsar_consumer *consumer);
int64_t pulsar_call_consumer(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call);

#endif
