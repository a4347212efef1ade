/* Accounts by their names, and their members. */
#ifndef MQ_NATS_ACCOUNT_H
#define MQ_NATS_ACCOUNT_H

#include "acceptor/protocols/nats/nats.h"

/* Whether an account has dedicated routes. While it is moving to them, interest that servers tell on pooled routes is
 * obsolete. */
enum nats_account_routes { NATS_POOLED, NATS_MOVING, NATS_DEDICATED };

/* An account and its subjects, on this acceptor. Accounts do not see each other's messages. An account's number is this
 * acceptor's own; others are told its name. */
struct nats_account {
    struct nats_shares *shares; /* its mappings and imports; NULL: none */
    struct nats_subscription
        *answers; /* receives the account's answers to requests from other accounts; NULL: there are none */
    struct subjects *subjects; /* what our clients want */
    struct subjects *remote;   /* what others want (struct nats_remote); NULL while they want nothing */
    char *name;                /* the same at all servers of the cluster */
    uint32_t name_bytes;
    uint32_t name_hash; /* decides which connection of a pool of routes carries the account */
    enum nats_account_routes routes;
    uint32_t place;   /* where its members are counted on the board; see members.h */
    uint32_t members; /* connections here that count as members */
    /* Since the acceptor began: `taken` from publishers, `given` to clients. */
    uint64_t taken_messages, taken_bytes, given_messages, given_bytes, slow_consumers;
    uint64_t inserts, removes; /* subscriptions made and removed */
    uint8_t *trace_dest;       /* where messages with traceparent are traced to; NULL: nowhere */
    uint32_t trace_dest_bytes;
    uint32_t trace_percent; /* of them; 0: all */
};

static inline struct nats_account *nats_account_of(const struct acceptor *a, const struct connection *c) {
    return &nats_server_of(a, c)->accounts[nats_of(c)->account];
}

/* Returns the number of an account by its name, or 0. */
uint32_t nats_account_named(const struct nats_server *server, struct text name);
/* The same, made if need be; 0 when the limit is reached. */
uint32_t nats_open_account(struct nats_server *server, struct text name);
void nats_accounts_close(struct nats_server *server);
/* Counts a connection as a member of its account, unless all acceptors together have `most` members. */
bool nats_join(struct acceptor *a, struct connection *c, uint64_t most);
void nats_leave(struct acceptor *a, struct connection *c);

#endif
