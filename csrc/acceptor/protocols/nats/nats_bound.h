/* Subjects whose messages are logged in topics. */
#ifndef MQ_NATS_BOUND_H
#define MQ_NATS_BOUND_H

#include "acceptor/protocols/nats/nats_state.h"

/* Replaces the bindings. `lines`: the queue group of servers that share them, perhaps empty, then one pattern a line.
 * CALL_REFUSED, with nothing changed, if a pattern is invalid or memory is short. */
int64_t nats_bind_topics(struct acceptor *a, struct nats_server *server, const uint8_t *lines, size_t bytes);
void nats_unbind_topics(struct nats_server *server);
bool nats_is_bound(struct nats_server *server, struct text subject);
/* Whether a message published here is logged here, and there is a queue group, of which no other server may log it. */
bool nats_is_shared(struct nats_server *server, uint32_t account, struct text subject);
/* Whether a message that came over a route, for these groups, is to be logged here. */
bool nats_is_kept_routed(struct nats_server *server, uint32_t account, struct text subject, const struct text *groups,
                         size_t count);

#endif
