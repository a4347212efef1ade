/* Scripts of bytes against routes and leaf nodes: three servers with clients, connections between them that come and
 * go, a leaf node of one of them, and a peer that is made up, a server, a leaf node or a hub, and says what it likes;
 * some of them compressed. Everything runs in this process, one turn at a time, so a script does the same each time.
 *
 * What is looked for: assertions, and what the sanitizers see; and, when nothing is on its way, that a message comes
 *   - once to all who want it alone, at the server where it is published, at those that have a route to that, and
 *     from one side to the other of the leaf node's connection
 *   - to one of each group that has members there, and to nobody twice
 * so that what servers know of each other's interest is right after any order of subscribing, leaving and breaking.
 */
#define _GNU_SOURCE
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "acceptor/protocols/nats/nats_route_state.h"
#include "base/s2_stream.h"
#include "nats_subjects.h"
#include "remote.h"
#include "script.h"
#include "world.h"

enum {
    CLUSTER = 3,
    EDGE = CLUSTER,
    SERVERS = 4,
    CLIENTS = 9,
    SIDS = 5,
    QUEUES = 2,
    MAX_PENDING = 30000,
    MAX_SIZE = 4000,
    THIRD = 3
};

struct wanted {
    char pattern[16], queue[4]; /* no pattern: it is not there */
    uint32_t heard;
};

struct heard_client {
    struct remote remote;
    uint32_t server, account;
    struct wanted wanted[SIDS];
};

static struct acceptor *servers[SERVERS];
static int wakes[SERVERS];
static struct heard_client clients[CLIENTS];
static uint32_t routes[SERVERS][SERVERS]; /* the number of the connection at the one to the other; 0: none */
static uint32_t edge_account;             /* that the leaf node shares with its hub */
static struct remote intruder;
static uint32_t intruder_at, looked_for;
static bool intruder_wants, intruder_began;
static struct bytes intruder_says;
static enum { A_SERVER, A_LEAF_NODE, A_HUB } intruder_is;
static enum s2_level compressed[SERVERS][SERVERS]; /* S2_NONE: not at all; also of the one who is made up, */
static enum s2_level intruder_compresses;          /* ... as is the one who comes next */
static bool tells_origins;                         /* ... that it names clusters of leaf nodes */
static uint32_t joins_as; /* what Python says of a route: the account that is its alone; 0: all */

static const char *const accounts[] = {"$G", "$SYS", "third"};

/* --- subjects ----------------------------------------------------------------------------------------------------- */

static const char *const patterns[] = {"a", "b", "a.b", "a.*", "*", "a.>", ">", "*.b"};
static const char *const subjects[] = {"a", "b", "a.b", "a.c", "b.b", "a.b.c"};

/* --- what Python does --------------------------------------------------------------------------------------------- */

static int64_t say_of(uint32_t conn, const char *what, uint64_t value, const char *text) {
    return acceptor_call(world.acceptor, conn, what, value, text, strlen(text), NULL, 0);
}

/* How both sides have agreed that it is. */
static enum s2_level agreed(uint32_t conn) {
    for (uint32_t here = 0; here < SERVERS; here++)
        for (uint32_t other = 0; other < SERVERS; other++)
            if (servers[here] == world.acceptor && routes[here][other] == conn) return compressed[here][other];
    return intruder_compresses;
}

static void join(uint32_t conn) {
    (void)say_of(conn, "solicited", 0, "");
    enum s2_level level = agreed(conn);
    if (level != S2_NONE) (void)acceptor_compress(world.acceptor, conn, level);
    /* Headers, and one connection for all accounts or for one. */
    uint64_t flags = ROUTE_HEADERS | (joins_as ? 0 : ROUTE_NO_POOL) | ROUTE_LEAF_MESSAGES;
    if (tells_origins) flags |= ROUTE_ORIGINS;
    (void)say_of(conn, "join", flags | (uint64_t)1 << 32, joins_as ? accounts[joins_as - 1] : "");
}

