/* Routes: connections to other servers of a cluster, ours or nats-server's. INFO, CONNECT, who is connected to whom, and
 * what is refused are Python's (acceptor/protocols/nats/routing.py).
 *
 *   nats_route.c            lines to commands
 *   nats_route_send.c       what goes to a server: interest and messages
 *   nats_route_interest.c   which interest that is
 *   nats_leaf.c             what is otherwise with leaf nodes
 *
 * One acceptor has all routes; to the others a route is one more who wants something, whose messages they give that
 * acceptor. What came over a route goes to clients, on whatever acceptor, and never to a route.
 *
 * A leaf node's connection (nats_leaf.c) is one of a single account: what came over it goes wherever a client's messages go, and
 * what comes over a route goes to leaf nodes too.
 *
 * A server is not cut off because much waits for it (who publishes for it waits then), only when nothing of that leaves
 * for nats.write-deadline, or so little while publishers wait that they would for ever. Its input is always taken: two
 * servers that are full go on.
 */
#ifndef MQ_NATS_ROUTE_H
#define MQ_NATS_ROUTE_H

#include "acceptor/protocols/nats/nats.h"

enum { NATS_ROUTING_ACCEPTOR = 0, NATS_LOOP_BYTES = 48 };

enum nats_route_flag {
    ROUTE_MUST_CONNECT = 1, /* nothing but CONNECT is taken */
    ROUTE_HEADERS = 2,      /* the server knows headers */
    ROUTE_NO_POOL = 4,      /* it has one connection, for all accounts */
    ROUTE_TELLS_PONG = 8,   /* Python wants to know when a PING is answered */
    ROUTE_NEGOTIATES = 16,  /* nothing is said of our own accord yet: it may be about to be compressed */
    ROUTE_LEAF = 32,        /* it is a leaf node's */
    ROUTE_DENIED_SOME = 64, /* of what that one wants: each message is looked at */
    ROUTE_HUB = 128,        /* it is a hub's, whose leaf node this server is; with ROUTE_LEAF */
    ROUTE_LOOPED = 256,     /* it was ended because there is a circle */
    ROUTE_SNIFF = 512,      /* Python wants to know a leaf node's first byte */
    ROUTE_ORIGINS = 1024,   /* the server tells clusters of leaf nodes apart in what is wanted: LS+ and LS- name them */
    ROUTE_LEAF_MESSAGES = 2048, /* ... and in messages: LMSG */
};

enum nats_route_counter {
    ROUTE_IN_MESSAGES,
    ROUTE_IN_BYTES,
    ROUTE_OUT_MESSAGES,
    ROUTE_OUT_BYTES,
    ROUTE_SLOW,
    ROUTE_COUNTERS
};

struct nats_route {
    uint32_t other;     /* its number among those who want something; 0: not yet */
    uint32_t flags;     /* enum nats_route_flag */
    uint32_t account;   /* it is for that one alone, which is not named on it; 0: for several */
    uint32_t pool_size; /* ours, and its place in it: that says for which */
    uint32_t pool_index;
    uint32_t last_account;                /* of the message that came last */
    uint32_t pings;                       /* unanswered */
    uint64_t ping_ns;                     /* when one is due */
    uint64_t asked_ns;                    /* when the last was sent */
    uint64_t rtt_ns;                      /* until it was answered; 0: not known */
    uint64_t active_ns;                   /* when a message or interest came last */
    uint64_t stalled_ns;                  /* since when nothing has left of what is to be sent; 0: nothing waits */
    uint64_t held_ns;                     /* since when publishers wait for it, looked at last; 0: they do not */
    uint64_t held_at;                     /* what its socket had taken then */
    struct nats_permissions *permissions; /* NULL: every subject may pass */
    struct nats_permissions *publishing;  /* what a leaf node may send: what else does not pass it is not told of */
    char loop[NATS_LOOP_BYTES];           /* what a leaf node is told for nothing but to hear it if there is a loop */
    uint32_t loop_bytes;
    struct nats_telling *telling; /* that is under way; NULL: it knows all */
    uint64_t counted[ROUTE_COUNTERS];
};

/* What an acceptor keeps of its routes is in struct nats_server. */
struct nats_routes {
    struct nats_server *server;
    /* 0: as clients' are. */
    uint64_t ping_interval_ns, write_deadline_ns;
    uint32_t ping_max;
};

static inline struct nats_route *route_of(const struct connection *c) {
    return connection_state(c);
}

static inline uint64_t route_write_deadline_ns(const struct acceptor *a, const struct connection *c) {
    const struct nats_routes *routes = codec_state(a, c->protocol);
    return routes->write_deadline_ns > 0 ? routes->write_deadline_ns : routes->server->write_deadline_ns;
}

static inline struct nats_server *route_server(const struct acceptor *a, const struct connection *c) {
    return ((struct nats_routes *)codec_state(a, c->protocol))->server;
}

static inline struct nats_route_link *nats_link_of(const struct nats_server *server, uint32_t other) {
    return (struct nats_route_link *)(uintptr_t)&server->links[other - BOARD_MAX_ACCEPTORS];
}

/* --- nats_route.c ------------------------------------------------------------------------------------------------- */

