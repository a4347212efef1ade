/* PUB and HPUB: between the parser of lines (nats.c) and delivery (nats_deliver.c). */
#ifndef MQ_NATS_PUBLISH_H
#define MQ_NATS_PUBLISH_H

#include "acceptor/protocols/nats/nats_message.h"

#define NATS_UNKNOWN_OPERATION "Unknown Protocol Operation"

enum { NATS_MAX_ARGUMENTS = 4 };

struct nats_arguments {
    struct text items[NATS_MAX_ARGUMENTS];
    size_t count; /* may exceed NATS_MAX_ARGUMENTS: then `items` has only the first ones */
};

/* Handles a PUB or HPUB, whose line has `line_bytes`; the payload follows as far as it has come. Returns how much was
 * used: all or nothing. */
size_t nats_take_publish(struct acceptor *a, struct connection *c, const struct nats_arguments *k, bool headers,
                         const uint8_t *data, size_t line_bytes, size_t bytes);
/* Tells the sender of a request that there was nobody to answer, if it subscribes to the reply subject. */
void nats_say_no_responders(struct acceptor *a, struct connection *c, const struct nats_message *m);

#endif