/* A leaf node's connection, at either end; each end is told by what subject circles are found. */
static void join_leaf(uint32_t conn) {
    char what[64];
    uint32_t here = 0;
    bool is_ours = false;
    while (servers[here] != world.acceptor) here++;
    for (uint32_t other = 0; other < SERVERS; other++) is_ours |= routes[here][other] == conn;
    if (is_ours ? here == EDGE : intruder_is == A_HUB) (void)say_of(conn, "solicited", 0, "");
    if (agreed(conn) != S2_NONE) (void)acceptor_compress(world.acceptor, conn, agreed(conn));
    const char *cluster = is_ours ? (here == EDGE ? "main" : "edge") : tells_origins ? "o" : "";
    uint32_t account = is_ours ? edge_account : joins_as ? joins_as : 1;
    snprintf(what, sizeof what, "$LDS.%u %s %s", here, cluster, accounts[account - 1]);
    (void)say_of(conn, "join", ROUTE_HEADERS, what);
}

static void handle(const struct upcall *u) {
    static const char pong[] = "PONG\r\nINFO {\"max_payload\":1000000} \r\n";
    const char *info = strchr(pong, 'I');
    if (u->kind == UPCALL_CLOSED) {
        for (uint32_t other = 0; other < SERVERS; other++)
            for (uint32_t here = 0; here < SERVERS; here++)
                if (servers[here] == world.acceptor && routes[here][other] == u->conn) routes[here][other] = 0;
        return;
    }
    assert(u->kind == UPCALL_COMMAND);
    bool is_leaf = u->protocol == table_protocol("nats-leaf"), is_new = u->bytes_count == 0;
    bool is_route = is_leaf || u->protocol == table_protocol("nats-route");
    unsigned account = 1;
    if (is_leaf && is_new) {
        join_leaf(u->conn);
    } else if (is_route && is_new) {
        join(u->conn);
    } else if (is_route) {
        if (u->bytes_count > 3 && !memcmp(u->bytes, "-ERR", 4)) acceptor_close(world.acceptor, u->conn);
    } else if (is_new || (u->bytes[0] | 32) == 'p') {
        const char *answer = is_new ? info : pong;
        acceptor_reply(world.acceptor, u->conn, answer, strlen(answer));
    } else {
        char text[32] = {0};
        memcpy(text, u->bytes, u->bytes_count < 31 ? u->bytes_count : 31);
        bool is_known = sscanf(text, "CONNECT %u", &account) == 1;
        assert(is_known);
        (void)say_of(u->conn, "account", account, "");
        (void)say_of(u->conn, "flags", NATS_ECHO | NATS_HEADERS, "");
    }
    acceptor_resume(world.acceptor, u->conn);
}

static bool turn(uint32_t which) {
    struct upcall u;
    world.acceptor = servers[which];
    acceptor_set_now(world.acceptor, world.now);
    bool alive = acceptor_turn(world.acceptor) > 0;
    while (acceptor_upcall(world.acceptor, &u)) handle(&u);
    return alive;
}

/* --- what clients hear -------------------------------------------------------------------------------------------- */

