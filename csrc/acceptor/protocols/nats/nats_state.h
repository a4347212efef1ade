/* The NATS client protocol: PUB, HPUB, SUB, UNSUB, PING, PONG and output to clients. CONNECT, INFO, accounts and users
 * are handled by Python (acceptor/protocols/nats/serving.py).
 *
 *   nats.c                 parses lines and handles commands
 *   nats_subscription.c    a connection's subscriptions, by their names (sids)
 *   nats_account.c         accounts by their names
 *   nats_account_use.c     ... who uses them
 *   nats_account_life.c    ... and when they go
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
 *   nats_fanout.c          ... or over several turns
 *   nats_fanouts.c         ... in the later ones
 *   nats_mesh.c            what other acceptors tell
 *   nats_mesh_send.c       ... and are told
 *   nats_pass.c            messages for others
 *   nats_interest.c        what others want
 *   nats_looks.c           ... and accounts that import very many streams
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
 *   nats_logged.c          what clients say and hear, for the log file
 *   nats_figures.c         figures of connections, for monitoring
 *   nats_route.h           other servers
 *   nats_origins.h         ... and the clusters of leaf nodes behind them
 *
 * Messages are not stored: a message is copied to the output of those that want it, or dropped. A client that does not
 * take its output is closed, so a publisher never waits for one.
 *
 * This server accepts, refuses and sends what a nats-server does.
 */
#ifndef MQ_NATS_STATE_H
#define MQ_NATS_STATE_H

#include <string.h>

#include "acceptor/engine.h"
#include "acceptor/protocols/nats/nats_origins_state.h"
#include "acceptor/protocols/nats/nats_others.h"
#include "acceptor/protocols/nats/nats_permissions_state.h"
#include "base/subjects.h"
#include "base/text.h"

struct nats_account;
struct nats_answers;
struct nats_awards;
struct nats_fanout;
struct nats_latencies;
struct nats_log;
struct nats_look;
struct nats_permissions;
struct nats_replies;
struct nats_scratch;
struct nats_shares;
struct nats_subscription;
struct nats_trace;
struct subject_walk;
struct subjects;

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
    NATS_TOO_MANY_SUBSCRIPTIONS = 18,
};

/* Subjects bound to topics. */
struct nats_bound {
    struct subjects *subjects; /* NULL: none */
    struct subject_entry *entries;
    size_t count;
    uint8_t *queue; /* the group of servers of which one logs each message; NULL: each server logs all */
    size_t queue_bytes;
};

/* Messages that are given to their recipients over several turns: see nats_fanout.h. */
struct nats_fanouts {
    struct nats_fanout *first, *last; /* the oldest goes on first; NULL: none */
    uint32_t count;
    size_t bytes;
    uint64_t origin; /* who sent the message now being delivered; 0: all are given it in this turn */
};

/* What is looked for in streams that accounts import, in pieces: see nats_looks.h. */
struct nats_look_list {
    struct nats_look *first, *last; /* oldest first; NULL: none */
    uint64_t made;                  /* the number of the last */
    uint32_t parting;               /* how many are for last members of groups that leave */
};

/* An account that may be gone; see nats_account_referred(). */
struct nats_account_ref {
    uint32_t number, life;
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
    bool write_retries;   /* a client that has not taken all in time may go on, if it has taken some */
    bool answers_all;     /* also answers accounts' requests about their connections and statistics */
    bool learns_accounts; /* accepts accounts that other servers name; clients cause a fetch */

    struct nats_account *accounts; /* indexed by number; 0 is not used */
    uint32_t account_count;        /* numbers given so far, of which some may be free */
    uint32_t free_account;         /* a free number; 0: none */
    uint32_t free_accounts;        /* how many are free */
    uint32_t unused_account;       /* the first account that may be unused; 0: none */
    uint32_t *account_names;       /* numbers by name: open addressing, 0 is free */
    uint32_t account_mask;
    struct subject_walk *walk, *remote_walk;
    uint64_t walked; /* parts of patterns that these have looked at, beyond a few, and that do not count yet */
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
    struct nats_shares *making; /* what an account is being given in pieces; NULL: nothing */
    uint32_t making_for;
    struct nats_shares *old_shares; /* what accounts had before, freed in pieces */
    struct nats_answers *answers;   /* answers waited for; NULL while no account makes requests to another */
    struct nats_scratch *scratch;
    struct nats_look_list looks;
    struct nats_awards *awards; /* groups of importing accounts; NULL while accounts share nothing */
    /* Scratch for messages that go from account to account; NULL while accounts share nothing. */
    struct nats_journey *journey;
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
    struct nats_fanouts fanouts;

