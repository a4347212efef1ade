/* The state of an acceptor, as all files of its loop and the codecs see it. It names no protocol. */
#ifndef MQ_ACCEPTOR_STATE_H
#define MQ_ACCEPTOR_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "acceptor/bounds.h"
#include "acceptor/buffer.h"
#include "acceptor/calls.h"
#include "acceptor/codec.h"
#include "acceptor/connection.h"
#include "base/adaptive_spin.h"
#include "base/bindings.h"
#include "base/heap.h"
#include "ringbuf/board.h"
#include "ringbuf/channel.h"
#include "ringbuf/message.h"

/* A list of connections by number. Each is looked up when its turn comes, as it may be closed by then. */
struct connection_list {
    uint32_t *items;
    size_t count, capacity;
};

/* A worker, as an acceptor sees it. */
struct worker_link {
    struct channel *channel;        /* NULL: the worker is gone */
    struct connection_list stalled; /* connections that wait for it */
    struct connection_list larges;  /* connections with a large body, which wait until it has written others */
    size_t large_bytes;             /* large bodies it has been sent and not acknowledged: see LARGE_ASKED_BYTES */
    struct growing publishes;       /* the PUBLISHes sent last, which may grow; see publishes.c */
    struct growing requests;        /* the same for other requests; see requests.c */
    uint32_t requests_conn;         /* the connection whose requests those are */
    bool backlogged;
    bool lends; /* output refers to messages in its ring, which is given back later: see borrowed.c */
};

/* Another acceptor; see mesh.h. */
struct mesh_link {
    struct channel *channel; /* NULL: there is no such acceptor */
    struct connection_list stalled;
    bool backlogged;
    bool quiet; /* it takes no more input: see acceptor_say_quiet */
};

/* The data of an epoll event: the number of a connection, or one of these. */
#define EVENT_WAKE     ((uint64_t)1 << 32)
#define EVENT_CONTROL  ((uint64_t)2 << 32)
#define EVENT_POKE     ((uint64_t)3 << 32)
#define EVENT_LISTENER ((uint64_t)4 << 32) /* plus its index */

struct listener {
    int fd;
    uint8_t protocol;
    uint8_t number; /* its own for as long as the acceptor lives */
    bool registered;
    bool filtered; /* its connections are filtered from the start */
};

struct pending_upcall {
    struct upcall upcall;
    uint8_t *owned; /* the memory of upcall.bytes */
};

/* Connections that have not sent a command yet: see silent.h. Each has the place of its index in the table of
 * connections; before, after, first and last are an index plus one, or 0. */
struct silent_place {
    uint64_t since_ns;    /* when it joined the list, ... */
    uint32_t moved_bytes; /* ... and what it had moved then */
    uint32_t before, after;
};
struct silent_list {
    struct silent_place *places;
    uint32_t first, last;
    uint32_t closed;  /* to give way, since Python was told last ... */
    uint64_t said_ns; /* ... at this time; 0: never */
};

/* The state of packed.c. */
struct packed_kept {
    struct packed_waiting *waiting; /* deliveries that wait for Python, oldest first */
    uint64_t id;                    /* the message opened last; 0: none */
    bool is_opened;                 /* Python could decompress it */
    uint8_t *bytes;
    size_t bytes_count;
    struct message *said; /* scratch for the messages made from a batch, as large as the largest so far */
    size_t said_bytes;
};

struct acceptor {
    uint32_t index, workers, shards;
    uint32_t acceptors; /* how many serve clients, this one included */
    int epoll_fd, wake_fd, control_fd;
    int poke_fd; /* an eventfd by which this process wakes itself */
    _Atomic uint32_t poked;
    bool polled; /* run by acceptor_poll, so the next turn comes only when poke_fd is written to */
    bool live;   /* turns read the clock */
    uint64_t now_ns;
    uint64_t turn_ns;   /* when the current turn began; 0: none is under way */
    uint64_t looked_ns; /* when events were last asked for */
    size_t looks_due;   /* timers that are due wait for so many more looks at the sockets, see timers_may_run */
    uint64_t wall_ns;   /* the same by the wall clock; 0: time is passed in */
    struct board *board;
    struct acceptor_board *count;
    const struct codec_table *codecs;
    void *codec_states[BOARD_PROTOCOLS]; /* indexed by protocol - 1 */
    /* Indexed likewise: what clients asked for without the right to it, see acceptor_refused. */
    uint64_t refused[BOARD_PROTOCOLS];