static size_t take_line(struct heard_client *c) {
    const uint8_t *end = memmem(c->remote.got.at, c->remote.got.count, "\r\n", 2);
    if (!end) return 0;
    size_t bytes = (size_t)(end - c->remote.got.at) + 2;
    char line[400] = {0}, *words[6];
    memcpy(line, c->remote.got.at, bytes - 2 < sizeof line - 1 ? bytes - 2 : sizeof line - 1);
    if (strncmp(line, "MSG ", 4) && strncmp(line, "HMSG ", 5)) return bytes;
    size_t count = 0, header = 0;
    for (char *word = strtok(line, " "); word && count < 6; word = strtok(NULL, " ")) words[count++] = word;
    assert(count >= 4);
    size_t size = strtoul(words[count - 1], NULL, 10), sid = strtoul(words[2], NULL, 10);
    if (words[0][0] == 'H') header = strtoul(words[count - 2], NULL, 10);
    if (c->remote.got.count < bytes + size + 2) return 0;
    const uint8_t *payload = c->remote.got.at + bytes + header;
    unsigned which;
    char head[16] = {0};
    memcpy(head, payload, size - header < 15 ? size - header : 15);
    assert(!memcmp(c->remote.got.at + bytes + size, "\r\n", 2) && sid < SIDS);
    /* What comes late is for a subscription that is not there any more, or not this one. */
    if (sscanf(head, "#%6u", &which) == 1 && which == looked_for) {
        assert(subject_matches(c->wanted[sid].pattern, words[1]) && "somebody wanted it");
        c->wanted[sid].heard++;
    }
    return bytes + size + 2;
}

static bool take_turns(void) {
    bool alive = false;
    for (uint32_t i = 0; i < SERVERS; i++) alive |= turn(i);
    for (uint32_t i = 0; i < CLIENTS; i++) {
        struct heard_client *c = &clients[i];
        alive |= remote_flush(&c->remote, SIZE_MAX);
        while (remote_receive(&c->remote)) {
            alive = true;
            for (size_t taken; c->remote.got.count && (taken = take_line(c)) != 0;) bytes_drop(&c->remote.got, taken);
        }
    }
    alive |= remote_flush(&intruder, SIZE_MAX);
    while (remote_receive(&intruder)) {
        alive = true;
        bytes_drop(&intruder.got, intruder.got.count);
    }
    return alive;
}

static void run_until_quiet(void) {
    for (int turns = 0, quiet = 0; quiet < 4; turns++) {
        assert(turns < UNTIL_QUIET && "the servers keep each other busy for ever");
        quiet = take_turns() ? 0 : quiet + 1;
    }
}

/* --- what happens ------------------------------------------------------------------------------------------------- */

static void connect_client(struct heard_client *c) {
    struct remote remote = c->remote;
    *c = (struct heard_client){.remote = remote, .server = pick(SERVERS), .account = pick(4) ? 1 : THIRD};
    world.acceptor = servers[c->server];
    (void)remote_connect(&c->remote, table_protocol("nats"));
    remote_say(&c->remote, "CONNECT %u\r\n", c->account);
    trace("client %zu at %u, account %u", (size_t)(c - clients), c->server, c->account);
}

static void subscribe(struct heard_client *c) {
    uint32_t sid = pick(SIDS);
    struct wanted *w = &c->wanted[sid];
    if (w->pattern[0]) {
        trace("client %zu UNSUB %u", (size_t)(c - clients), sid);
        remote_say(&c->remote, "UNSUB %u\r\n", sid);
        w->pattern[0] = 0;
        return;
    }
    *w = (struct wanted){0};
    strcpy(w->pattern, patterns[pick(sizeof patterns / sizeof *patterns)]);
    if (pick(2)) sprintf(w->queue, "q%u", pick(QUEUES));
    trace("client %zu SUB %s %s %u", (size_t)(c - clients), w->pattern, w->queue, sid);
    remote_say(&c->remote, "SUB %s %s %u\r\n", w->pattern, w->queue, sid);
}

static void publish(struct heard_client *c, const char *subject, uint32_t number) {
    char payload[MAX_SIZE + 8];
    uint32_t size = 7 + (pick(3) ? pick(20) : pick(MAX_SIZE - 7));
    memset(payload, 'x', size);
    char head[16];
    snprintf(head, sizeof head, "#%06u", number);
    memcpy(payload, head, 7);
    static const char header[] = "NATS/1.0\r\nA: b\r\n\r\n";
    const char *reply = pick(3) ? "" : "b";
    if (pick(3) == 0)
        remote_say(&c->remote, "HPUB %s %s %zu %zu\r\n%s", subject, reply, sizeof header - 1, sizeof header - 1 + size,
                   header);
    else
        remote_say(&c->remote, "PUB %s %s %u\r\n", subject, reply, size);
    bytes_add(&c->remote.unsent, payload, size);
    bytes_add(&c->remote.unsent, "\r\n", 2);
}

