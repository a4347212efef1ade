/* What a leaf node may want and send. */
#ifndef MQ_NATS_LEAF_PERMISSIONS_H
#define MQ_NATS_LEAF_PERMISSIONS_H

#include "acceptor/protocols/nats/nats_state.h"

/* Whether a leaf node may subscribe to a subject; if not, sends it an error or closes it. */
bool nats_leaf_may_want(struct acceptor *a, struct connection *c, struct text subject);
/* Whether it may send a message. If not, a leaf node is closed; a hub's message is only dropped. */
bool nats_leaf_may_send(struct acceptor *a, struct connection *c, struct text subject);

#endif
