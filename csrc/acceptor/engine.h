/* The engine: what the acceptor's C files and the codecs share. Nothing else includes it, and it names no protocol.
 *
 *   acceptor.c    the functions that Python calls
 *   turn.c        a turn: receive replies, send bytes, wait, receive bytes, send requests; and when to sleep
 *   socket.c      one connection's bytes: receive, parse, send
 *   life.c        connections are made and closed; lists.c, in which they wait; slots.c, what they hold of workers
 *   workers.c     the workers: attach, lose, receive replies
 *   replies.c     what becomes of a reply; in the order of the requests
 *   asks.c        requests to workers
 *   topics.c      the numbers of topics
 *   publishes.c   consecutive PUBLISHes, sent as one message
 *   upcalls.c     what Python is told
 *   wake.c        the next turn comes soon
 *   timers.c      a timer for each connection that wants one
 *   room.c        the memory of all connections together: which ones wait, or are closed, when it is too much
 *   filter.c      a connection whose bytes pass through Python on their way
 *   framing.c     a connection that is a websocket
 *   compression.c a connection that is compressed
 *   migration.c   a connection that moves to another process, or comes from one
 *   local.c       requests made by Python, not by a client, and running inside another event loop
 *   packed.c      batches opened for consumers that do not know their headers
 *   codec.h       the interface of a wire protocol
 */
#ifndef MQ_ENGINE_H
#define MQ_ENGINE_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acceptor/acceptor.h"
#include "acceptor/bounds.h"
#include "acceptor/buffer.h"
#include "acceptor/codec.h"
#include "acceptor/connection.h"
#include "base/adaptive_spin.h"
#include "base/bindings.h"
#include "base/heap.h"
#include "ringbuf/board.h"
#include "ringbuf/channel.h"
#include "ringbuf/message.h"
#include "ringbuf/request_each.h"

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
};

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

/* The state of packed.c. */
struct packed_kept {
    struct packed_waiting *waiting; /* deliveries that wait for Python, oldest first */
    uint64_t id;                    /* the message opened last; 0: none */
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
    uint64_t turn_ns; /* when the current turn began; 0: none is under way */
    uint64_t wall_ns; /* the same by the wall clock; 0: time is passed in */
    struct board *board;
    struct acceptor_board *count;
    const struct codec_table *codecs;
    void *codec_states[BOARD_PROTOCOLS]; /* indexed by protocol - 1 */
    uint64_t
        refused[BOARD_PROTOCOLS]; /* the same; what clients asked for without the right to it, see acceptor_refused */

    struct worker_link links[BOARD_MAX_WORKERS];
    struct worker_link *hearing; /* the link whose message is being handled; NULL: none */
    uint64_t published_to;       /* workers with requests not yet published on their ring, as bits */
    struct mesh_link mesh[BOARD_MAX_ACCEPTORS];
    uint64_t mesh_there; /* acceptors with a link, as bits */
    bool bridges;        /* some topics are bridged: see bridge.h */
    struct {
        struct bridge_copy *first, *last;
        struct connection_list waiting;
    } untold; /* messages of bridged topics not told yet, and publishers that wait until they are: see bridge.h */
    uint64_t mesh_published_to; /* acceptors with messages not yet published on their ring, as bits */
    struct bindings bindings;
    struct packed_kept packed;

    struct connection **table; /* indexed by the low bits of a number */
    uint16_t *generations;
    uint32_t *free_indexes; /* a queue: the index free for longest is used next */
    uint32_t free_head, free_count;
    uint32_t highest_index; /* no higher one is in use */
    uint32_t connections;
    struct connection *closed; /* to be freed at the end of the turn */

    struct listener listeners[MAX_LISTENERS];
    uint32_t listener_count;
    uint32_t listeners_made;
    bool accepting;
    bool quiet; /* no more input is taken */

    struct blocks blocks;
    struct connection_list dirty;
    struct connection_list borrowers; /* connections whose output may refer to messages in rings */
    bool borrows;                     /* some link lends */
    struct connection_list
        late; /* dirty, but put off to later turns (SENDS_PER_TURN): in the order in which they came */
    struct connection_list runnable;
    struct connection_list running;  /* the list being worked off now */
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