/* The leaf node has one hub: with two servers of a cluster there would be a circle. */
static bool has_hub(void) {
    for (uint32_t i = 0; i < CLUSTER; i++)
        if (routes[EDGE][i] || routes[i][EDGE]) return true;
    return false;
}

static void make_route(uint32_t one, uint32_t other) {
    int pair[2];
    bool is_leaf = one == EDGE || other == EDGE;
    uint32_t protocol = table_protocol(is_leaf ? "nats-leaf" : "nats-route");
    if (one == other || routes[one][other] || routes[other][one] || (is_leaf && has_hub())) return;
    if (is_leaf) edge_account = pick(4) ? 1 : THIRD;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair)) abort();
    compressed[one][other] = compressed[other][one] = (enum s2_level)pick(S2_BEST + 1);
    routes[one][other] = acceptor_adopt(servers[one], pair[0], protocol);
    routes[other][one] = acceptor_adopt(servers[other], pair[1], protocol);
    assert(routes[one][other] && routes[other][one]);
    trace("a route between %u and %u, compressed as %u says", one, other, compressed[one][other]);
}

static void break_route(uint32_t one, uint32_t other) {
    if (!routes[one][other]) return;
    trace("%u ends its route to %u", one, other);
    acceptor_close(servers[one], routes[one][other]);
}

static bool is_linked(uint32_t one, uint32_t other) {
    return one == other || (routes[one][other] && routes[other][one]);
}

/* The server of the cluster that one is, or is a leaf node of for an account; EDGE: none. */
static uint32_t hub_of(uint32_t server, uint32_t account) {
    for (uint32_t i = 0; server == EDGE && account == edge_account && i < CLUSTER; i++)
        if (is_linked(EDGE, i)) return i;
    return server;
}

/* By a route, the leaf node's connection, or first the one and then the other. */
static bool is_connected(uint32_t one, uint32_t other, uint32_t account) {
    return one == other || is_linked(hub_of(one, account), hub_of(other, account));
}

static void intrude(void) {
    intruder_at = pick(SERVERS);
    (void)turn(intruder_at); /* routes that are new there are none of its */
    joins_as = pick(4) ? 0 : THIRD;
    tells_origins = pick(2) > 0;
    intruder_compresses = pick(2) ? S2_FAST : S2_NONE;
    intruder_began = false;
    bytes_free(&intruder_says);
    intruder_is = pick(3);
    (void)remote_connect(&intruder, table_protocol(intruder_is == A_SERVER ? "nats-route" : "nats-leaf"));
    (void)turn(intruder_at);
    joins_as = 0;
    trace("a made-up %s at %u", ((const char *const[]){"server", "leaf node", "hub"})[intruder_is], intruder_at);
}

/* As chunks, if that is agreed: mostly right. */
static void pack_nonsense(void) {
    uint8_t chunk[S2_CHUNK_HEAD_BYTES + 4096 + S2_ENCODED_EXTRA];
    if (intruder_compresses == S2_NONE || intruder_says.count == 0) {
        bytes_add(&intruder.unsent, intruder_says.at, intruder_says.count);
        intruder_says.count = 0;
        return;
    }
    if (!intruder_began || pick(6) == 0) {
        s2_put_identifier(chunk);
        bytes_add(&intruder.unsent, chunk, S2_IDENTIFIER_BYTES);
        intruder_began = pick(20) > 0;
    }
    size_t bytes = intruder_says.count < 4096 ? intruder_says.count : 4096;
    size_t made = s2_put_chunk(chunk, intruder_says.at, bytes, (enum s2_level)pick(S2_BEST + 1));
    if (pick(10) == 0) chunk[((size_t)byte() << 8 | byte()) % made] ^= (uint8_t)(1 + pick(255));
    bytes_add(&intruder.unsent, chunk, made);
    bytes_drop(&intruder_says, bytes);
}