    /* Closed connections whose subscriptions are still being removed, linked by next_orphaned. */
    struct connection *leaving;
    struct nats_remotes left; /* interest of others that have left, routes first */

    struct nats_log *log; /* NULL: what clients say and hear is not logged */

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
    NATS_MUST_CONNECT = 32,     /* only CONNECT is accepted */
    NATS_CONNECTED = 64,        /* has sent CONNECT, or begun without it as the user of those who do */
    NATS_GREETED = 128,         /* has had its first PONG */
    NATS_OWED_OK = 256,         /* +OK is due for a SUB that others have to confirm */
    NATS_DENIED_SOME = 2048,    /* not allowed all messages that its subscriptions match */
    NATS_MAY_BE_NOBODY = 1024,  /* if it does not begin with CONNECT, Python says which user it is */
    NATS_COMPLAINED = 4096,     /* was told that the subject of the message now arriving is invalid */
    NATS_PROXIED = 8192,        /* a PROXY header may come first */
    NATS_LOGGED = 1 << 14,      /* what it says and hears is logged */
    NATS_LOOKING = 1 << 15,     /* its last SUB or UNSUB is looked for in streams that its account imports */
    NATS_UNCONFIRMED = 1 << 16, /* ... and others have to confirm that they have done so, before its next command */
    NATS_PARTING = 1 << 17,     /* the same of a pattern that it gives up when it is closed */
    NATS_OF_SERVER = 1 << 20,   /* the server's own connection, hidden from monitoring */
    NATS_SNIFF = 512,           /* Python wants the first byte, or to know that none came until the deadline */
};

struct nats {
    uint32_t account;
    uint32_t flags; /* enum nats_flag */

    struct nats_name *name;               /* what it calls itself; NULL: nothing */
    struct nats_permissions *permissions; /* NULL: everything is allowed */
    struct nats_replies *replies;         /* replies that it may send by allow_responses; NULL: none yet */
    struct nats_name *info;               /* the client as told to services of other accounts; NULL: none is told */

    struct nats_subscription **sids; /* chains: see base/linear_hashing.h */
    uint32_t sid_count, sid_buckets;
    uint32_t max_subscriptions;
    uint32_t max_payload;

    uint64_t out_messages, out_bytes; /* sent to it; bytes of payload */
    uint64_t in_messages, in_bytes;
    uint64_t active_ns;   /* when it last published or subscribed */
    uint64_t heard_ns;    /* when its last command came */
    uint64_t ping_ns;     /* when the next PING may be due; 0: never */
    uint64_t write_ns;    /* when the write under way began (nats_write.h); 0: nothing waits */
    uint64_t deadline_ns; /* until when CONNECT, or the first byte, has to come; 0: none */
    uint64_t asked_ns;    /* when the last PING was sent */
    uint64_t rtt_ns;      /* time to its answer; 0: unknown */
    uint64_t told;        /* the number that others must confirm before its PING is answered */
    uint64_t client_id;   /* its cid in monitoring */
    uint64_t opened_ns;   /* by the exact clock */
    uint32_t write_end;
    uint16_t pings; /* unanswered PINGs */
    uint8_t reason; /* enum nats_reason, or one of Python's; 0: the server has not ended it */
    bool is_member; /* it counts as a member of its account */
    struct connection *next_orphaned;
};

/* With what malloc adds, half a KiB. */
_Static_assert(sizeof(struct connection) + sizeof(struct nats) <= 504, "an idle connection is small");

static inline struct nats *nats_of(const struct connection *c) {
    return connection_state(c);
}

static inline struct nats_server *nats_server_of(const struct acceptor *a, const struct connection *c) {
    return codec_state(a, c->protocol);
}

static inline bool nats_is(const struct connection *c, enum nats_flag flag) {
    return (nats_of(c)->flags & flag) != 0;
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

/* Whether there is anybody to tell what our clients want. */
static inline bool nats_has_others(const struct acceptor *a, const struct nats_server *server) {
    return a->mesh_there != 0 || server->route_count > 0;
}

#endif