/* For both codecs. */
bool nats_route_started(struct acceptor *a, void *state);
void nats_route_opened(struct acceptor *a, struct connection *c, uint32_t flags);
size_t nats_route_parse(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);
int64_t nats_route_call(struct acceptor *a, struct connection *c, const char *what, const struct codec_call *k);
bool nats_route_set(void *state, const char *option, uint64_t value);
void nats_route_go_on(struct acceptor *a, void *state);
void nats_route_sent(struct acceptor *a, struct connection *c);
void nats_route_due(struct acceptor *a, struct connection *c);
void nats_route_closed(struct acceptor *a, struct connection *c);
void nats_route_freed(struct connection *c);
size_t nats_route_last_words(struct acceptor *a, struct connection *c, const uint8_t **words);
/* It is closed when its output has left, or is not taken in time; */
void nats_route_hang_up(struct acceptor *a, struct connection *c);
/* ... behind an -ERR 'text'. */
void nats_route_end(struct acceptor *a, struct connection *c, const char *text);

/* --- nats_leaf.c -------------------------------------------------------------------------------------------------- */

/* Whether something that a leaf node wants may be noted; else it is told why not, or ended. */
bool nats_leaf_may_want(struct acceptor *a, struct connection *c, struct text subject);
/* Whether it may send a message; else it is ended, unless it is a hub: what that sends is nobody's then. */
bool nats_leaf_may_send(struct acceptor *a, struct connection *c, struct text subject);
/* Whether it may have one, where that is to be looked at. */
bool nats_leaf_may_have(struct nats_server *server, const struct nats_route *r, struct text subject);
/* A subject by which loops are found. */
static inline bool nats_is_loop(struct text subject) {
    return subject.bytes > 5 && memcmp(subject.at, "$LDS.", 5) == 0;
}

/* --- nats_route_send.c -------------------------------------------------------------------------------------------- */

/* A message of a client here, for all of the server who stand alone and for those groups chosen that are of `other`. */
void nats_route_send(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t account,
                     const struct nats_message *message, const struct nats_chosen *chosen);
void nats_route_say(struct acceptor *a, struct connection *c, const void *text, size_t bytes);
struct nats_interest {
    uint32_t account;
    uint32_t origin; /* that wants it, where that is to be said; 0: none */
    struct text subject, queue;
    uint64_t weight; /* 0: not any more */
};

/* RS+ or RS-, LS+ or LS-. */
void nats_route_say_interest(struct acceptor *a, struct nats_server *server, struct connection *c,
                             const struct nats_interest *interest);
/* The time of output that does not leave begins, if there is any. */
void nats_route_watch(struct acceptor *a, struct connection *c);
/* From now on publishers wait for it, or still do. */
void nats_route_holds(struct acceptor *a, struct connection *c);
void nats_route_schedule(struct acceptor *a, struct connection *c);

/* --- nats_route_interest.c ---------------------------------------------------------------------------------------- */

/* Our clients on this acceptor want something as often as `weight` says from now on. */
void nats_tell_routes(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                      struct text queue, uint32_t weight);
/* ... and those of another acceptor. */
void nats_tell_routes_of(struct acceptor *a, struct nats_server *server, const struct nats_remote *remote,
                         uint32_t weight);
/* All that is wanted here, to a server that has come: a piece at once, the others as turns come and its output leaves. */
void nats_tell_route(struct acceptor *a, struct nats_server *server, struct connection *c);
/* ... of one account. */
void nats_tell_route_of(struct acceptor *a, struct nats_server *server, struct connection *c, uint32_t account);
void nats_route_forget(struct acceptor *a, struct nats_server *server, const struct connection *c, uint32_t account);
void nats_tell_route_on(struct acceptor *a, struct connection *c);
void nats_telling_free(struct nats_telling *telling);
/* What may pass has changed: it is told what it may know now or may not any more. Takes `now` over. */
void nats_route_permit(struct acceptor *a, struct nats_server *server, struct connection *c,
                       struct nats_permissions *now);
/* Which subjects are bound has changed: it was these. */
void nats_tell_routes_bound(struct acceptor *a, struct nats_server *server, const struct nats_bound *before);

/* --- nats_deliver.c ----------------------------------------------------------------------------------------------- */

/* Who of the others may have a message, or one for a group. */
struct nats_candidates {
    uint32_t kinds;  /* enum nats_kind */
    uint32_t origin; /* but for leaf nodes of that cluster, wherever they are; 0: there is none, */
    uint64_t tried;  /* for these acceptors, as bits, */
    uint64_t stamp;  /* and for who is stamped with it; 0: nobody is */
};

/* Whether one of them is among these, and has not left. */
static inline bool nats_is_among(const struct nats_server *server, const struct nats_remote *r,
                                 struct nats_candidates among) {
    if ((nats_kind_of(r) & among.kinds) == 0 || nats_has_left(server, r)) return false;
    return among.origin == 0 || r->origin != among.origin;
}

/* One who has members of a group, in proportion; NULL when there is none. */
struct subject_entry *nats_pick_other(struct nats_server *server, const struct nats_account *account,
                                      struct subject_pattern *const *patterns, size_t count, struct text name,
                                      struct nats_candidates among);

#endif