/* A line of a table, of a server's or of a leaf node's. */
static const char *some_line(void) {
    static const char *const of_servers[] = {
        "RS+ $G a\r\n",
        "RS+ $G a q0 3\r\n",
        "RS+ $G > q1 4294967295\r\n",
        "RS- $G a\r\n",
        "RS- $G a q0\r\n",
        "RS+ third a.* q0 1\r\n",
        "RS+ a\r\n",
        "RS+ $G\r\n",
        "RS+ $G a b\r\n",
        "RS+ $G a q x\r\n",
        "RS+ $G a..b\r\n",
        "RS+ nobody a\r\n",
        "LS+ o $G a\r\n",
        "LS+ o $G a q1 2\r\n",
        "LS- o $G a\r\n",
        "LS- o $G a q1\r\n",
        "LS+ other $G a\r\n",
        "LS- other $G a\r\n",
        "LS+ o third a.* q0 1\r\n",
        "LS- $G a q1\r\n",
        "RMSG $G a 3\r\nxyz\r\n",
        "RMSG $G a.b r 3\r\nxyz\r\n",
        "RMSG $G a + r q0 q1 q0 3\r\nxyz\r\n",
        "RMSG $G a | q0 none 3\r\nxyz\r\n",
        "RMSG $G a | 3\r\nxyz\r\n",
        "RMSG third a.b | q0 3\r\nxyz\r\n",
        "RMSG nobody a 3\r\nxyz\r\n",
        "RMSG $G a ++ r q 3\r\nxyz\r\n",
        "RMSG $G a 99999999999\r\n",
        "RMSG $G a 3\r\nxyzz\r\n",
        "HMSG $G a 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
        "HMSG $G a | q1 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
        "HMSG $G a 16 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
        "LMSG o $G a 0 3\r\nxyz\r\n",
        "LMSG o $G a + r q1 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
        "a 3\r\nxyz\r\n",
        "PING\r\n",
        "PONG\r\n",
        "INFO {}\r\n",
        "-ERR 'x'\r\n",
        "+OK\r\n",
        "CONNECT {}\r\n",
        "SUB a 1\r\n",
        "\r\n",
    };
    static const char *const of_leaf_nodes[] = {
        "LS+ a\r\n",
        "LS+ a.> q0 3\r\n",
        "LS+ > q1 4294967295\r\n",
        "LS+ a q0 0\r\n",
        "LS+ a q0 x\r\n",
        "LS+ a q0\r\n",
        "LS+ a q0 1 2\r\n",
        "LS+ $G a q0\r\n",
        "LS+ a..b\r\n",
        "LS+\r\n",
        "LS- a\r\n",
        "LS- a.> q0\r\n",
        "LS- a q0 1\r\n",
        "LS- never\r\n",
        "LS+ $LDS.0\r\n",
        "LS+ $LDS.9\r\n",
        "LS- $LDS.9\r\n",
        "LMSG a 3\r\nxyz\r\n",
        "LMSG a.b r 3\r\nxyz\r\n",
        "LMSG a + r q0 q1 q0 3\r\nxyz\r\n",
        "LMSG a | q0 none 3\r\nxyz\r\n",
        "LMSG a | 3\r\nxyz\r\n",
        "LMSG a ++ r q 3\r\nxyz\r\n",
        "LMSG a.* 3\r\nxyz\r\n",
        "LMSG $G a 3\r\nxyz\r\n",
        "LMSG a 99999999999\r\n",
        "LMSG a 3\r\nxyzz\r\n",
        "LMSG _R_.a 0\r\n\r\n",
        "HMSG a 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
        "HMSG a + r q0 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
        "HMSG a | q1 12 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
        "HMSG a 16 15\r\nNATS/1.0\r\n\r\nxyz\r\n",
    };
    /* What all may say is of the first table. */
    if (intruder_is != A_SERVER && pick(4)) return of_leaf_nodes[pick(sizeof of_leaf_nodes / sizeof *of_leaf_nodes)];
    return of_servers[pick(sizeof of_servers / sizeof *of_servers)];
}

