/* What is published to some topics is also told to a protocol that is not one of queues: to whoever listens there at this
 * moment. The codec says which topics (wants_topic), and hears of each message when the worker has it (topic_published).
 * Until then a copy waits in the request's slot, or with the codec; of other topics nothing is copied, and nothing is looked up.
 *
 * A request may bring very many messages: they are told in pieces, one a turn, and so is what the worker has after them.
 * Until all are told nobody publishes more to such topics. One that is several messages (acceptor/packed.h) is told as those; what
 * is compressed waits for Python, and what comes behind it too.
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

/* The same for a request without a slot, to a topic that is bridged: a copy, of what stands in two pieces. NULL when memory is
 * short: who listens misses it then. It is answered or dropped. */
struct bridge_copy *bridge_copy(struct acceptor *a, const struct message *request, const void *head, size_t head_bytes,
                                const void *body, size_t body_bytes);
void bridge_answer(struct acceptor *a, struct bridge_copy *copy, uint8_t status);
void bridge_drop(struct blocks *blocks, struct bridge_copy *copy);

/* Once a turn: tells what is left. */
void bridge_run(struct acceptor *a);
/* Something is left that can be told now. */
bool bridge_is_due(const struct acceptor *a);
/* What Python made of the message with this id, if that is the one that waits for it; no bytes: it is told as it is. */
void bridge_opened(struct acceptor *a, uint64_t id, struct codec_bytes opened);
void bridge_close(struct acceptor *a);

#endif
