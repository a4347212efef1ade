/* The NATS client protocol: PUB, HPUB, SUB, UNSUB, PING, PONG and output to clients. CONNECT, INFO, accounts and users
 * are handled by Python (acceptor/protocols/nats/nats.py).
 *
 *   nats.c                 parses lines and handles commands
 *   nats_subscription.c    a connection's subscriptions, by their names (sids)
 *   nats_account.c         accounts by their names
 *   nats_permissions.c     what a user may publish and subscribe to
 *   nats_replies.c         ... and which requests it may answer
 *   nats_shares.c          mappings, and messages that other accounts import
 *   nats_transform.c       ... the subjects that these get
 *   nats_asker.c           ... what services are told of who asks
 *   nats_answers.c         ... how answers find the way back
 *   nats_journey.c         ... the order in which all that is done
 *   nats_publish.c         PUB and HPUB
 *   nats_run.c             ... the fast path of many PUBs in a row
 *   nats_deliver.c         from one publisher to all in an account that want the message
 *   nats_give.c            ... into the output of one of them
 *   nats_turns.c           ... in this turn or the next
 *   nats_mesh.c            what other acceptors tell
 *   nats_mesh_send.c       ... and are told
 *   nats_pass.c            messages for others
 *   nats_interest.c        what others want
 *   nats_leaving.c         removes interest of others, and of clients, in pieces
 *   nats_trace.h           message tracing
 *   nats_latency.h         how long services take
 *   nats_say.c             what is said outside of messages, and how a connection ends
 *   nats_name.c            what clients and servers call themselves
 *   nats_random.c          random numbers
 *   nats_clock.c           when something of a connection is due
 *   nats_due.c             ... PINGs, and clients that do not take their output
 *   nats_websocket.c       why a websocket ends
 *   nats_proxied.c         PROXY headers
 *   nats_figures.c         figures of connections, for monitoring
 *   nats_route.h           other servers
 *   nats_origins.h         ... and the clusters of leaf nodes behind them
 *
 * Messages are not stored: a message is copied to the output of those that want it, or dropped. A client that does not
 * take its output is closed, so a publisher never waits for one.
 *
 * This server accepts, refuses and sends what a nats-server does.
 */
#ifndef MQ_NATS_H
#define MQ_NATS_H

#include <string.h>

#include "acceptor/engine.h"
#include "acceptor/protocols/nats/nats_origins.h"
#include "acceptor/protocols/nats/nats_permissions.h"
#include "base/subjects.h"
#include "base/text.h"

enum {
    NATS_MAX_ACCOUNTS = 1 << 16,
    NATS_MAX_ACCOUNT_BYTES = 1024,        /* of a name */
    NATS_MAX_ALL_SUBSCRIPTIONS = 1 << 24, /* of all connections of an acceptor */
    NATS_INTEREST_BYTES = 128,            /* average text of one interest of other servers, at most */
    NATS_MAX_CONTROL_LINE = 64 << 10,     /* largest value of the option */
    NATS_LAST_WORDS_BYTES = 4096,         /* most that Python is told when a connection ends */
    /* " [reply ][headers' size ]size\r\n": no longer than the line it came in. */
    NATS_LINE_END_BYTES = NATS_MAX_CONTROL_LINE + 64,
    CRLF_BYTES = 2,
};

enum { NATS_GLOBAL_ACCOUNT = 1 };

/* Its counters on the board. */
enum nats_counter {
    NATS_SLOW_CONSUMERS,
    NATS_STALE_CONNECTIONS,
    NATS_TOTAL_CONNECTIONS,
    NATS_IN_MESSAGES,
    NATS_IN_BYTES,
    NATS_OUT_MESSAGES,
    NATS_OUT_BYTES,
    NATS_SUBSCRIPTIONS,
    NATS_CONNECTIONS,
    NATS_COUNTERS
};

