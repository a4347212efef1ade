/* What is published to some topics is also told to a protocol that is not one of queues: to whoever listens there at
 * this moment. The codec says which topics (wants_topic), and hears of each message when the worker has it
 * (topic_published). Until then a copy waits in the request's slot, or with the codec; of other topics nothing is
 * copied, and nothing is looked up.
 *
 * A request may bring very many messages: they are told in pieces, one a turn, and so is what the worker has after
 * them. Until all are told nobody publishes more to such topics. One that is several messages (acceptor/packed.h) is
 * told as those; what is compressed waits for Python, and what comes behind it too.
 */
#ifndef MQ_BRIDGE_H
#define MQ_BRIDGE_H

#include "acceptor/engine.h"

/* A name has just been bound: notes whether a protocol wants to hear of its messages. */
void bridge_bound(struct acceptor *a, struct binding *binding);
/* The set of topics that a protocol wants to hear of has changed. */
void bridge_look(struct acceptor *a);

/* Keeps a copy of a publish that is sent to a worker, if some protocol wants to hear of it. */
void bridge_asked(struct acceptor *a, struct connection *c, struct slot *slot, const struct message *request,
                  const void *body);
/* The worker has answered: tells of the message if it was published. */
void bridge_answered(struct acceptor *a, struct connection *c, struct slot *slot, uint8_t status);

/* The same for a request without a slot, to a bridged topic: copies the message, which comes in two pieces. NULL when
 * memory is short; then live subscribers miss the message. The caller answers or drops the copy. */
struct bridge_copy *bridge_copy(struct acceptor *a, const struct message *request, const void *head, size_t head_bytes,
                                const void *body, size_t body_bytes);
void bridge_answer(struct acceptor *a, struct bridge_copy *copy, uint8_t status);
void bridge_drop(struct blocks *blocks, struct bridge_copy *copy);

/* Once a turn: tells the next piece of what is left. */
void bridge_run(struct acceptor *a);
/* Whether something is left that can be told now. */
bool bridge_is_due(const struct acceptor *a);
/* Python has decompressed the message with this id, if that is the one that waits for it. Empty: it is told as it is.
 * */
void bridge_opened(struct acceptor *a, uint64_t id, struct codec_bytes opened);
void bridge_close(struct acceptor *a);

#endif