static void say_nonsense(void) {
    uint8_t bytes[48];
    if (intruder.fd < 0) return;
    intruder_wants = true;
    switch (pick(8)) {
    case 0:
        for (size_t i = 0, count = pick(sizeof bytes); i < count; i++) {
            bytes[i] = byte();
            bytes_add(&intruder_says, bytes + i, 1);
        }
        break;
    case 1: {
        /* More groups than there may be, or nearly. */
        const char *head = intruder_is == A_SERVER ? "RMSG $G a | " : "LMSG a | ";
        bytes_add(&intruder_says, head, strlen(head));
        for (uint32_t n = 1000 + pick(60); n > 0; n--) bytes_add(&intruder_says, "q0 ", 3);
        bytes_add(&intruder_says, "1\r\nx\r\n", 6);
        break;
    }
    case 2: bytes_drop(&intruder.unsent, intruder.unsent.count ? pick((uint32_t)intruder.unsent.count) : 0); break;
    default: {
        const char *line = some_line();
        bytes_add(&intruder_says, line, strlen(line));
        break;
    }
    }
    if (pick(2)) pack_nonsense();
    if (pick(3) == 0) (void)remote_flush(&intruder, 1 + pick(40));
}

/* --- what has to be so -------------------------------------------------------------------------------------------- */

static bool may_have(const struct heard_client *c, const struct heard_client *from) {
    return c->remote.fd >= 0 && c->account == from->account && is_connected(from->server, c->server, c->account);
}

static void check_group(const struct heard_client *from, const char *queue, const char *subject) {
    uint32_t heard = 0;
    bool any = false;
    for (uint32_t i = 0; i < CLIENTS; i++)
        for (uint32_t sid = 0; sid < SIDS; sid++) {
            const struct wanted *w = &clients[i].wanted[sid];
            if (!w->pattern[0] || strcmp(w->queue, queue) || !subject_matches(w->pattern, subject)) continue;
            any |= may_have(&clients[i], from);
            heard += w->heard;
        }
    assert(heard <= 1 && "one of a group, and no more");
    assert((heard == 1 || !any || intruder_wants) && "one of a group");
}

static uint64_t routed(void) {
    uint64_t sum = 0;
    const char *name = "";
    for (uint32_t i = 0; name && strcmp(name, "out-messages"); i++)
        name = acceptor_counter(servers[0], table_protocol("nats-route"), i, &sum);
    assert(name);
    return sum;
}

/* To servers where nobody wants it nothing goes, to the others once. What is for groups may go there or not. */
static void check_routed(const struct heard_client *from, const char *subject, uint64_t sent) {
    uint64_t least = 0, most = 0;
    uint32_t hub = hub_of(from->server, from->account);
    for (uint32_t server = 0; server < CLUSTER; server++) {
        bool plain = false, group = false;
        for (uint32_t i = 0; i < CLIENTS; i++)
            for (uint32_t sid = 0; sid < SIDS; sid++) {
                const struct heard_client *c = &clients[i];
                const struct wanted *w = &c->wanted[sid];
                if (hub_of(c->server, c->account) != server || server == hub || !may_have(c, from)) continue;
                if (!w->pattern[0] || !subject_matches(w->pattern, subject)) continue;
                plain |= !w->queue[0];
                group |= w->queue[0] != 0;
            }
        least += plain;
        most += plain || group;
    }
    assert((intruder_wants || (sent >= least && sent <= most)) && "a message goes where it is wanted, once");
}

