/* A connection as the consumer of a channel. */
#ifndef MQ_NSQ_CONSUMER_H
#define MQ_NSQ_CONSUMER_H

#include "acceptor/protocols/nsq/nsq_state.h"

void nsq_pushed(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message);
void nsq_sent(struct acceptor *a, struct connection *c);
void nsq_tell(struct acceptor *a, struct connection *c, uint32_t worker);
void nsq_lost(struct acceptor *a, struct connection *c, uint32_t worker);
bool nsq_subscribing(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *request,
                     const void *body);
/* The connection is no longer a consumer: it does not subscribe again when its worker is back. */
void nsq_forget_subscription(struct acceptor *a, struct nsq *n);
void nsq_subscribed(struct acceptor *a, struct connection *c, uint8_t status);
void nsq_set_credit(struct acceptor *a, struct connection *c, uint64_t credit);

#endif