    struct worker_link links[BOARD_MAX_WORKERS];
    struct worker_link *hearing; /* the link whose message is being handled; NULL: none */
    uint64_t published_to;       /* workers with requests not yet published on their ring, as bits */
    uint64_t unhurried_to;       /* workers with such as need not wake them: see peer_send_unhurried */
    uint64_t shown_to;           /* workers that have been shown these and not been woken since, as bits ... */
    uint64_t wake_ns;            /* ... and when they are, unless something else wakes them before */
    struct mesh_link mesh[BOARD_MAX_ACCEPTORS];
    uint64_t mesh_there; /* acceptors with a link, as bits */
    bool bridges;        /* some topics are bridged: see bridge.h */
    struct {
        struct bridge_copy *first, *last;
        struct connection_list waiting;
    } untold; /* messages of bridged topics not told yet, and publishers that wait until they are: see bridge.h */
    uint64_t mesh_paused;       /* acceptors whose messages wait until a codec is done with one of them, as bits */
    uint64_t mesh_published_to; /* acceptors with messages not yet published on their ring, as bits */
    struct bindings bindings;
    struct packed_kept packed;

    struct connection **table; /* indexed by the low bits of a number */
    uint16_t *generations;
    uint32_t *free_indexes; /* a queue: the index free for longest is used next. Each is XORed with its place, so that
                               zeros, which take no memory, are all indexes in order */
    uint32_t free_head, free_count;
    uint32_t highest_index; /* no higher one is in use */
    uint32_t connections;
    struct connection *closed; /* to be freed at the end of the turn */

    struct listener listeners[MAX_LISTENERS];
    uint32_t listener_count;
    uint32_t listeners_made;
    bool accepting;
    bool quiet;      /* no more input is taken, except of other servers: see acceptor_quiesce */
    bool said_quiet; /* ... and none of those: see acceptor_say_quiet */

    uint32_t mask_keys[MASK_KEYS]; /* random, for frames of websockets; each is used once */
    uint32_t mask_keys_left;

    struct blocks blocks;
    struct connection_list dirty;
    struct connection_list borrowers; /* connections whose output may refer to messages in rings */
    bool borrows;                     /* some link lends */
    /* Dirty, but put off to later turns (SENDS_PER_TURN): in the order in which they came. */
    struct connection_list late;
    struct connection_list runnable;
    struct connection_list running;    /* the list being worked off now */
    struct connection_list for_python; /* connections whose commands wait to be handed to Python */
    bool handed_large;                 /* a large one has gone to it in this turn */
    bool shares;                       /* one of these connections is being run: */
    uint32_t share;                    /* ... so many commands it may still hand over */
    uint32_t commands;                 /* that Python has not taken yet */
    size_t command_bytes;
    uint64_t codecs_left;            /* codecs whose go_on is to be called next turn, as bits */
    uint8_t *scratch;                /* the buffer that all connections receive into */
    uint32_t filter_pieces;          /* pieces asked of filters in this turn */
    size_t opened_bytes, made_bytes; /* decompressed and compressed in this turn: see compression.c */

    struct pending_upcall *upcalls; /* a ring buffer */
    size_t upcall_head, upcall_count, upcall_capacity;
    size_t upcalls_bytes;  /* what those that wait hold */
    uint8_t *upcall_bytes; /* of the upcall handed out last */
    bool control_pending;

    uint32_t expected;   /* replies due soon, to requests that never wait */
    bool unheard;        /* more replies are there than a turn takes in */
    uint32_t held_turns; /* turns for which output has been held back for them (HELD_BYTES); 0: none is */
    bool reserved;       /* a reserve was sent since the last sleep: its reply may come soon */

    size_t max_buffered_bytes;  /* limit over all connections */
    size_t receive_bytes;       /* how much is received at a time now, ... */
    uint64_t paced_ns;          /* ... and since when what was received last is worked off: see LONG_RECEIVING_NS */
    size_t receive_alone_bytes; /* how much at a time when few connections have input: see RECEIVE_ALONE_BYTES */
    struct connection_list roomless; /* connections stalled for room, longest first */
    uint32_t overdraft;              /* the one connection that may exceed the limit; 0: none */
    const void *overdraft_lent;      /* its input, now lent to a worker's channel */
    bool room_is_back;               /* room was freed since the waiting ones were last checked */
    uint64_t next_sweep_ns;
    uint64_t next_trim_ns;     /* when the pools are next checked for unused memory */
    uint64_t trim_channels_ns; /* when to do that with what the channels keep */
    bool trims_again;          /* then the heap is trimmed whatever they hold */