static void publish_alone(void) {
    struct heard_client *from = &clients[pick(CLIENTS)];
    const char *subject = subjects[pick(sizeof subjects / sizeof *subjects)];
    run_until_quiet();
    if (intruder.fd < 0) intruder_wants = false;
    if (from->remote.fd < 0) return;
    looked_for++;
    for (uint32_t i = 0; i < CLIENTS; i++)
        for (uint32_t sid = 0; sid < SIDS; sid++) clients[i].wanted[sid].heard = 0;
    trace("client %zu PUB %s #%u", (size_t)(from - clients), subject, looked_for);
    uint64_t before = routed();
    publish(from, subject, looked_for % 1000000);
    run_until_quiet();
    if (from->remote.fd < 0) return;
    check_routed(from, subject, routed() - before);
    for (uint32_t i = 0; i < CLIENTS; i++)
        for (uint32_t sid = 0; sid < SIDS; sid++) {
            const struct wanted *w = &clients[i].wanted[sid];
            if (!w->pattern[0] || w->queue[0] || !subject_matches(w->pattern, subject) || clients[i].remote.fd < 0)
                continue;
            assert(w->heard == may_have(&clients[i], from) && "all who want it get it, once");
        }
    for (uint32_t q = 0; q < QUEUES; q++) check_group(from, q ? "q1" : "q0", subject);
}

/* --- a script ----------------------------------------------------------------------------------------------------- */

static void start(uint32_t which) {
    wakes[which] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    servers[which] = acceptor_new(table_protocols(), which, 1, SHARDS, world.board, wakes[which]);
    assert(servers[which]);
    acceptor_set_now(servers[which], world.now);
    bool set = !acceptor_set(servers[which], "nats.max-pending", MAX_PENDING);
    assert(set);
    for (uint32_t i = 0; i < sizeof accounts / sizeof *accounts; i++) {
        const char *name = accounts[i];
        uint32_t nats = table_protocol("nats");
        int64_t number = acceptor_configure(servers[which], nats, "account", 0, name, strlen(name));
        assert(number == i + 1);
    }
}

static void step(void) {
    struct heard_client *c = &clients[pick(CLIENTS)];
    uint32_t one = pick(SERVERS), other = pick(SERVERS);
    switch (pick(16)) {
    case 0: connect_client(c); break;
    case 1:
    case 2:
    case 3:
    case 4:
        if (c->remote.fd < 0) connect_client(c);
        subscribe(c);
        break;
    case 5:
        if (c->remote.fd >= 0) publish(c, subjects[pick(sizeof subjects / sizeof *subjects)], 999999);
        break;
    case 6:
    case 7: make_route(one, other); break;
    case 8: break_route(one, other); break;
    case 9: (void)turn(one); break;
    case 10:
        remote_disconnect(&c->remote);
        memset(c->wanted, 0, sizeof c->wanted);
        break;
    case 11:
        if (pick(3) == 0) intrude();
        break;
    case 12: say_nonsense(); break;
    case 13: world.now += SECOND / 10 * pick(9); break;
    default: publish_alone(); break;
    }
}

void run_script(void) {
    world_begin(1 << 20);
    memset(routes, 0, sizeof routes);
    intruder = (struct remote){.fd = -1};
    intruder_wants = false;
    looked_for = 0;
    for (uint32_t i = 0; i < CLIENTS; i++) clients[i] = (struct heard_client){.remote = {.fd = -1}};
    for (uint32_t i = 0; i < SERVERS; i++) start(i);
    while (script_goes_on()) step();
    publish_alone();
    for (uint32_t i = 0; i < CLIENTS; i++) {
        remote_disconnect(&clients[i].remote);
        bytes_free(&clients[i].remote.got);
        bytes_free(&clients[i].remote.unsent);
    }
    remote_disconnect(&intruder);
    bytes_free(&intruder.got);
    bytes_free(&intruder.unsent);
    bytes_free(&intruder_says);
    for (uint32_t i = 0; i < SERVERS; i++) {
        acceptor_free(servers[i]);
        close(wakes[i]);
    }
    world.acceptor = NULL;
    world_end();
}
