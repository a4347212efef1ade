/* A subscription of a connection. */
#ifndef MQ_NATS_SUBSCRIPTION_STATE_H
#define MQ_NATS_SUBSCRIPTION_STATE_H

#include "acceptor/protocols/nats/nats_state.h"

struct nats_subscription {
    struct subject_entry entry;         /* must be first: a match yields this */
    struct connection *connection;      /* NULL: the server's own, for answers */
    struct nats_subscription *next_sid; /* in its bucket */
    uint64_t given;                     /* messages; with a limit it is in the high half, and this in the low one */
    uint16_t sid_bytes;
    char sid[]; /* there may be millions, so no padding before it */
};

_Static_assert(NATS_MAX_CONTROL_LINE <= UINT16_MAX + 1, "a sid is shorter than the line of its SUB");

/* A limit has nine digits at most, and not more is given, so both have room. */
enum { NATS_LIMIT_SHIFT = 32 };
#define NATS_HAS_LIMIT ((uint64_t)1 << 63)

static inline bool nats_has_limit(const struct nats_subscription *s) {
    return (s->given & NATS_HAS_LIMIT) != 0;
}

static inline uint64_t nats_delivered(const struct nats_subscription *s) {
    return nats_has_limit(s) ? (uint32_t)s->given : s->given;
}

/* How many messages it may have in all; 0: any number. */
static inline uint32_t nats_limit(const struct nats_subscription *s) {
    return nats_has_limit(s) ? (uint32_t)((s->given & ~NATS_HAS_LIMIT) >> NATS_LIMIT_SHIFT) : 0;
}

static inline bool nats_has_had_all(const struct nats_subscription *s) {
    return nats_has_limit(s) && (uint32_t)s->given >= nats_limit(s);
}

/* `limit` is more than what was delivered. */
static inline void nats_set_limit(struct nats_subscription *s, uint32_t limit) {
    s->given = NATS_HAS_LIMIT | (uint64_t)limit << NATS_LIMIT_SHIFT | nats_delivered(s);
}

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
