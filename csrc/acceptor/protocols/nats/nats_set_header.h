/* Headers of messages that are passed on with other headers than they came with. */
#ifndef MQ_NATS_SET_HEADER_H
#define MQ_NATS_SET_HEADER_H

#include "acceptor/protocols/nats/nats_message.h"

enum { NATS_FIRST_LINE_BYTES = 10 }; /* "NATS/1.0\r\n" */

/* Returns room for that many bytes; NULL when memory is short. The old contents may be lost. */
uint8_t *nats_room_for(struct nats_room *room, size_t bytes);
/* The message is done with: a large room is freed, since few messages need one. */
void nats_room_done(struct nats_room *room);

/* Writes the message's header lines, with the first line, but without lines of that name ("Name:"). Returns their end,
 * behind which further lines and an empty one have to be put. */
uint8_t *nats_put_headers(const struct nats_message *m, const char *name, uint8_t *out);
/* The message's headers have been written anew, from `payload` to `out`: writes its body and its sizes behind them, and
 * makes it the message. At most the body and 2 * DECIMAL_MAX_BYTES. */
uint8_t *nats_put_body_behind(struct nats_message *m, uint8_t *payload, uint8_t *out);
/* Sets a header ("Name:") of a message, instead of any of that name. False when memory is short. */
bool nats_set_header(struct nats_message *m, const char *name, struct text value, struct nats_room *room);

#endif
