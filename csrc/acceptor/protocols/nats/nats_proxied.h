/* PROXY headers. */
#ifndef MQ_NATS_PROXIED_H
#define MQ_NATS_PROXIED_H

#include "acceptor/protocols/nats/nats_state.h"

/* Looks for a PROXY header at the beginning of the input. A header goes to Python, which is also told if there is none.
 * Returns how many bytes were used. */
size_t nats_take_proxied(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);
/* The header has not come in time. */
void nats_proxied_in_vain(struct acceptor *a, struct connection *c);

#endif