    uint32_t max_connections;
    uint64_t accept_again_ns; /* while not accepting: when that is tried next */
    struct silent_list silent;
    struct heap timers; /* connections with a timer, by when it is due */
    uint32_t *timer_places;
    size_t output_high_bytes;
    struct adaptive_spin adaptive_spin;
    int events_taken;  /* events of the last turn */
    size_t sent_bytes; /* sent in this turn */
    size_t handed;     /* recipients considered for messages in this turn: see HANDED_PER_TURN */
    size_t put_off;    /* connections that were given output in this turn and will be sent it in a later one */
    size_t heard_to;   /* `handed` when the other acceptors' messages had been handled */
    bool others_next;  /* clients here had their share last, so other acceptors go first next time */
};

/* The state that a codec keeps for this acceptor. */
static inline void *codec_state(const struct acceptor *a, uint32_t protocol) {
    return a->codec_states[protocol - 1];
}

static inline void board_add(uint64_t *count, uint64_t by) {
    /* Relaxed: this is the only writer, and readers need only a value that was true at some time. */
    __atomic_store_n(count, *count + by, __ATOMIC_RELAXED);
}

/* Adds to a counter of a codec. */
static inline void codec_count_add(struct acceptor *a, const struct connection *c, uint32_t counter, uint64_t by) {
    board_add(&a->count->counters[c->protocol - 1][counter], by);
}

/* Takes ids for `count` messages of a topic. Returns the first; each next one is `shards` higher. */
static inline uint64_t ids_take(struct acceptor *a, const struct binding *topic, uint32_t count) {
    /* Relaxed: ids must differ, nothing else is ordered by them. */
    return atomic_fetch_add_explicit(&a->board->next_id, count, memory_order_relaxed) * a->shards + topic->shard;
}

/* Drain mode: new messages are refused. */
static inline bool draining(const struct acceptor *a) {
    /* Relaxed: the switch is thrown once, and it does not matter when exactly it is seen. */
    return atomic_load_explicit(&a->board->draining, memory_order_relaxed) != 0;
}

/* Whether no connection has output that waits for a turn. */
static inline bool is_all_sent(const struct acceptor *a) {
    return a->dirty.count == 0 && a->late.count == 0;
}

static inline uint64_t bit_of(uint32_t worker) {
    return (uint64_t)1 << worker;
}

static inline uint32_t first_of(uint64_t workers) {
    return (uint32_t)__builtin_ctzll(workers);
}

enum { INDEX_BITS = 20 };
_Static_assert(MAX_CONNECTIONS <= 1u << INDEX_BITS, "an index fits a number");

static inline struct connection *connection_find(const struct acceptor *a, uint32_t number) {
    uint32_t index = number & ((1u << INDEX_BITS) - 1);
    if (index >= MAX_CONNECTIONS) return NULL;
    struct connection *c = a->table[index];
    return c != NULL && c->number == number ? c : NULL;
}

static inline uint32_t connection_index(const struct connection *c) {
    return c->number & ((1u << INDEX_BITS) - 1);
}

static inline struct compression *compression_of(const struct connection *c) {
    return c->framing != NULL ? c->framing->compression : NULL;
}

static inline bool stalled(struct connection *c, enum stall why) {
    c->stall = (uint8_t)why;
    return false;
}

/* The same, counted on the board, for a stall that the connection itself cannot end. */
static inline bool stalled_by(struct acceptor *a, struct connection *c, enum stall why, enum board_stall counted) {
    board_add(&a->count->loop.stalls[counted], 1);
    return stalled(c, why);
}

/* Messages are handed out one after the other until this many recipients have been considered in a turn. While
 * connections wait for later turns to be sent their output, the lower limit holds, so that waiting output does not grow
 * faster than it is sent. */
enum {
    HANDED_PER_TURN = 1 << 16,
    HANDED_WHILE_LATE = HANDED_PER_TURN / 32,
    HANDED_BYTES = 256 /* copying this much costs about as much as considering one recipient */
};

/* The exact time. a->now_ns is a little behind, which is good enough for anything that is not measured. */
static inline uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
static inline uint64_t exact_now(const struct acceptor *a) {
    return a->live ? clock_ns() : a->now_ns;
}

#endif