/* Why a connection has ended, by nats-server's numbers. Python uses more of them. */
enum nats_reason {
    NATS_AUTHENTICATION_TIMEOUT = 2,
    NATS_AUTHENTICATION_VIOLATION = 3,
    NATS_SLOW_PENDING_BYTES = 5,
    NATS_SLOW_WRITE_DEADLINE = 6,
    NATS_WRITE_ERROR = 7,
    NATS_READ_ERROR = 8,
    NATS_PARSE_ERROR = 9,
    NATS_STALE = 10,
    NATS_PROTOCOL_VIOLATION = 11,
    NATS_TOO_LARGE = 16,
    NATS_TOO_LONG = 17,
};

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

/* Whether an account has dedicated routes. While it is moving to them, interest that servers tell on pooled routes is
 * obsolete. */
enum nats_account_routes { NATS_POOLED, NATS_MOVING, NATS_DEDICATED };

/* An account and its subjects, on this acceptor. Accounts do not see each other's messages. An account's number is this
 * acceptor's own; others are told its name. */
struct nats_account {
    struct nats_shares *shares; /* its mappings and imports; NULL: none */
    struct nats_subscription
        *answers; /* receives the account's answers to requests from other accounts; NULL: there are none */
    struct subjects *subjects; /* what our clients want */
    struct subjects *remote;   /* what others want (struct nats_remote); NULL while they want nothing */
    char *name;                /* the same at all servers of the cluster */
    uint32_t name_bytes;
    uint32_t name_hash; /* decides which connection of a pool of routes carries the account */
    enum nats_account_routes routes;
    uint32_t place;   /* where its members are counted on the board; see members.h */
    uint32_t members; /* connections here that count as members */
    /* Since the acceptor began: `taken` from publishers, `given` to clients. */
    uint64_t taken_messages, taken_bytes, given_messages, given_bytes, slow_consumers;
    uint64_t inserts, removes; /* subscriptions made and removed */
    uint8_t *trace_dest;       /* where messages with traceparent are traced to; NULL: nowhere */
    uint32_t trace_dest_bytes;
    uint32_t trace_percent; /* of them; 0: all */
};

struct nats_subscription {
    struct subject_entry entry;    /* must be first: a match yields this */
    struct connection *connection; /* NULL: the server's own, for answers */
    uint64_t delivered;
    uint32_t max; /* 0: any number */
    uint32_t sid_hash;
    uint16_t sid_bytes;
    char sid[]; /* there may be millions, so no padding before it */
};
_Static_assert(NATS_MAX_CONTROL_LINE <= UINT16_MAX + 1, "a sid is shorter than the line of its SUB");

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
_Static_assert(NATS_MAX_ACCOUNTS <= UINT16_MAX + 1 && NATS_OTHERS <= UINT16_MAX, "each has a number");

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

/* Subjects bound to topics. */
struct nats_bound {
    struct subjects *subjects; /* NULL: none */
    struct subject_entry *entries;
    size_t count;
    uint8_t *queue; /* the group of servers of which one logs each message; NULL: each server logs all */
    size_t queue_bytes;
};

/* Memory for the texts of a message that was derived from another. */
struct nats_room {
    uint8_t *at;
    size_t bytes;
};

/* The NATS state of an acceptor. */
struct nats_server {
    uint32_t protocol;
    uint32_t max_payload, max_control_line;
    uint32_t max_subscriptions; /* of a connection; 0: any number */
    uint32_t max_tokens;        /* most tokens of a pattern; 0: any number */
    uint32_t subscriptions;     /* of all connections */
    uint64_t max_pending;
    uint64_t write_deadline_ns, ping_interval_ns;
    uint32_t ping_max;
    bool answers_all;     /* also answers accounts' requests about their connections and statistics */
    bool learns_accounts; /* accepts accounts that other servers name; clients cause a fetch */

