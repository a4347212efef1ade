/* An account: its clients, and what is subscribed to in it. */
#ifndef MQ_NATS_ACCOUNT_STATE_H
#define MQ_NATS_ACCOUNT_STATE_H

#include "acceptor/members.h"
#include "acceptor/protocols/nats/nats_subscription_state.h"

struct nats_shadows;
struct nats_shares;
struct subjects;

/* Whether an account has dedicated routes. While it is moving to them, interest that servers tell on pooled routes is
 * obsolete. */
enum nats_account_routes { NATS_POOLED, NATS_MOVING, NATS_DEDICATED };

/* An account and its subjects, on this acceptor. Accounts do not see each other's messages. An account's number is this
 * acceptor's own; others are told its name. */
struct nats_account {
    struct nats_shares *shares;   /* its mappings and imports; NULL: none */
    struct subjects *importing;   /* the streams that it imports, by their subjects in it; NULL: none */
    struct nats_shadows *shadows; /* what accounts that import its streams want of it; NULL: nothing */
    /* Receives the account's answers to requests from other accounts; NULL: there are none. */
    struct nats_subscription *answers;
    struct subjects *subjects; /* what our clients want */
    struct subjects *remote;   /* what others want (struct nats_remote); NULL while they want nothing */
    char *name;                /* the same at all servers of the cluster */
    uint32_t name_bytes;
    uint32_t name_hash; /* decides which connection of a pool of routes carries the account */
    enum nats_account_routes routes;
    struct membership membership; /* the connections that count as members */
    /* Since the acceptor began: `taken` from publishers, `given` to clients. */
    uint64_t taken_messages, taken_bytes, given_messages, given_bytes, slow_consumers;
    uint64_t inserts, removes; /* subscriptions made and removed */
    uint8_t *trace_dest;       /* where messages with traceparent are traced to; NULL: nowhere */
    uint32_t trace_dest_bytes;
    uint32_t trace_percent; /* of them; 0: all */
    uint32_t expected;      /* how many answers are waited for here */
    /* What keeps it; see nats_account_life.c. */
    uint32_t holders; /* connections, imports and messages under way that are in it or lead to it */
    uint32_t namers;  /* other acceptors that have told us their number of it */
    uint32_t life;    /* how many accounts have had its number before */
    uint32_t next;    /* among those that may be unused, or the free numbers */
    bool kept;        /* Python may use its number */
    bool named;       /* other acceptors have been told its number */
    bool listed;      /* among those that may be unused */
};

static inline struct nats_account *nats_account_of(const struct acceptor *a, const struct connection *c) {
    return &nats_server_of(a, c)->accounts[nats_of(c)->account];
}

/* A reference that does not keep the account. */
static inline struct nats_account_ref nats_account_refer(const struct nats_server *server, uint32_t number) {
    return (struct nats_account_ref){number, server->accounts[number].life};
}

/* The account's number; 0: it is gone. */
static inline uint32_t nats_account_referred(const struct nats_server *server, struct nats_account_ref ref) {
    return server->accounts[ref.number].life == ref.life ? ref.number : 0;
}

#endif
