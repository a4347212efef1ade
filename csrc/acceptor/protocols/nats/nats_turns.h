/* Which publishers may go on in this turn. */
#ifndef MQ_NATS_TURNS_H
#define MQ_NATS_TURNS_H

#include "acceptor/protocols/nats/nats_state.h"

/* Whether a client or server may publish in this turn; else its connection stalls until a later one. */
bool nats_wait_for_turn(struct acceptor *a, struct nats_server *server, struct connection *c);

static inline bool nats_may_hand_out(struct acceptor *a, struct nats_server *server, struct connection *c) {
    return (a->handed < HANDED_PER_TURN && server->fanouts.first == NULL) || nats_wait_for_turn(a, server, c);
}

/* At the beginning of a turn: lets publishers go on, those that have waited longest first. */
void nats_hand_on(struct acceptor *a, struct nats_server *server);

#endif