    size_t max_buffered_bytes; /* limit over all connections */
    size_t receive_bytes;      /* how much is received at a time now, ... */
    uint64_t paced_ns;         /* ... and since when what was received last is worked off: see LONG_RECEIVING_NS */
    struct connection_list roomless; /* connections stalled for room, longest first */
    uint32_t overdraft;              /* the one connection that may exceed the limit; 0: none */
    const void *overdraft_lent;      /* its input, now lent to a worker's channel */
    bool room_is_back;               /* room was freed since the waiting ones were last checked */
    uint64_t next_sweep_ns;
    uint64_t next_trim_ns; /* when the pools are next checked for unused memory */

    uint32_t max_connections;
    struct heap timers; /* connections with a timer, by when it is due */
    uint32_t *timer_places;
    size_t output_high_bytes;
    struct adaptive_spin adaptive_spin;
    int events_taken;  /* events of the last turn */
    size_t sent_bytes; /* sent in this turn */
    size_t handed;     /* recipients considered for messages in this turn: see HANDED_PER_TURN */
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

/* Memory is short: closes the connection. */
void engine_oom(struct acceptor *a, struct connection *c);

/* --- lists.c ------------------------------------------------------------------------------------------------------ */

/* Without memory for a few numbers the process cannot go on; the supervisor starts another acceptor. */
void connection_list_add(struct connection_list *list, uint32_t number);
/* Wakes the connections of a list that are stalled for that reason, and empties it. */
void connection_list_wake(struct acceptor *a, struct connection_list *list, enum stall why);

/* --- upcalls.c ---------------------------------------------------------------------------------------------------- */

void upcalls_free(struct acceptor *a);
/* Queues an upcall with a copy of `bytes`; answer may be NULL. */
void upcall_push(struct acceptor *a, uint32_t kind, uint32_t conn, uint32_t protocol, const struct message *answer,
                 const void *bytes, size_t bytes_count);

/* --- wake.c ------------------------------------------------------------------------------------------------------- */

/* Something is left for the next turn: makes that come soon in a process that waits in another loop. */
void wake_self(struct acceptor *a);

/* The codec has more to do, in pieces: its go_on is called in the next turn. */
static inline void codec_left(struct acceptor *a, uint32_t protocol) {
    a->codecs_left |= (uint64_t)1 << protocol;
    wake_self(a);
}

/* --- filter.c ----------------------------------------------------------------------------------------------------- */

/* Hands input of a filtered connection to Python. */
void filter_received(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);
/* The input of a filtered connection has ended while Python has its command: ends the connection, unless it is to be
 * heard out. */
void filter_ended(struct acceptor *a, struct connection *c);
/* The codec can take more of the filtered input, in this turn or the next. */
void filter_go_on(struct acceptor *a, struct connection *c);
/* Hands as much output to Python as may wait there. */
void filter_pass(struct acceptor *a, struct connection *c);
/* Python has taken an UPCALL_OUTPUT. */
void filter_taken(struct acceptor *a, struct connection *c, size_t bytes);

/* --- framing.c ---------------------------------------------------------------------------------------------------- */

/* Turns a websocket's input into the codec's, in place. Returns its length. */
size_t framing_received(struct acceptor *a, struct connection *c, uint8_t *data, size_t bytes);
/* Puts output into frames, as far as it can leave soon. */
void framing_pass(struct acceptor *a, struct connection *c);
/* Sets the payload of the closing frame, which is sent behind all other output. Does nothing if there is one already.
 * */
void framing_close(struct acceptor *a, struct connection *c, const uint8_t *payload, size_t bytes);

/* --- compression.c ------------------------------------------------------------------------------------------------ */

/* Decompresses input, as much as this turn may, and gives it to the codec. */
void compression_go_on(struct acceptor *a, struct connection *c);
/* Compresses output, as far as it can leave soon. */
void compression_pass(struct acceptor *a, struct connection *c);
/* Whether compressing has to wait for the next turn, because all connections together had their share of this one. */
bool compression_waits(const struct acceptor *a, const struct connection *c);
/* What was wrong with the compressed input; NULL: nothing. */
const char *compression_damage(const struct connection *c);

static inline struct compression *compression_of(const struct connection *c) {
    return c->framing != NULL ? c->framing->compression : NULL;
}

/* --- timers.c ----------------------------------------------------------------------------------------------------- */

/* Has the codec's `due` called at that time, and not before; replaces any earlier timer. False when memory is short. */
bool timer_put(struct acceptor *a, struct connection *c, uint64_t due_ns);
/* The same; the connection is closed when memory is short. */
static inline bool timer_set(struct acceptor *a, struct connection *c, uint64_t due_ns) {
    const bool set = timer_put(a, c, due_ns);
    if (!set) engine_oom(a, c);
    return set;
}
void timer_clear(struct acceptor *a, struct connection *c);
void timers_run(struct acceptor *a);
/* When the next timer is due; false if there is none. */
static inline bool timers_next(const struct acceptor *a, uint64_t *due_ns) {
    const struct heap_entry *top = heap_top(&a->timers);
    if (top != NULL) *due_ns = top->high;
    return top != NULL;
}

/* --- room.c ------------------------------------------------------------------------------------------------------- */

/* Whether `bytes` more of a connection's input, raw or decoded, may be kept; if not, it is stalled until they may. The
 * connection must not be stalled already. */
bool room_for_input(struct acceptor *a, struct connection *c, const struct buffer *buffer, size_t bytes);
/* How much may be received at once, and how much unsent output a connection may have before its input waits. */
size_t room_receive_bytes(const struct acceptor *a);
size_t room_unsent_bytes(const struct acceptor *a);
/* How much unsent output a connection may have before it is closed, in protocols where input does not wait for that. */
size_t room_pending_bytes(const struct acceptor *a, size_t most);
/* Once a turn: wakes connections that waited for room, sweeps, trims. */
void room_look(struct acceptor *a);
static inline bool room_is_wanted(const struct acceptor *a) {
    return a->roomless.count > 0 || a->overdraft != 0 || a->blocks.taken_bytes > a->max_buffered_bytes;
}

/* --- life.c, socket.c --------------------------------------------------------------------------------------------- */

enum { INDEX_BITS = 20 };
_Static_assert(MAX_CONNECTIONS <= 1u << INDEX_BITS, "an index fits a number");

static inline struct connection *connection_find(const struct acceptor *a, uint32_t number) {
    uint32_t index = number & ((1u << INDEX_BITS) - 1);
    if (index >= MAX_CONNECTIONS) return NULL;
    struct connection *c = a->table[index];
    return c != NULL && c->number == number ? c : NULL;
}

/* Makes a connection, which owns fd. NULL and errno when that failed; fd is not closed then. */
struct connection *socket_open(struct acceptor *a, int fd, uint32_t protocol);
/* Makes a connection without a socket; see acceptor_local. */
struct connection *socket_open_local(struct acceptor *a);
void socket_close(struct acceptor *a, struct connection *c);
void socket_event(struct acceptor *a, struct connection *c, uint32_t events);
void socket_run(struct acceptor *a, struct connection *c);
void socket_flush(struct acceptor *a, struct connection *c);
/* Sends whatever the socket takes, regardless of the turn's limits: for a connection that is closed if that does not
 * help. */
void socket_flush_well(struct acceptor *a, struct connection *c);
void socket_free_closed(struct acceptor *a);
/* A connection that was closed and kept is freed at the end of the turn. */
void socket_let_go(struct acceptor *a, struct connection *c);
/* The client has closed its side: it sends no more, but what it has sent counts, and it may still listen. Its waiting
 * reserves are cancelled. */
void socket_hung_up(struct acceptor *a, struct connection *c);
/* The client will send no more. */
void socket_ended(struct acceptor *a, struct connection *c);
/* The connection's input may go on. */
void socket_wake(struct acceptor *a, struct connection *c);
/* Has its input parsed in the next turn, unless it is stalled then. */
void socket_schedule(struct acceptor *a, struct connection *c);
/* The connection has something to send, or is to be closed. */
static inline void socket_dirty(struct acceptor *a, struct connection *c) {
    if (c->dirty) return;
    c->dirty = true;
    connection_list_add(&a->dirty, c->number);
}

/* If more connections than a turn sends to have become dirty since the list had `had` entries, they are put off to
 * later turns, so that connections with output for another reason do not wait behind them. */
void socket_put_off(struct acceptor *a, size_t had);

/* Room for `bytes` of output, to be completed by socket_written. NULL when memory is short; the connection is closed
 * then. */
static inline uint8_t *socket_room(struct acceptor *a, struct connection *c, size_t bytes) {
    uint8_t *room = output_room(&a->blocks, &c->out, bytes);
    if (room == NULL) engine_oom(a, c);
    return room;
}

static inline void socket_written(struct acceptor *a, struct connection *c, const uint8_t *end) {
    c->out.last.end = (size_t)(end - c->out.last.bytes);
    socket_dirty(a, c);
}

/* Adds the shared bytes from `from` on to the output. Closes the connection when memory is short. */
static inline void socket_share(struct acceptor *a, struct connection *c, struct shared_bytes *shared, size_t from) {
    if (output_share(&a->blocks, &c->out, shared, from))
        socket_dirty(a, c);
    else
        engine_oom(a, c);
}

/* --- for codecs, before they do something ------------------------------------------------------------------------- */

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

/* Whether its unsent output is small enough; else it stalls. The functions below work alike. */
static inline bool may_go_on(struct acceptor *a, struct connection *c) {
    size_t waits = connection_unsent(c) + c->kept_bytes;
    return waits == 0 || waits <= room_unsent_bytes(a) || stalled_by(a, c, STALL_OUTPUT, WAITS_CLIENT);
}

/* Another reply can be queued. */
static inline bool may_reply(struct connection *c) {
    return c->slot_count < MAX_OUTSTANDING || stalled(c, STALL_OUTSTANDING);
}

/* No reserve is under way on the connection. */
static inline bool may_change(struct connection *c) {
    return c->reserves == 0 || stalled(c, STALL_RESERVES);
}

/* No request is under way on the connection. */
static inline bool may_do_alone(struct connection *c) {
    return c->slot_count == 0 || stalled(c, STALL_IDLE);
}

/* A worker takes messages without a reply. If it is gone they are not needed: it is told everything when it is back. */
static inline bool may_tell(struct acceptor *a, struct connection *c, uint32_t worker) {
    if (!a->links[worker].backlogged) return true;
    connection_list_add(&a->links[worker].stalled, c->number);
    return stalled_by(a, c, STALL_WORKER, WAITS_WORKER);
}

/* Whether none of these acceptors has a backlog; else the connection stalls until that is over. */
bool mesh_may_send(struct acceptor *a, struct connection *c, uint64_t others);
/* The acceptors that have a backlog, as bits. */
uint64_t mesh_full(struct acceptor *a);

/* Live subscribers have been told of all earlier messages; else the connection stalls until they have. */
bool bridge_may_publish(struct acceptor *a, struct connection *c);

/* A worker can take a large body now; else the connection stalls until it can. */
bool peer_may_bring_large(struct acceptor *a, struct connection *c, uint32_t worker, size_t body_bytes);

/* A worker can be sent a request. A reserve may wait for long: later requests to the same worker wait behind it there,
 * but none may overtake it at another worker. */
static inline bool may_ask(struct acceptor *a, struct connection *c, uint32_t worker) {
    if (!may_reply(c)) return false;
    if (c->reserves > 0 && c->reserve_worker != worker) return stalled(c, STALL_RESERVES);
    if (a->bridges && !bridge_may_publish(a, c)) return false;
    if (a->links[worker].channel == NULL || a->links[worker].backlogged) {
        connection_list_add(&a->links[worker].stalled, c->number);
        return stalled_by(a, c, STALL_WORKER, WAITS_WORKER);
    }
    return true;
}

/* A worker can be sent a request with a body of that size. */
static inline bool may_bring(struct acceptor *a, struct connection *c, uint32_t worker, size_t body_bytes) {
    return may_ask(a, c, worker) && (body_bytes < LARGE_BODY_BYTES || peer_may_bring_large(a, c, worker, body_bytes));
}

/* --- for codecs, to do it ----------------------------------------------------------------------------------------- */

/* Sends a request of a kind that may be joined with its neighbours; see requests.c. */
void requests_send(struct worker_link *link, const struct message *request);

/* Sends a message, unless the worker is gone. */
static inline void peer_send(struct acceptor *a, uint32_t worker, const struct message *message, const void *body) {
    struct worker_link *link = &a->links[worker];
    if (link->channel == NULL) return;
    a->published_to |= bit_of(worker);
    if (request_each_has(message->kind) && message->body_bytes == 0)
        requests_send(link, message);
    else
        channel_send(link->channel, message, body, message->body_bytes);
}

/* Lends the input buffer that is being parsed, in which a body lies, so that the body need not be copied at once: the
 * buffer then belongs to the borrower. False: the body lies elsewhere. */
bool socket_lend(struct acceptor *a, struct connection *c, const void *body, size_t body_bytes, struct lent *lent);
/* The borrower has taken the buffer. */
void socket_lent(struct acceptor *a, struct connection *c);
/* Sends a message about a connection that has no reply. */
static inline void peer_tell(struct acceptor *a, struct connection *c, uint32_t worker, uint8_t kind, uint32_t topic,
                             uint16_t flags) {
    struct message message = {.kind = kind, .flags = flags, .conn = c->number, .topic = topic};
    c->touched_workers |= bit_of(worker);
    peer_send(a, worker, &message, NULL);
}

/* Sends a request (conn, slot and body_bytes are filled in here) and opens a slot for its reply. may_ask() has allowed
 * it. */
void peer_ask(struct acceptor *a, struct connection *c, uint32_t worker, struct message *request, const void *body,
              uint32_t body_bytes, uint64_t value);
/* Sends a reserve to a single worker. */
void peer_reserve(struct acceptor *a, struct connection *c, uint32_t worker, uint64_t timeout_ns);

/* Queues a reply that is made here, behind those due before it. may_reply() has allowed it. */
void reply_text(struct acceptor *a, struct connection *c, const void *text, size_t bytes);

/* Hands a line to Python. may_do_alone() has allowed it. */
void reply_by_python(struct acceptor *a, struct connection *c, const uint8_t *line, size_t bytes);

/* The number of a name; tells the worker if the name is new. Takes no reference, so the number is only good for
 * immediate use. 0 when the limit is reached. */
uint32_t topic_look_up(struct acceptor *a, const void *name, size_t name_bytes);
/* The same with a reference, which topic_unbind gives back. */
uint32_t topic_bind(struct acceptor *a, const void *name, size_t name_bytes);
void topic_unbind(struct acceptor *a, uint32_t topic);
/* Binds a name for good, and includes it in lists of topics. False when the limit is reached. */
bool topic_list(struct acceptor *a, const void *name, size_t name_bytes);
/* Tells the worker of a topic's number, perhaps again. */
void topic_open(struct acceptor *a, uint32_t topic);

/* --- publishes.c -------------------------------------------------------------------------------------------------- */

/* Sends a PUBLISH whose head is complete, joined with those before it if possible. False: it must travel by itself. */
bool publishes_send(struct acceptor *a, uint32_t worker, const struct message *request, const void *body);

/* --- borrowed.c --------------------------------------------------------------------------------------------------- */

/* Writes bytes to the output; if they are BORROWED_BYTES or more of the message being handled, without a copy. False:
 * memory is short, the connection is closed. */
bool socket_say(struct acceptor *a, struct connection *c, const void *bytes, size_t count);
/* Copies what the turn's output still borrows, and gives the rings back. */
void borrowed_give_back(struct acceptor *a);

/* --- workers.c ---------------------------------------------------------------------------------------------------- */

/* Handles the workers' messages; false if there were none. */
bool peers_hear(struct acceptor *a);
/* Notes which workers have a backlog, and wakes the connections that waited for the others. */
void peers_look(struct acceptor *a);
void peers_publish(struct acceptor *a);

/* --- asks.c, replies.c, slots.c ----------------------------------------------------------------------------------- */

/* The worker is back: sends again what it may not have been sent. */
void peer_ask_again(struct acceptor *a, struct connection *c, uint32_t worker);
/* Handles a worker's message, whose body needs no opening. */
void peer_said(struct acceptor *a, uint32_t worker, const struct message *message);
/* Handles the replies that a joined one stands for. Returns how many. */
uint32_t peer_said_joined(struct acceptor *a, uint32_t worker, const struct message *reply);
/* The client has gone: cancels its waiting reserves. */
void peer_cancel_reserves(struct acceptor *a, struct connection *c);
/* Writes the replies of answered slots at the head into the output, and removes the slots. */
void slots_emit(struct acceptor *a, struct connection *c);
/* Ends a stall whose reason is gone. */
void slots_changed(struct acceptor *a, struct connection *c);
/* Takes a connection's requests out of a->expected. */
void slots_forget(struct acceptor *a, struct connection *c);
/* The request in a slot has been answered, or nobody waits for the answer: its large body no longer counts. */
void slot_settle_large(struct acceptor *a, struct connection *c, uint32_t worker, uint32_t slot);
/* A request of Python's that waits for its worker holds a reference to its topic. */
void slot_forget_unsent(struct acceptor *a, struct connection *c, struct slot *slot);

uint64_t clock_ns(void);
/* The exact time. a->now_ns is a little behind, which is good enough for anything that is not measured. */
static inline uint64_t exact_now(const struct acceptor *a) {
    return a->live ? clock_ns() : a->now_ns;
}

/* --- listeners.c -------------------------------------------------------------------------------------------------- */

/* Accepts connections as long as there is room for another one. */

void listeners_update(struct acceptor *a);

#endif
