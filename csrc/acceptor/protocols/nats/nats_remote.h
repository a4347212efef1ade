/* Interest of others: of whom it is, and whether it still holds. */
#ifndef MQ_NATS_REMOTE_H
#define MQ_NATS_REMOTE_H

#include "acceptor/protocols/nats/nats_state.h"

_Static_assert(NATS_MAX_ACCOUNTS <= UINT16_MAX + 1 && NATS_OTHERS <= UINT16_MAX,
               "struct nats_remote has room for both");

/* Whether this is interest of another that has left, and is still to be removed. */
static inline bool nats_has_left(const struct nats_server *server, const struct nats_remote *r) {
    return r->epoch != server->others[r->other].epoch;
}

static inline uint32_t nats_kind_of(const struct nats_remote *r) {
    if (nats_is_hub(r->other)) return NATS_HUB_SERVERS;
    if (nats_is_leaf(r->other)) return NATS_LEAF_NODES;
    if (!nats_is_route(r->other)) return NATS_ACCEPTORS;
    return r->origin == 0 ? NATS_SERVERS : NATS_SERVERS_LEAVES;
}

#endif