    struct nats_account *accounts; /* indexed by number; 0 is not used */
    uint32_t account_count;
    uint32_t *account_names; /* numbers by name: open addressing, 0 is free */
    uint32_t account_mask;
    struct subject_walk *walk, *remote_walk;
    struct nats_bound bound;
    uint8_t *kept; /* scratch for a message to be logged, with its headers */
    size_t kept_room;
    struct nats_peer peers[BOARD_MAX_ACCEPTORS];
    struct nats_other others[NATS_OTHERS];
    struct nats_route_link links[NATS_LINKS]; /* indexed by the number among others, less that of the first */
    uint32_t route_count;                     /* routes of this acceptor, including leaf nodes and hubs */
    uint32_t leaf_count;                      /* how many of them are leaf nodes or hubs */
    uint32_t last_link, last_leaf, last_hub;  /* the numbers given last */
    uint64_t leaf_interest;                   /* how many subjects leaf nodes and hubs want, here or elsewhere */
    struct nats_origins origins;
    /* Scratch while interest is told: how much of it each cluster of leaf nodes or hubs wants. */
    uint64_t origin_weights[NATS_MOST_ORIGINS + 1], origin_stamps[NATS_MOST_ORIGINS + 1], origin_stamp;
    uint32_t max_interest; /* limits of interest over all servers */
    uint64_t interest,
        interest_bytes;  /* interest of all servers, and bytes of its text, including what is still to be removed */
    uint32_t full_route; /* the route that was given a message last and is full; 0: none */
    uint64_t stamps[NATS_OTHERS], stamp; /* marks those that have had the current message */
    uint64_t told;                       /* the number of the last interest or message sent to others */
    struct nats_permission_sets permissions;
    struct nats_answers *answers; /* answers waited for; NULL while no account makes requests to another */
    struct nats_scratch *scratch;
    struct nats_journey
        *journey; /* scratch for messages that go from account to account; NULL while accounts share nothing */
    uint8_t line_ends[2][NATS_LINE_END_BYTES];       /* for the message being delivered */
    uint8_t subjects_made[3][NATS_MAX_CONTROL_LINE]; /* subjects made by mapping; the last is the published one's */
    struct siphash_key key;
    uint64_t random;

    /* While a message is delivered nothing may be removed from the lists being walked. */
    bool delivering;
    struct nats_trace *trace;  /* of the message being delivered; NULL: it is not traced */
    struct nats_trace *traces; /* events that wait for other acceptors, oldest first */
    uint32_t traces_waiting;
    uint64_t traces_made, events_made;
    struct nats_room trace_room; /* scratch for messages whose headers are changed */
    uint8_t *described;          /* this server in events: JSON without its end; NULL: no events are published */
    size_t described_bytes;
    struct nats_subscription **expired; /* subscriptions that have had their last message */
    uint32_t expired_count, expired_capacity;
    struct connection *orphaned; /* connections closed meanwhile */

    struct connection_list publishers; /* publishers that wait for the next turn, longest first */

    struct connection
        *leaving; /* closed connections whose subscriptions are still being removed, linked by next_orphaned */
    struct nats_remotes left; /* interest of others that have left, routes first */

    struct nats_latencies *latencies; /* for measuring services; NULL while none is measured */

    uint8_t last_words[NATS_LAST_WORDS_BYTES]; /* for Python, when a connection ends */
};

/* Flags of a connection, most of them set by Python. */
enum nats_flag {
    NATS_VERBOSE = 1,
    NATS_PEDANTIC = 2,
    NATS_ECHO = 4,
    NATS_HEADERS = 8,
    NATS_NO_RESPONDERS = 16,
    NATS_MUST_CONNECT = 32,    /* only CONNECT is accepted */
    NATS_CONNECTED = 64,       /* has sent CONNECT, or begun without it as the user of those who do */
    NATS_GREETED = 128,        /* has had its first PONG */
    NATS_OWED_OK = 256,        /* +OK is due for a SUB that others have to confirm */
    NATS_DENIED_SOME = 2048,   /* not allowed all messages that its subscriptions match */
    NATS_MAY_BE_NOBODY = 1024, /* if it does not begin with CONNECT, Python says which user it is */
    NATS_COMPLAINED = 4096,    /* was told that the subject of the message now arriving is invalid */
    NATS_PROXIED = 8192,       /* a PROXY header may come first */
    NATS_OF_SERVER = 1 << 20,  /* the server's own connection, hidden from monitoring */
    NATS_SNIFF = 512,          /* Python wants the first byte, or to know that none came until the deadline */
};

struct nats {
    uint32_t account;
    uint32_t flags; /* enum nats_flag */

