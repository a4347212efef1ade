/* A connection's subscriptions, by their names (sids). */
#ifndef MQ_NATS_SUBSCRIPTION_H
#define MQ_NATS_SUBSCRIPTION_H

#include "acceptor/protocols/nats/nats.h"

struct nats_subscription {
    struct subject_entry entry;         /* must be first: a match yields this */
    struct connection *connection;      /* NULL: the server's own, for answers */
    struct nats_subscription *next_sid; /* in its bucket */
    uint64_t delivered;
    uint32_t max; /* 0: any number */
    uint32_t sid_hash;
    uint16_t sid_bytes;
    char sid[]; /* there may be millions, so no padding before it */
};
_Static_assert(NATS_MAX_CONTROL_LINE <= UINT16_MAX + 1, "a sid is shorter than the line of its SUB");

enum nats_subscribed {
    NATS_SUBSCRIBED,
    NATS_NOT_ALLOWED,
    NATS_SID_IN_USE,
    NATS_INVALID_SUBJECT,
    NATS_TOO_MANY,
    NATS_TOO_MANY_TOKENS,
    NATS_NO_MEMORY
};

enum nats_subscribed nats_subscribe(struct acceptor *a, struct connection *c, struct text subject, struct text queue,
                                    struct text sid);
struct nats_subscription *nats_find(const struct acceptor *a, const struct connection *c, struct text sid);
void nats_unsubscribe(struct acceptor *a, struct nats_subscription *subscription);
/* The next subscription, from bucket *place on (begin with 0), that the connection may no longer have; NULL: no more.
 * *place stays at its bucket, where there may be others. */
struct nats_subscription *nats_next_forbidden(struct acceptor *a, struct connection *c, uint32_t *place);
/* Removes all subscriptions of a connection. */
void nats_let_go(struct acceptor *a, struct connection *c);
/* The same for a closed connection, at most *left of them, which is reduced. True if those were all. */
bool nats_let_go_some(struct acceptor *a, struct connection *c, size_t *left);

#endif
