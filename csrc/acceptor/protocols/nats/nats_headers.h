/* Headers of messages that come from other protocols. */
#ifndef MQ_NATS_HEADERS_H
#define MQ_NATS_HEADERS_H

#include "acceptor/protocols/nats/nats_message.h"

/* Returns scratch room, valid until the next call; NULL: memory is short. */
uint8_t *nats_kept_room(struct nats_server *server, size_t bytes);
/* Sets headers and payload of a message from another protocol, perhaps in that room. */
void nats_put_body(struct nats_server *server, const struct published *message, struct nats_message *m);

#endif
