/* What others want, and are told that clients here want. */
#ifndef MQ_NATS_INTEREST_H
#define MQ_NATS_INTEREST_H

#include "acceptor/protocols/nats/nats.h"

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

/* Tells the others that `weight` clients here want a subject; 0: none any more. */
void nats_tell(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject, struct text queue,
               uint32_t weight);
/* Notes that `weight` subscribers of `other`, of cluster `origin`, want a subject, and tells the others of it. */
void nats_hear_interest(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t origin,
                        uint32_t account, struct text subject, struct text queue, uint32_t weight);
/* Forgets interest without telling anybody. */
void nats_forget_remote(struct nats_server *server, struct nats_remote *wanted);
/* The same, and its memory counts towards the next time that the heap is trimmed. */
void nats_drop_remote(struct acceptor *a, struct nats_server *server, struct nats_remote *wanted);
/* Whether there is anybody to tell what our clients want. */
static inline bool nats_has_others(const struct acceptor *a, const struct nats_server *server) {
    return a->mesh_there != 0 || server->route_count > 0;
}

#endif
