/* A connection's subscriptions, by their names (sids). */
#ifndef MQ_NATS_SUBSCRIPTION_H
#define MQ_NATS_SUBSCRIPTION_H

#include "acceptor/protocols/nats/nats_subscription_state.h"

enum nats_subscribed nats_subscribe(struct acceptor *a, struct connection *c, struct text subject, struct text queue,
                                    struct text sid);
struct nats_subscription *nats_find(const struct acceptor *a, const struct connection *c, struct text sid);
void nats_unsubscribe(struct acceptor *a, struct nats_subscription *subscription);
/* The next subscription, from bucket *place on (begin with 0), that the connection may no longer have; NULL: no more.
 * *place stays at its bucket, where there may be others. */
struct nats_subscription *nats_next_forbidden(struct acceptor *a, struct connection *c, uint32_t *place);
/* Tells others that a connection's members of groups are not to be chosen any more, since it is about to be closed.
 * What comes for them meanwhile they still get. From bucket *place on (begin with 0); true at the end. */
bool nats_retire_some(struct acceptor *a, const struct connection *c, uint32_t *place);
/* Removes all subscriptions of a connection. */
void nats_let_go(struct acceptor *a, struct connection *c);
/* The same for a closed connection, at most *left of them, which is reduced. True if those were all. */
bool nats_let_go_some(struct acceptor *a, struct connection *c, size_t *left);

#endif
