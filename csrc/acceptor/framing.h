/* A connection that is a websocket. */
#ifndef MQ_FRAMING_H
#define MQ_FRAMING_H

#include "acceptor/acceptor_state.h"

/* Turns a websocket's input into the codec's, in place. Returns its length. */
size_t framing_received(struct acceptor *a, struct connection *c, uint8_t *data, size_t bytes);
/* Puts output into frames, as far as it can leave soon. */
void framing_pass(struct acceptor *a, struct connection *c);
/* Sets the payload of the closing frame, which is sent behind all other output. It takes the place of one that has not
 * left: what a codec says of earlier input counts for more than what came behind that input. */
void framing_close(struct acceptor *a, struct connection *c, const uint8_t *payload, size_t bytes);
/* Ends the connection without a closing frame, unless that has left. */
void framing_close_silently(struct connection *c);

#endif
