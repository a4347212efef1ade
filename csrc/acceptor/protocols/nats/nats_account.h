/* Accounts by their names. */
#ifndef MQ_NATS_ACCOUNT_H
#define MQ_NATS_ACCOUNT_H

#include "acceptor/protocols/nats/nats_state.h"

/* Returns the number of an account by its name, or 0. */
uint32_t nats_account_named(const struct nats_server *server, struct text name);
/* The same, made if need be; 0 when the limit is reached. One that is made goes at the end of the turn, unless it is
 * used then. */
uint32_t nats_open_account(struct acceptor *a, struct nats_server *server, struct text name);
/* Forgets an account that nobody uses: its number is free. */
void nats_account_free(struct acceptor *a, struct nats_server *server, uint32_t number);
uint32_t nats_account_count(const struct nats_server *server);
void nats_accounts_close(struct nats_server *server);
/* Counts a connection as a member of its account, unless all acceptors together have `most` members. */
bool nats_join(struct acceptor *a, struct connection *c, uint64_t most);
void nats_leave(struct acceptor *a, struct connection *c);

#endif
