/* Routes: connections to other servers of a cluster, ours or nats-server's. INFO, CONNECT, connecting and refusing
 * servers are Python's part (acceptor/protocols/nats/routing.py).
 *
 *   nats_route.c            parses lines and handles commands
 *   nats_route_send.c       sends interest and messages to a server
 *   nats_route_interest.c   which interest is sent
 *   nats_leaf.c             how leaf nodes differ
 *   nats_leaf_permissions.c ... in what they may want and send
 *
 * One acceptor has all routes. The other acceptors know the interest of each route, and send that acceptor messages for
 * it. A message that came over a route goes to clients of all acceptors, but never to a route.
 *
 * A leaf node's connection (nats_leaf.c) carries a single account. Its messages go wherever a client's go, and messages
 * from routes go to leaf nodes too.
 *
 * If much output waits for a server, its publishers wait. It is closed only if it takes nothing for
 * nats.write-deadline, or so little that publishers would wait for ever. Its input is always taken, so that two servers
 * whose output is full do not block each other.
 */
#ifndef MQ_NATS_ROUTE_H
#define MQ_NATS_ROUTE_H

#include "acceptor/protocols/nats/nats.h"
#include "acceptor/protocols/nats/nats_account.h"
#include "acceptor/protocols/nats/nats_deliver.h"
#include "acceptor/protocols/nats/nats_figures.h"
#include "acceptor/protocols/nats/nats_interest.h"
#include "acceptor/protocols/nats/nats_pass.h"
#include "acceptor/protocols/nats/nats_write.h"

enum { NATS_ROUTING_ACCEPTOR = 0, NATS_LOOP_BYTES = 48 };

enum nats_route_flag {
    ROUTE_MUST_CONNECT = 1,     /* only CONNECT is accepted */
    ROUTE_HEADERS = 2,          /* the server knows headers */
    ROUTE_NO_POOL = 4,          /* the server has a single connection for all accounts */
    ROUTE_TELLS_PONG = 8,       /* Python wants to know when a PING is answered */
    ROUTE_NEGOTIATES = 16,      /* we send nothing of our own yet, as compression may be about to begin */
    ROUTE_LEAF = 32,            /* a leaf node's connection */
    ROUTE_DENIED_SOME = 64,     /* not allowed all that it wants: each message is checked */
    ROUTE_HUB = 128,            /* a hub's connection, whose leaf node this server is; together with ROUTE_LEAF */
    ROUTE_SNIFF = 512,          /* Python wants the first byte of a leaf node's connection */
    ROUTE_ORIGINS = 1024,       /* the server names clusters of leaf nodes in interest: LS+ and LS- */
    ROUTE_LEAF_MESSAGES = 2048, /* ... and in messages: LMSG */
    ROUTE_TRACES = 4096,        /* the server traces messages */
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
    uint32_t other;     /* its number among others; 0: it has not joined yet */
    uint32_t flags;     /* enum nats_route_flag */
    uint32_t account;   /* it carries only this account, which is not named on it; 0: several */
    uint32_t pool_size; /* our pool size, and its place in the pool: these determine its accounts */
    uint32_t pool_index;
    uint32_t last_account; /* of the last message */
    uint32_t write_end;
    uint16_t pings;   /* unanswered */
    uint64_t ping_ns; /* when the next PING is due */
    uint64_t opened_ns;
    uint64_t asked_ns;                    /* when the last PING was sent */
    uint64_t rtt_ns;                      /* time to its answer; 0: unknown */
    uint64_t active_ns;                   /* when the last message or interest came */
    uint64_t write_ns;                    /* when the write under way began (nats_write.h); 0: nothing waits */
    uint64_t held_ns;                     /* when publishers that wait for it were last checked; 0: none waits */
    uint64_t held_at;                     /* how much its socket had taken by then */
    struct nats_name *name;               /* the server's; NULL: unknown */
    struct nats_name *info;               /* the leaf node or hub as told to services; NULL: none is told */
    struct nats_permissions *permissions; /* which subjects may pass; NULL: all */
    struct nats_permissions *publishing;  /* what a leaf node may send; it is not told of other interest */
    char loop[NATS_LOOP_BYTES]; /* a subject that a leaf node is told only so that a loop shows by its coming back */
    uint32_t loop_bytes;
    uint32_t reason;              /* enum nats_reason; 0: the codec has not ended it */
    struct nats_telling *telling; /* the telling that is under way; NULL: it knows everything */
    uint64_t counted[ROUTE_COUNTERS];
};

/* Options of routes. Their state is in struct nats_server. */
struct nats_routes {
    struct nats_server *server;
    /* 0: the same as for clients. */
    uint64_t ping_interval_ns, write_deadline_ns;
    uint32_t ping_max;
    bool write_retries; /* a server that has not taken all in time may go on, if it has taken some */
};

static inline struct nats_route *route_of(const struct connection *c) {
    return connection_state(c);
}

