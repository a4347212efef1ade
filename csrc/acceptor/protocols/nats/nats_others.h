/* Who else may want messages: other acceptors of this server, and servers behind routes, leaf nodes and hubs. */
#ifndef MQ_NATS_OTHERS_H
#define MQ_NATS_OTHERS_H

#include "acceptor/engine.h"
#include "base/subjects.h"
#include "ringbuf/board.h"

/* The numbers of others that may want messages. First come acceptors, then routes, each a connection to another server
 * of the cluster. Then come leaf nodes, whose connections are routes of a single account to servers outside the
 * cluster. Last come hubs, whose leaf node this server is; their connections are like those of leaf nodes. */
enum {
    NATS_ROUTES = 192,
    NATS_LEAVES = 1024,
    NATS_HUBS = 64,
    NATS_LINKS = NATS_ROUTES + NATS_LEAVES + NATS_HUBS,
    NATS_FIRST_LEAF = BOARD_MAX_ACCEPTORS + NATS_ROUTES,
    NATS_FIRST_HUB = NATS_FIRST_LEAF + NATS_LEAVES,
    NATS_OTHERS = BOARD_MAX_ACCEPTORS + NATS_LINKS,
};

static inline bool nats_is_route(uint32_t other) {
    return other >= BOARD_MAX_ACCEPTORS;
}

/* Whether it is a leaf node or a hub. */
static inline bool nats_is_leaf(uint32_t other) {
    return other >= NATS_FIRST_LEAF;
}

static inline bool nats_is_hub(uint32_t other) {
    return other >= NATS_FIRST_HUB;
}

/* Kinds of others, as bits. */
enum nats_kind {
    NATS_ACCEPTORS = 1,
    NATS_SERVERS = 2,
    NATS_LEAF_NODES = 4,
    NATS_HUB_SERVERS = 8,
    NATS_SERVERS_LEAVES = 16, /* servers, for leaf nodes of theirs whose cluster they name */
    NATS_OUTSIDE = NATS_LEAF_NODES | NATS_HUB_SERVERS | NATS_SERVERS_LEAVES, /* of the cluster */
    NATS_ANY_KIND = 31,
};

/* Interest of another acceptor, or of a server behind a route: stands for all its plain subscriptions of one pattern,
 * or for its members of one group. */
struct nats_remote {
    struct subject_entry entry; /* first */
    struct nats_remote *next, *previous;
    uint16_t account;
    uint16_t other;
    uint32_t epoch;    /* the other's epoch: see nats_has_left */
    uint32_t origin;   /* the cluster of leaf nodes that wants this, or for which a server says so; 0: none */
    uint64_t messages; /* messages sent because of this, and of no earlier interest */
};

struct nats_remotes {
    struct nats_remote *first, *last;
};

/* Another acceptor, route or leaf node. When it leaves, its number is free and begins a new epoch. */
struct nats_other {
    struct nats_remotes wanted;
    uint32_t count; /* of wanted */
    uint32_t epoch;
};

/* Another acceptor. What we tell it is numbered, and it confirms all up to a number. */
struct nats_peer {
    uint32_t *accounts; /* our numbers of accounts, by its numbers; 0: not told yet */
    uint32_t account_count;
    struct connection_list waiting; /* clients that wait for its confirmation */
    uint64_t asked, confirmed;      /* up to which number confirmation was asked for, and received */
    uint64_t confirm, confirm_at;   /* the number that it is to be told when this look is over; 0: none */
    uint64_t confirm_next;          /* one that it has asked for meanwhile; 0: none */
    bool told;                      /* it has told us all interest that it had when it connected */
    /* A new acceptor is told interest account by account: first that of clients here, then that of servers. */
    bool is_new, of_servers;
    uint32_t account;
    struct subjects_cursor cursor;
};

/* A route, as seen by the acceptor that has all routes, and by the others. */
struct nats_route_link {
    struct connection *connection;  /* NULL: another acceptor has it, or the route does not exist */
    struct connection_list waiting; /* publishers that wait while it is full */
    uint32_t origin;                /* cluster of a leaf node or hub; only set at the acceptor that has it */
    bool full;
};

#endif