    struct nats_name *name;               /* what it calls itself; NULL: nothing */
    struct nats_permissions *permissions; /* NULL: everything is allowed */
    struct nats_replies *replies;         /* replies that it may send by allow_responses; NULL: none yet */
    uint8_t *info;                        /* the client as told to services of other accounts; NULL: none is told */
    size_t info_bytes;

    struct nats_subscription **sids; /* open addressing */
    uint32_t sid_count, sid_mask;
    uint32_t max_subscriptions;
    uint32_t max_payload;

    uint64_t out_messages, out_bytes; /* sent to it; bytes of payload */
    uint64_t in_messages, in_bytes;
    uint64_t active_ns;   /* when it last published or subscribed */
    uint64_t heard_ns;    /* when its last command came */
    uint64_t ping_ns;     /* when the next PING may be due; 0: never */
    uint64_t stalled_ns;  /* since when no output has left; 0: none waits */
    uint64_t deadline_ns; /* until when CONNECT, or the first byte, has to come; 0: none */
    uint64_t asked_ns;    /* when the last PING was sent */
    uint64_t rtt_ns;      /* time to its answer; 0: unknown */
    uint64_t told;        /* the number that others must confirm before its PING is answered */
    uint64_t client_id;   /* its cid in monitoring */
    uint64_t opened_ns;   /* by the exact clock */
    uint32_t pings;       /* unanswered PINGs */
    uint8_t reason;       /* enum nats_reason, or one of Python's; 0: the server has not ended it */
    bool is_member;       /* it counts as a member of its account */
    struct connection *next_orphaned;
};

/* Whether this is interest of another that has left, and is still to be removed. */
static inline bool nats_has_left(const struct nats_server *server, const struct nats_remote *r) {
    return r->epoch != server->others[r->other].epoch;
}

static inline uint32_t nats_kind_of(const struct nats_remote *r) {
    if (nats_is_hub(r->other)) return NATS_HUB_SERVERS;
    if (nats_is_leaf(r->other)) return NATS_LEAF_NODES;
    if (!nats_is_route(r->other)) return NATS_ACCEPTORS;
    return r->origin == 0 ? NATS_SERVERS : NATS_SERVERS_LEAVES;
}

static inline struct nats *nats_of(const struct connection *c) {
    return connection_state(c);
}

static inline struct nats_server *nats_server_of(const struct acceptor *a, const struct connection *c) {
    return codec_state(a, c->protocol);
}

/* A measured round-trip time is used for this long. */
#define NATS_RTT_VALID_NS ((uint64_t)3600 * 1000000000u)

static inline bool nats_is(const struct connection *c, enum nats_flag flag) {
    return (nats_of(c)->flags & flag) != 0;
}

static inline struct nats_account *nats_account_of(const struct acceptor *a, const struct connection *c) {
    return &nats_server_of(a, c)->accounts[nats_of(c)->account];
}

/* What a client calls itself, or a server is called. */
struct nats_name {
    uint32_t bytes;
    char text[];
};

static inline struct text nats_name_of(const struct nats_name *name) {
    if (name == NULL) return (struct text){0};
    return (struct text){(const uint8_t *)name->text, name->bytes};
}

static inline uint8_t *nats_put(uint8_t *out, const void *text, size_t bytes) {
    memcpy(out, text, bytes);
    return out + bytes;
}

/* A message being delivered. The payload begins with `header_bytes` of headers. */
struct nats_message {
    struct text subject, reply;
    struct text size, header_size; /* as the publisher wrote them */
    const uint8_t *payload;
    size_t payload_bytes, header_bytes;
    uint64_t from;   /* nats_sender(); 0: it came over a route */
    uint64_t tried;  /* acceptors that should have chosen a group member but had none, as bits */
    uint32_t origin; /* the cluster of leaf nodes that has the message already; 0: none known here */
    bool joined;     /* reply, sizes, payload and its CRLF are contiguous, as a subscriber gets them */
};

/* A number of a client that is unique over all acceptors. */
static inline uint64_t nats_sender(const struct acceptor *a, const struct connection *c) {
    return ((uint64_t)a->index + 1) << 32 | c->number;
}

/* --- nats_say.c --------------------------------------------------------------------------------------------------- */