static inline struct nats_write route_write_of(const struct connection *c) {
    struct nats_route *r = route_of(c);
    return (struct nats_write){&r->write_ns, &r->write_end, &r->flags};
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

/* Shared by both codecs. */
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

/* --- nats_figures.c ----------------------------------------------------------------------------------------------- */

struct nats_figures nats_route_figures(const struct acceptor *a, const struct connection *c);

/* --- nats_leaf_permissions.c -------------------------------------------------------------------------------------- */

/* Whether a leaf node may subscribe to a subject; if not, sends it an error or closes it. */
bool nats_leaf_may_want(struct acceptor *a, struct connection *c, struct text subject);
/* Whether it may send a message. If not, a leaf node is closed; a hub's message is only dropped. */
bool nats_leaf_may_send(struct acceptor *a, struct connection *c, struct text subject);
/* Whether this is a subject by which loops are found. */
static inline bool nats_is_loop(struct text subject) {
    return subject.bytes > 5 && memcmp(subject.at, "$LDS.", 5) == 0;
}

/* --- nats_route_send.c -------------------------------------------------------------------------------------------- */

/* Sends a client's message to a server: for its plain subscribers, and for the groups that were chosen for `other`. */
void nats_route_send(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t account,
                     const struct nats_message *message, const struct nats_chosen *chosen);
/* Whether it may receive a message, for ROUTE_DENIED_SOME. */
bool nats_route_may_have(struct nats_server *server, const struct nats_route *r, struct text subject);
void nats_route_say(struct acceptor *a, struct connection *c, const void *text, size_t bytes);
/* Closes the connection when its output has been sent, or is not taken in time, ... */
void nats_route_hang_up(struct acceptor *a, struct connection *c);
/* ... after saying -ERR 'text'. */
void nats_route_end(struct acceptor *a, struct connection *c, const char *text);
struct nats_interest {
    uint32_t account;
    uint32_t origin; /* the cluster of leaf nodes that wants it, if it is to be named; 0: none */
    struct text subject, queue;
    uint64_t weight; /* 0: no longer wanted */
};

/* Sends RS+ or RS-, LS+ or LS-. */
void nats_route_say_interest(struct acceptor *a, struct nats_server *server, struct connection *c,
                             const struct nats_interest *interest);
/* Starts the clock of the write deadline, if there is output. */
void nats_route_watch(struct acceptor *a, struct connection *c);
/* Publishers begin to wait for the server, or still do. */
void nats_route_holds(struct acceptor *a, struct connection *c);
void nats_route_schedule(struct acceptor *a, struct connection *c);

/* --- nats_route_interest.c ---------------------------------------------------------------------------------------- */

/* Tells that `weight` clients of this acceptor want a subject from now on, ... */
void nats_tell_routes(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                      struct text queue, uint32_t weight);
/* ... or those of another acceptor. */
void nats_tell_routes_of(struct acceptor *a, struct nats_server *server, const struct nats_remote *remote,
                         uint32_t weight);
/* Tells servers of the cluster, and no leaf node, that importing accounts want a subject of this one so often. */
void nats_tell_servers(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject,
                       struct text queue, uint64_t weight);
/* How often a pattern is wanted by clients of all acceptors and by leaf nodes, without `except` (NULL: all of them), ... */
uint64_t nats_weight_near(struct nats_server *server, uint32_t account, struct text subject, struct text queue,
                          const struct nats_remote *except);
/* ... and without clients of this acceptor. */
uint64_t nats_weight_beside(struct nats_server *server, uint32_t account, struct text subject, struct text queue,
                            const struct nats_remote *except);
/* Tells a newly connected server all that is wanted here: a piece at once, more in later turns as its output leaves. */
void nats_tell_route(struct acceptor *a, struct nats_server *server, struct connection *c);
/* The same for one account. */
void nats_tell_route_of(struct acceptor *a, struct nats_server *server, struct connection *c, uint32_t account);
void nats_tell_route_on(struct acceptor *a, struct connection *c);
void nats_telling_free(struct nats_telling *telling);
/* Replaces a server's permissions, and tells it the interest that it may know now, or no longer. Owns `now`. */
void nats_route_permit(struct acceptor *a, struct nats_server *server, struct connection *c,
                       struct nats_permissions *now);
/* The bound subjects have changed: tells servers and leaf nodes. `before`: those that were bound. */
void nats_tell_routes_bound(struct acceptor *a, struct nats_server *server, const struct nats_bound *before);

/* --- nats_interest.c ---------------------------------------------------------------------------------------------- */

/* Forgets the interest in an account that came over this connection: the server tells it again over another. */
void nats_route_forget(struct acceptor *a, struct nats_server *server, const struct connection *c, uint32_t account);
/* Forgets interest of a server that its permissions no longer allow. */
void nats_route_forget_forbidden(struct acceptor *a, struct nats_server *server, const struct connection *c);

/* --- nats_deliver.c ----------------------------------------------------------------------------------------------- */

/* Which of the others may get a message, or one for a group. */
struct nats_candidates {
    uint32_t kinds;  /* enum nats_kind */
    uint32_t origin; /* except leaf nodes of this cluster, wherever they are (0: no cluster), */
    uint64_t tried;  /* these acceptors, as bits, */
    uint64_t stamp;  /* and those marked with this stamp (0: nobody) */
};

/* Whether one of the others is among these, and has not left. */
static inline bool nats_is_among(const struct nats_server *server, const struct nats_remote *r,
                                 struct nats_candidates among) {
    if ((nats_kind_of(r) & among.kinds) == 0 || nats_has_left(server, r)) return false;
    return among.origin == 0 || r->origin != among.origin;
}

/* Picks one with members of a group at random, in proportion; NULL: none. */
struct subject_entry *nats_pick_other(struct nats_server *server, const struct nats_account *account,
                                      struct subject_pattern *const *patterns, size_t count, struct text name,
                                      struct nats_candidates among);

#endif
