/* What is published to some topics is also told to a protocol that is not one of queues: to whoever listens there at this
 * moment. The codec says which topics (wants_topic), and hears of each message when the worker has it (topic_published).
 * Until then a copy waits in the request's slot; of other topics nothing is copied, and nothing is looked up.
 */
#ifndef MQ_BRIDGE_H
#define MQ_BRIDGE_H

#include "acceptor/engine.h"

/* Of a name that has just been bound: whether a protocol wants to hear of it. */
void bridge_bound(struct acceptor *a, struct binding *binding);
/* Which topics a protocol wants to hear of has changed. */
void bridge_look(struct acceptor *a);
/* Keeps a copy of what is asked of a worker, if it is to be told. */
void bridge_asked(struct acceptor *a, struct connection *c, struct slot *slot, const struct message *request,
                  const void *body);
/* The worker has answered: if it is there, it is told. */
void bridge_answered(struct acceptor *a, struct connection *c, struct slot *slot, uint8_t status);

#endif