void nats_say(struct acceptor *a, struct connection *c, const void *text, size_t bytes);
void nats_say_error(struct acceptor *a, struct connection *c, const char *text);
/* Says +OK if the client is verbose. */
void nats_say_ok(struct acceptor *a, struct connection *c);
/* Says `before`, then `text` in double quotes as Go's %q writes them. */
void nats_say_quoted(struct acceptor *a, struct connection *c, const char *before, struct text text);
/* Sends -ERR 'Permissions Violation for WHAT "subject" using queue "queue"'. */
void nats_say_violation(struct acceptor *a, struct connection *c, const char *what, struct text subject,
                        struct text queue);
/* Closes the connection when its output has been sent, or is not taken in time. */
void nats_hang_up(struct acceptor *a, struct connection *c, enum nats_reason reason);
/* Says -ERR 'text' and ends the connection. */
void nats_end(struct acceptor *a, struct connection *c, enum nats_reason reason, const char *text);

/* --- nats_name.c -------------------------------------------------------------------------------------------------- */

/* Sets the name of a client or server. Without memory it has none. */
void nats_set_name(struct nats_name **name, const void *text, size_t bytes);

/* --- nats_random.c ------------------------------------------------------------------------------------------------ */

uint64_t nats_random(struct nats_server *server);

/* --- nats_websocket.c --------------------------------------------------------------------------------------------- */

/* Tells a websocket's client, behind all other output, why its connection ends. */
void nats_say_closing(struct acceptor *a, struct connection *c);

/* --- nats_proxied.c ----------------------------------------------------------------------------------------------- */

/* Looks for a PROXY header at the beginning of the input. A header goes to Python, which is also told if there is none.
 * Returns how many bytes were used. */
size_t nats_take_proxied(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);
/* The header has not come in time. */
void nats_proxied_in_vain(struct acceptor *a, struct connection *c);

/* --- nats_subscription.c ------------------------------------------------------------------------------------------ */

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
/* The next subscription, from *place on (begin with 0), that the connection may no longer have; NULL: no more. *place
 * stays at it, because another moves there when it is removed. */
struct nats_subscription *nats_next_forbidden(const struct acceptor *a, struct connection *c, uint32_t *place);
/* Removes all subscriptions of a connection. */
void nats_let_go(struct acceptor *a, struct connection *c);
/* The same for a closed connection, at most *left of them, which is reduced. True if those were all. */
bool nats_let_go_some(struct acceptor *a, struct connection *c, size_t *left);

/* --- nats_leaving.c ----------------------------------------------------------------------------------------------- */

/* A client has gone: removes its subscriptions, piece by piece if they are many. */
void nats_client_left(struct acceptor *a, struct connection *c);
/* One of the others has gone, and with it its interest. */
void nats_other_left(struct acceptor *a, struct nats_server *server, uint32_t other);
/* Whether the limit of interest allows one more. If need be, interest that is to be forgotten makes room. */
bool nats_may_hear(struct nats_server *server);
void nats_leave_on(struct acceptor *a, void *state);
/* The acceptor ends: frees what has not been forgotten yet. `freed` frees what a connection refers to. */
void nats_leaving_free(struct nats_server *server, void (*freed)(struct connection *));

/* --- nats_deliver.c ----------------------------------------------------------------------------------------------- */

/* Delivers a message that this server publishes itself. */
void nats_deliver_as_server(struct acceptor *a, struct nats_server *server, uint32_t account,
                            const struct nats_message *message);
/* A subscription of the connection without a queue group that matches a subject, or NULL. */
struct nats_subscription *nats_own_subscription(struct acceptor *a, struct connection *c, struct text subject);

/* --- nats_journey.c ----------------------------------------------------------------------------------------------- */

/* Delivers a message of one of our clients to all who want it; false if nobody did. */
bool nats_deliver(struct acceptor *a, struct connection *from, const struct nats_message *message);
/* Delivers a message from another acceptor to our clients: to plain subscribers if `alone`, and to one member of each
 * group named. Groups without members here stay in `groups`; returns how many. */
size_t nats_deliver_here(struct acceptor *a, struct nats_server *server, uint32_t account,
                         const struct nats_message *message, bool alone, struct text *groups, size_t count);
