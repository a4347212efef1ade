/* The bridge: messages published to some topics are also passed to a protocol without queues, for the clients that
 * listen there at that moment. The codec chooses the topics (wants_topic), and gets each message when the worker has it
 * (topic_published). Until then a copy waits in the request's slot, or with the codec. For other topics nothing is
 * copied or looked up.
 *
 * A request may have very many messages: these, and all that the worker answers after them, are passed on in pieces,
 * one a turn. Until all are, no more publishes to such topics are accepted. A batch (acceptor/packed.h) is passed on as
 * several messages; a compressed one waits for Python, and so do the messages behind it.
 */
#ifndef MQ_BRIDGE_H
#define MQ_BRIDGE_H

#include "acceptor/acceptor_state.h"

/* Live subscribers have been told of all earlier messages; else the connection stalls until they have. */
bool bridge_may_publish(struct acceptor *a, struct connection *c);

/* Keeps a copy of a publish that is sent to a worker, if some protocol wants to hear of it. */
void bridge_asked(struct acceptor *a, struct connection *c, struct slot *slot, const struct message *request,
                  const void *body);
/* The worker has answered: passes the message on if it was published. */
void bridge_answered(struct acceptor *a, struct connection *c, struct slot *slot, uint8_t status);

/* The same for a request without a slot, to a bridged topic: copies the message, which is given in two pieces. NULL
 * when memory is short; then live subscribers miss the message. The caller answers or drops the copy. */
struct bridge_copy *bridge_copy(struct acceptor *a, const struct message *request, const void *head, size_t head_bytes,
                                const void *body, size_t body_bytes);
void bridge_answer(struct acceptor *a, struct bridge_copy *copy, uint8_t status);
void bridge_drop(struct blocks *blocks, struct bridge_copy *copy);

/* Once a turn: passes on the next piece of what is left. */
void bridge_run(struct acceptor *a);
/* Whether something is left that can be passed on now. */
bool bridge_is_due(const struct acceptor *a);
/* Python has decompressed the message with this id, if that still waits. At NULL: passes the message on as it is. */
void bridge_opened(struct acceptor *a, uint64_t id, struct codec_bytes opened);
void bridge_close(struct acceptor *a);

#endif
