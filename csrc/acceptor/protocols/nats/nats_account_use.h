/* Who uses an account. */
#ifndef MQ_NATS_ACCOUNT_USE_H
#define MQ_NATS_ACCOUNT_USE_H

#include "acceptor/protocols/nats/nats_state.h"

/* Keeps an account until it is dropped as often. */
void nats_account_hold(struct nats_server *server, uint32_t number);
void nats_account_drop(struct acceptor *a, struct nats_server *server, uint32_t number);
/* Python may use an account's number, or does so no longer. */
void nats_account_keep(struct acceptor *a, struct nats_server *server, uint32_t number, bool kept);
/* Something that keeps an account may be gone. */
void nats_account_look(struct acceptor *a, struct nats_server *server, uint32_t number);

#endif
