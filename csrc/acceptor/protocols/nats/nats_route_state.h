/* A connection to another server, and what is configured for all of them. */
#ifndef MQ_NATS_ROUTE_STATE_H
#define MQ_NATS_ROUTE_STATE_H

#include "acceptor/protocols/nats/nats_origins.h"
#include "acceptor/protocols/nats/nats_remote.h"
#include "acceptor/protocols/nats/nats_write.h"

struct nats_permissions;
struct nats_telling;

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
    ROUTE_LEAVES = 8192,        /* interest of leaf nodes that belong to no cluster is told apart, too: LS+ _ */
};

enum nats_route_counter {
    ROUTE_IN_MESSAGES,
    ROUTE_IN_BYTES,
    ROUTE_OUT_MESSAGES,
    ROUTE_OUT_BYTES,
    ROUTE_SLOW,
    ROUTE_COUNTERS
};
/* A name for each. */
extern const char *const nats_route_counters[ROUTE_COUNTERS];

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

/* Whether this is a subject by which loops are found. */
static inline bool nats_is_loop(struct text subject) {
    return subject.bytes > 5 && memcmp(subject.at, "$LDS.", 5) == 0;
}

struct nats_interest {
    uint32_t account;
    uint32_t origin; /* the cluster of leaf nodes that wants it, if it is to be named; 0: none, or NATS_NO_CLUSTER */
    struct text subject, queue;
    uint64_t weight; /* 0: no longer wanted */
};

/* Which of the others may get a message, or one for a group. */
struct nats_candidates {
    uint32_t kinds;  /* enum nats_kind */
    uint32_t origin; /* except leaf nodes of this cluster, wherever they are (0: no cluster), */
    uint32_t hub;    /* hubs that may be of this one's cluster (0: no hub), */
    uint64_t tried;  /* these acceptors, as bits, */
    uint64_t stamp;  /* and those marked with this stamp (0: nobody) */
};

/* Whether one of the others is among these, and has not left. */
static inline bool nats_is_among(const struct nats_server *server, const struct nats_remote *r,
                                 struct nats_candidates among) {
    if ((nats_kind_of(r) & among.kinds) == 0 || nats_has_left(server, r)) return false;
    if (among.hub != 0 && nats_is_hub(r->other) && !nats_origins_differ(&server->origins, r->origin, among.hub))
        return false;
    return among.origin == 0 || r->origin != among.origin;
}

#endif
