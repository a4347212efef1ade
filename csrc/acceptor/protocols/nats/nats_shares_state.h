/* Shares of an account, who asks its services, and which answers are expected. */
#ifndef MQ_NATS_SHARES_STATE_H
#define MQ_NATS_SHARES_STATE_H

#include "acceptor/protocols/nats/nats_state.h"

struct nats_destination;
struct nats_latency;
struct subjects;

enum {
    NATS_MAX_IMPORTED = 64, /* most imports of a subject */
    NATS_MAX_CHAIN = 64,    /* most accounts that a message passes in a chain, counting its own */
    NATS_MAX_COPIES = 1024, /* most copies made of one message */
    NATS_ANSWERS = 1 << 16, /* most answers waited for at a time; old ones are dropped */
    NATS_ANSWER_REPLY_BYTES = 222,
    NATS_ANSWER_BYTES = 80 /* longest subject for answers */
};

/* What is known of a client, leaf node or hub that makes requests. */
struct nats_requestor {
    struct text info; /* from Python; empty: only the account is told */
    uint32_t account;
    uint64_t rtt_ns; /* 0: unknown */
};

/* The publisher of a request, for services that are told: `connection` NULL: unknown. `service`: 0, or the account
 * whose service passes the request on. */
struct nats_asker {
    const struct connection *connection;
    uint32_t service;
};

struct nats_share {
    struct subject_entry entry; /* first */
    struct nats_share *next;
    struct nats_destination *destinations; /* an import has one */
    uint32_t account;                      /* the account that imports it, or has the service */
    uint32_t order;
    uint8_t kind; /* 'm', 't', 'v' */
    bool single, shared, traced;
    uint64_t lifetime_ns;
    struct nats_latency *latency; /* NULL: the service is not measured */
};

struct nats_shares {
    struct nats_shares *next;            /* of those that no account has any more */
    struct subjects *mappings, *imports; /* the list of shares, or NULL */
    struct nats_share *first, *last;
    uint32_t count;
};

/* The account's subjects with imports (streams that others import, services that it imports), and its mapped subjects.
 * NULL: none, as when `shares` is NULL. */
static inline struct subjects *nats_shares_imports(const struct nats_shares *shares) {
    return shares != NULL ? shares->imports : NULL;
}

static inline struct subjects *nats_shares_mappings(const struct nats_shares *shares) {
    return shares != NULL ? shares->mappings : NULL;
}

/* Whether requests for that subject, as it is written, are asked of another account. */
static inline bool nats_shares_have_service(const struct nats_shares *shares, struct text subject) {
    if (nats_shares_imports(shares) == NULL) return false;
    struct subject_entries *entries = subjects_entries(shares->imports, subject, (struct text){0});
    for (uint32_t i = 0; entries != NULL && i < entries->count; i++)
        if (((const struct nats_share *)(const void *)subject_entries_items(entries)[i])->kind == 'v') return true;
    return false;
}

enum nats_imports { NATS_IMPORTS_ALL, NATS_IMPORTS_STREAMS, NATS_IMPORTS_SERVICES };

/* What answers are expected, ... */
struct nats_expected {
    uint32_t account; /* where they go on to `reply` */
    struct text reply;
    bool single;
    uint64_t lifetime_ns;
    uint32_t measured; /* the request's measurement; 0: none */
    /* ... and where they are awaited, which nats_answer_expect() sets. */
    uint32_t slot;
    uint64_t token;
};

/* An answer that has come. */
struct nats_answered {
    uint32_t account;  /* where it is awaited */
    uint32_t measured; /* the request's measurement; 0: none */
    uint64_t token;
};

#endif
