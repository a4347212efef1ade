/* The figures that Python is told for monitoring: see nats_ask. */
#ifndef MQ_NATS_FIGURES_H
#define MQ_NATS_FIGURES_H

#include <stdint.h>

#include "acceptor/protocols/nats/nats_state.h"

/* See struct codec. */
int64_t nats_ask(struct acceptor *a, void *state, const char *what, const struct codec_question *question);
size_t nats_last_words(struct acceptor *a, struct connection *c, const uint8_t **words);
/* The same for a leaf node or a hub; or, behind the figures, what was wrong with its compressed input. */
size_t nats_leaf_last_words(struct acceptor *a, struct connection *c, const uint8_t **words);

/* Reasons for the end of a leaf node or hub that nats-server has no numbers for: a loop, damaged compressed input. */
enum { NATS_LOOPED = 254, NATS_DAMAGED = 255 };

/* Figures of one connection. */
struct nats_figures {
    uint32_t conn, account;
    uint32_t subscriptions, reason;
    uint64_t in_messages, in_bytes, out_messages, out_bytes;
    uint64_t pending_bytes, rtt_ns, idle_ns, opened_ns, client_id;
};

/* Figures of one account, since the acceptor began; subscriptions and members: how many there are now. */
struct nats_account_figures {
    uint64_t number;
    uint64_t taken_messages, taken_bytes, given_messages, given_bytes, slow_consumers;
    uint64_t subscriptions, inserts, removes, looked, hits, members, name_bytes;
}; /* followed by the name */

/* Figures of the caches of matches of some accounts. The next answer starts at `account` and `place`; 0: no more. */
struct nats_kept_figures {
    uint64_t account, place, subjects, fanout, max_fanout;
};

/* Figures of one subscription, followed by subject, queue and sid. */
struct nats_subscription_figures {
    uint64_t delivered, max;
    uint32_t subject_bytes, queue_bytes, sid_bytes;
    uint32_t place; /* its place among the connection's subscriptions */
};

struct nats_figures nats_route_figures(const struct acceptor *a, const struct connection *c);

#endif