/* Delivers a message that came over a route, from `from`: to all plain subscribers and to one member of each group
 * named, on this server and behind its leaf nodes. A leaf node's message goes to routes too, but not back to its
 * cluster. A hub's goes to no route, since other servers have hubs of their own. `kept`: it is logged here, so no other
 * server of the topics-queue may log it. */
void nats_deliver_routed(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t from, bool kept,
                         const struct nats_message *message, const struct text *groups, size_t count);
/* Delivers a message that this server publishes in an account, whose imports hold, too. */
void nats_deliver_on(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_message *m);

/* --- nats_turns.c ------------------------------------------------------------------------------------------------- */

/* Whether a client or server may publish in this turn; else its connection stalls until a later one. */
bool nats_wait_for_turn(struct acceptor *a, struct nats_server *server, struct connection *c);
static inline bool nats_may_hand_out(struct acceptor *a, struct nats_server *server, struct connection *c) {
    return a->handed < HANDED_PER_TURN || nats_wait_for_turn(a, server, c);
}

/* At the beginning of a turn: lets publishers go on, those that have waited longest first. */
void nats_hand_on(struct acceptor *a, struct nats_server *server);

/* --- nats_mesh_send.c --------------------------------------------------------------------------------------------- */

/* Most groups in one message, and bytes of their names; a single name always fits. As a server is sent a message only
 * once, no more groups can match a subject there. A nats-server has no such limit, and sends lines of any length. */
enum {
    NATS_GROUPS = 1 << 16,
    NATS_GROUPS_BYTES = 1 << 20,
    NATS_MAX_ROUTE_LINE = NATS_GROUPS_BYTES + 2 * NATS_MAX_CONTROL_LINE, /* subject, reply and sizes beside them */
    NATS_ROUTE_ARGUMENTS = 6 + NATS_GROUPS, /* account, subject, sign, reply, two sizes, groups */
};

/* Returns the bytes that a group's name takes up on a ring. */
static inline size_t nats_group_bytes(size_t name_bytes) {
    return sizeof(uint32_t) + name_bytes;
}

/* Groups of which another acceptor or server is to choose a member. */
struct nats_chosen {
    uint32_t other[NATS_GROUPS];
    struct text name[NATS_GROUPS];
    size_t count;
    size_t bytes; /* NATS_GROUPS_BYTES at most */
};

/* Scratch for the message being delivered: too large for the stack; pages are used only when written. */
struct nats_scratch {
    struct text words[NATS_ROUTE_ARGUMENTS]; /* words of a server's line, or groups that another acceptor names */
    struct nats_chosen chosen;
    uint8_t names[NATS_GROUPS_BYTES]; /* names of the groups for one acceptor */
};

enum {
    PASSED_ALONE = 1,
    PASSED_FROM_ROUTE = 4,
    PASSED_ONLY_TRACED = 8,  /* it is traced, and delivered to nobody */
    PASSED_HANDED_OVER = 16, /* it is traced, and has come by another acceptor */
};

/* Sends a message to another acceptor, for its plain subscribers and for groups; a message for a route goes to the
 * acceptor that has it. `flags` are PASSED_*. */
void nats_pass_to(struct acceptor *a, struct nats_server *server, uint32_t account, uint32_t other, uint32_t flags,
                  const struct nats_message *m, const struct nats_chosen *chosen);
/* Tells another acceptor what has become here of a message that it traces. */
void nats_tell_traced(struct acceptor *a, const struct nats_server *server, uint32_t other, uint64_t number,
                      struct text head, struct text events);
/* Tells other acceptors that a route has ended, or that it is full or no longer. */
void nats_tell_lost(struct acceptor *a, struct nats_server *server, uint32_t route);
void nats_tell_full(struct acceptor *a, struct nats_server *server, uint32_t route, bool full);
/* Tells others of an account, before they hear of anything in it. */
void nats_tell_account(struct acceptor *a, const struct nats_server *server, uint32_t number);

/* --- nats_pass.c -------------------------------------------------------------------------------------------------- */

