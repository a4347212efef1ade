/* What services of other accounts are told of who asks. */
#ifndef MQ_NATS_ASKER_H
#define MQ_NATS_ASKER_H

#include "acceptor/protocols/nats/nats_shares_state.h"

struct nats_requestor nats_requestor_of(const struct nats_server *server, const struct connection *c);

/* Describes the publisher of a request as JSON, in full if `shared`, and returns the end. It is known, and has room of
 * nats_asker_bytes(). */
uint8_t *nats_put_asker(const struct nats_server *server, const struct nats_asker *asker, bool shared, uint8_t *out);
size_t nats_asker_bytes(const struct nats_server *server, const struct nats_asker *asker);

#endif
