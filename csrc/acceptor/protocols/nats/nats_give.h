/* Writes a message into the outputs of its recipients. The line in front of the payload is made once and copied; a
 * large payload is stored once for all recipients. */
#ifndef MQ_NATS_GIVE_H
#define MQ_NATS_GIVE_H

#include "acceptor/protocols/nats/nats_delivery.h"
#include "acceptor/protocols/nats/nats_subscription_state.h"

/* Prepares for giving d->message to somebody. A payload that is shared already stays so. */
void nats_begin(struct nats_delivery *d);

enum nats_refusal nats_refusal_of(struct nats_delivery *d, const struct nats_subscription *s);
/* Gives the message to one subscription, if it may have it; d->delivered tells. */
void nats_give(struct nats_delivery *d, struct nats_subscription *s);
/* Removes expired subscriptions and closed clients, which had to wait while lists were walked. */
void nats_settle(struct acceptor *a, struct nats_server *server);
/* The delivery is over. */
void nats_made(struct nats_delivery *d);

#endif
