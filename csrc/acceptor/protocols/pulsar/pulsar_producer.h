/* SENDs and their receipts. */
#ifndef MQ_PULSAR_PRODUCER_H
#define MQ_PULSAR_PRODUCER_H

#include "acceptor/protocols/pulsar/pulsar_state.h"

/* False: the SEND cannot be handled now, and the connection is stalled. */
bool pulsar_send(struct acceptor *a, struct connection *c, const struct pulsar_send *send, struct pulsar_bytes entry);
/* What the client sends for this producer from now on is not stored: it has sent its CLOSE_PRODUCER. */
void pulsar_producer_leaves(struct connection *c, struct pulsar_bytes close);
void pulsar_published(struct acceptor *a, struct connection *c, const struct pulsar_pending *pending,
                      const struct message *reply);
/* Removes and frees a producer; `free` alone leaves its topic bound, as at the end of the acceptor. */
void pulsar_producer_end(struct acceptor *a, struct connection *c, struct pulsar_producer *producer);
void pulsar_producer_free(struct pulsar *p, struct pulsar_producer *producer);
/* Handles ATTACHED: the producer no longer waits, or another has fenced it off. */
void pulsar_producer_attached(struct acceptor *a, struct connection *c, uint32_t worker, const struct message *message);
/* Closes a producer whose worker has died or that Python wants closed, and tells the client and Python. */
void pulsar_producer_lose(struct acceptor *a, struct connection *c, struct pulsar_producer *producer);
int64_t pulsar_call_producer(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *call);

#endif
