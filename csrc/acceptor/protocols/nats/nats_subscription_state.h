/* A subscription of a connection. */
#ifndef MQ_NATS_SUBSCRIPTION_STATE_H
#define MQ_NATS_SUBSCRIPTION_STATE_H

#include "acceptor/protocols/nats/nats_state.h"

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

#endif