/* Others with plain subscribers for a message. */
struct nats_alone {
    uint32_t count;
    uint16_t other[NATS_OTHERS];
};

/* Sends a message to the others in `alone`, for their plain subscribers, and to those chosen for groups. */
void nats_pass_on(struct acceptor *a, struct nats_server *server, uint32_t account, const struct nats_message *message,
                  uint32_t flags, const struct nats_alone *alone, const struct nats_chosen *chosen);

/* --- nats_interest.c ---------------------------------------------------------------------------------------------- */

/* Tells the others that `weight` clients here want a subject; 0: none any more. */
void nats_tell(struct acceptor *a, struct nats_server *server, uint32_t account, struct text subject, struct text queue,
               uint32_t weight);
/* Notes that `weight` subscribers of `other`, of cluster `origin`, want a subject, and tells the others of it. */
void nats_hear_interest(struct acceptor *a, struct nats_server *server, uint32_t other, uint32_t origin,
                        uint32_t account, struct text subject, struct text queue, uint32_t weight);
/* Forgets interest without telling anybody. */
void nats_forget_remote(struct nats_server *server, struct nats_remote *wanted);
/* Whether there is anybody to tell what our clients want. */
static inline bool nats_has_others(const struct acceptor *a, const struct nats_server *server) {
    return a->mesh_there != 0 || server->route_count > 0;
}

/* --- nats_mesh.c -------------------------------------------------------------------------------------------------- */

/* Whether all others know the connection's subscriptions and have delivered its messages; else it stalls until they
 * have. */
bool nats_is_known(struct acceptor *a, struct connection *c);
/* Lets publishers go on that waited for a route. */
void nats_wake_route(struct acceptor *a, struct nats_server *server, uint32_t route);
void nats_mesh_joined(struct acceptor *a, void *state, uint32_t other);
void nats_mesh_lost(struct acceptor *a, void *state, uint32_t other);
void nats_mesh_heard(struct acceptor *a, void *state, uint32_t other, const struct message *message);
/* Goes on telling newcomers. */
void nats_mesh_tell_on(struct acceptor *a, struct nats_server *server);
bool nats_may_serve(const struct acceptor *a, const void *state);

/* --- nats_account.c ----------------------------------------------------------------------------------------------- */

/* Returns the number of an account by its name, or 0. */
uint32_t nats_account_named(const struct nats_server *server, struct text name);
/* The same, made if need be; 0 when the limit is reached. */
uint32_t nats_open_account(struct nats_server *server, struct text name);
void nats_accounts_close(struct nats_server *server);
/* Counts a connection as a member of its account, unless all acceptors together have `most` members. */
bool nats_join(struct acceptor *a, struct connection *c, uint64_t most);
void nats_leave(struct acceptor *a, struct connection *c);

/* --- nats_figures.c ----------------------------------------------------------------------------------------------- */

/* See struct codec. */
int64_t nats_ask(struct acceptor *a, void *state, const char *what, const struct codec_question *question);
size_t nats_last_words(struct acceptor *a, struct connection *c, const uint8_t **words);
/* The same for a leaf node or a hub; or, behind the figures, what was wrong with its compressed input. */
size_t nats_leaf_last_words(struct acceptor *a, struct connection *c, const uint8_t **words);

/* --- nats_clock.c ------------------------------------------------------------------------------------------------- */

/* Nanoseconds since 1970. */
uint64_t nats_wall_now(const struct acceptor *a);
/* Sets the connection's timer to when something may be due next. */
void nats_schedule(struct acceptor *a, struct connection *c);
void nats_sent(struct acceptor *a, struct connection *c);
/* A client or server has answered a PING. */
static inline void nats_note_pong(const struct acceptor *a, uint32_t *pings, uint64_t asked_ns, uint64_t *rtt_ns) {
    uint64_t now = exact_now(a);
    if (*pings > 0) *rtt_ns = now > asked_ns ? now - asked_ns : 1;
    *pings = 0;
}

/* --- nats_due.c --------------------------------------------------------------------------------------------------- */

/* Hands the first byte, if it has come, to Python, which waits for it. */
void nats_sniffed(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);
void nats_due(struct acceptor *a, struct connection *c);

#endif
