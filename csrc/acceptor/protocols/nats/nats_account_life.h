/* When accounts go. */
#ifndef MQ_NATS_ACCOUNT_LIFE_H
#define MQ_NATS_ACCOUNT_LIFE_H

#include "acceptor/protocols/nats/nats_state.h"

/* Lets accounts go that nobody uses, a piece in each turn. */
void nats_accounts_go_on(struct acceptor *a, struct nats_server *server);

#endif
