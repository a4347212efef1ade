/* The engine: what the acceptor's C files and the codecs share. Nobody else includes it, and it names no protocol.
 *
 *   acceptor.c    what Python calls
 *   turn.c        a turn: replies in, bytes out, wait, bytes in, requests out; and when to sleep
 *   socket.c      one connection's bytes: receive, parse, send, close
 *   workers.c     the workers: attach, lose, ask, hear
 *   publishes.c   PUBLISHes one behind the other, which are one message
 *   timers.c      connections that are looked at when a time comes
 *   room.c        what all connections together hold, and who waits or goes when that is too much
 *   filter.c      a connection whose bytes pass through Python on their way
 *   framing.c     a connection that is a websocket
 *   compression.c a connection that is compressed
 *   migration.c   a connection that goes to another process, or comes from one
 *   local.c       requests of no client's, and waiting in somebody else's loop
 *   packed.c      messages that lie in one, for those who do not know its headers
 *   codec.h       what a wire protocol is to all that
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

/* Numbers of connections, each looked up when its turn comes: it may be closed by then. */
struct connection_list {
    uint32_t *items;
    size_t count, capacity;
};

/* A worker, as an acceptor sees it. */
struct worker_link {
    struct channel *channel;        /* NULL: it is gone */
    struct connection_list stalled; /* connections that wait for it */
    struct connection_list larges;  /* ... and those that bring a large body, until it has written others */
    size_t large_bytes;             /* of these: see LARGE_ASKED_BYTES */
    struct growing publishes;       /* those that were sent last; see publishes.c */
    struct growing requests;        /* the same of others, of ...; see requests.c */
    uint32_t requests_conn;         /* ... this connection */
    bool backlogged;
};

/* Another acceptor; see mesh.h. */
struct mesh_link {
    struct channel *channel; /* NULL: it is not there */
    struct connection_list stalled;
    bool backlogged;
};

struct listener {
    int fd;
    uint8_t protocol;
    uint8_t number; /* that it keeps */
    bool registered;
    bool filtered; /* the connections that come */
};

struct pending_upcall {
    struct upcall upcall;
    uint8_t *owned; /* what `bytes` points to */
};

/* Of packed.c. */
struct packed_kept {
    struct packed_waiting *waiting; /* oldest first */
    uint64_t id;                    /* of the message that was opened last; 0: none */
    uint8_t *bytes;
    size_t bytes_count;
    struct message *said; /* what is said on, one after the other: as large as the largest was */
    size_t said_bytes;
};

struct acceptor {
    uint32_t index, workers, shards;
    uint32_t acceptors; /* that clients are served by, this one too */
    int epoll_fd, wake_fd, control_fd;
    int poke_fd; /* an eventfd that wakes this process itself */
    _Atomic uint32_t poked;
    bool polled; /* by acceptor_poll: nobody takes the next turn unless poke_fd says so */
    bool live;   /* turns read the clock */
    uint64_t now_ns;
    uint64_t turn_ns; /* when the turn under way began; 0: it has not */
    uint64_t wall_ns; /* the same by the wall clock; 0: time is passed in */
    struct board *board;
    struct acceptor_board *count;
    void *codec_states[BOARD_PROTOCOLS]; /* by protocol - 1 */

    struct worker_link links[BOARD_MAX_WORKERS];
    struct channel *hearing; /* what is said comes by this one; NULL: nothing is */
    uint64_t published_to;   /* workers that have unpublished requests */
    struct mesh_link mesh[BOARD_MAX_ACCEPTORS];
    uint64_t mesh_there; /* acceptors that there are links to */
    bool bridges;        /* what is published to some topics is told to other acceptors too */
    struct {
        struct bridge_copy *first, *last;
        struct connection_list waiting;
    } untold;                   /* what a worker has of that, and publishers until it is told: see bridge.h */
    uint64_t mesh_published_to; /* ... with unpublished messages */
    struct bindings bindings;
    struct packed_kept packed;

    struct connection **table; /* by the low bits of a number */
    uint16_t *generations;
    uint32_t *free_indexes; /* a queue: those free longest come first */
    uint32_t free_head, free_count;
    uint32_t highest_index; /* none above is in use */
    uint32_t connections;
    struct connection *closed; /* to be freed at the end of the turn */

    struct listener listeners[MAX_LISTENERS];
    uint32_t listener_count;
    uint32_t listeners_made;
    bool accepting;
    bool quiet; /* take no more input */

    struct blocks blocks;
    struct connection_list dirty;
    struct connection_list late; /* dirty too, but a turn had sent to many: in the order in which they came */
    struct connection_list runnable;
    struct connection_list running;  /* the list that is being worked off */
    uint64_t codecs_left;            /* bits of codecs that go on in the next turn */
    uint8_t *scratch;                /* that all connections receive into */
    uint32_t filter_pieces;          /* that were asked for in this turn */
    size_t opened_bytes, made_bytes; /* that were taken apart, and made, in this turn: see compression.c */

    struct pending_upcall *upcalls; /* a queue in a ring */
    size_t upcall_head, upcall_count, upcall_capacity;
    uint8_t *upcall_bytes; /* of the one handed out last */
    bool control_pending;

    uint32_t expected;   /* replies that are due soon: of requests that never wait */
    bool unheard;        /* more of them are there than a turn takes in */
    uint32_t held_turns; /* for so many output has stayed back for that; 0: none does */
    bool reserved;       /* a reserve was asked for since the last sleep: its reply may come soon */

    size_t max_buffered_bytes;       /* of all connections */
    struct connection_list roomless; /* that wait for room, longest first */
    uint32_t overdraft;              /* the connection that may go beyond it; 0: none */
    const void *overdraft_lent;      /* what that had received, and goes to a worker yet */
    bool room_is_back;               /* since it was looked who waits for it */
    uint64_t next_sweep_ns;
    uint64_t next_trim_ns; /* when it is looked what is kept for nobody */

    uint32_t max_connections;
    struct heap timers; /* connections, by when they are to be looked at */
    uint32_t *timer_places;
    size_t output_high_bytes;
    struct adaptive_spin adaptive_spin;
    int events_taken;  /* in the last turn */
    size_t sent_bytes; /* in this turn */
    size_t handed;     /* ... who was looked at, to be given a message: see HANDED_PER_TURN */
    size_t heard_to;   /* how many of these there were when other acceptors had been heard */
    bool others_next;  /* clients here had something handed out after other acceptors had */
};

/* A codec's own state of this acceptor. */
static inline void *codec_state(const struct acceptor *a, uint32_t protocol) {
    return a->codec_states[protocol - 1];
}

static inline void board_add(uint64_t *count, uint64_t by) {
    /* Relaxed, by its only writer: readers want no more than a value that was true at some time. */
    __atomic_store_n(count, *count + by, __ATOMIC_RELAXED);
}

/* One more of what a codec counts. */
static inline void codec_count_add(struct acceptor *a, const struct connection *c, uint32_t counter, uint64_t by) {
    board_add(&a->count->counters[c->protocol - 1][counter], by);
}

/* The first of so many ids for messages of one topic; each next is `shards` higher. */
static inline uint64_t ids_take(struct acceptor *a, const struct binding *topic, uint32_t count) {
    /* Relaxed: ids must differ, nothing else is ordered by them. */
    return atomic_fetch_add_explicit(&a->board->next_id, count, memory_order_relaxed) * a->shards + topic->shard;
}

/* What is new is not to be published any more. */
static inline bool draining(const struct acceptor *a) {
    /* Relaxed: a switch that is thrown once, and nothing hangs on when exactly it is seen. */
    return atomic_load_explicit(&a->board->draining, memory_order_relaxed) != 0;
}

/* Nobody waits for a turn to be sent what there is. */
static inline bool is_all_sent(const struct acceptor *a) {
    return a->dirty.count == 0 && a->late.count == 0;
}

static inline uint64_t bit_of(uint32_t worker) {
    return (uint64_t)1 << worker;
}

static inline uint32_t first_of(uint64_t workers) {
    return (uint32_t)__builtin_ctzll(workers);
}

/* Memory is short: the connection is closed. */
void engine_oom(struct acceptor *a, struct connection *c);
void connection_list_add(struct connection_list *list, uint32_t number);

/* --- acceptor.c --------------------------------------------------------------------------------------------------- */

/* Takes a copy of `bytes`; answer may be NULL. */
void upcall_push(struct acceptor *a, uint32_t kind, uint32_t conn, uint32_t protocol, const struct message *answer,
                 const void *bytes, size_t bytes_count);

/* --- local.c ------------------------------------------------------------------------------------------------------ */

/* Of connections that have no client. */
extern const struct codec local_codec;

/* Something is left for the next turn: in a process that waits elsewhere, make it come. */
void wake_self(struct acceptor *a);

/* What is long is done in pieces: the codec's go_on is called in the next turn. */
static inline void codec_left(struct acceptor *a, uint32_t protocol) {
    a->codecs_left |= (uint64_t)1 << protocol;
    wake_self(a);
}

/* --- filter.c ----------------------------------------------------------------------------------------------------- */

/* What came from the socket of a filtered connection: Python's. */
void filter_received(struct acceptor *a, struct connection *c, const uint8_t *data, size_t bytes);
/* There will be no more of it, while Python has the connection's command: it is ended, unless it is to be heard out. */
void filter_ended(struct acceptor *a, struct connection *c);
/* The codec can do with what is left of that: in this turn, or in the next. */
void filter_go_on(struct acceptor *a, struct connection *c);
/* Hands on of the output what Python may have now. */
void filter_pass(struct acceptor *a, struct connection *c);
/* Python has taken an UPCALL_OUTPUT. */
void filter_taken(struct acceptor *a, struct connection *c, size_t bytes);

/* --- framing.c ---------------------------------------------------------------------------------------------------- */

/* What came of a websocket becomes the codec's input, in its place; how much that is. */
size_t framing_received(struct acceptor *a, struct connection *c, uint8_t *data, size_t bytes);
/* Puts output into frames, as far as it can leave soon. */
void framing_pass(struct acceptor *a, struct connection *c);
/* When everything else is said, this is: the payload of a closing frame. Nothing if there is one already. */
void framing_close(struct acceptor *a, struct connection *c, const uint8_t *payload, size_t bytes);

/* --- compression.c ------------------------------------------------------------------------------------------------ */

/* Takes apart what has come, as far as that is for this turn, and gives it to the codec. */
void compression_go_on(struct acceptor *a, struct connection *c);
/* Compresses output, as far as it can leave soon. */
void compression_pass(struct acceptor *a, struct connection *c);
/* Whether that has to wait for the next turn: all connections have had as much compressed as is for this one. */
bool compression_waits(const struct acceptor *a, const struct connection *c);
/* What was wrong with what came; NULL: nothing. */
const char *compression_damage(const struct connection *c);

static inline struct compression *compression_of(const struct connection *c) {
    return c->framing != NULL ? c->framing->compression : NULL;
}

/* --- timers.c ----------------------------------------------------------------------------------------------------- */

/* The codec's `due` is called when that time has come, and not before; in place of any other time. False when memory is
 * short: the connection is closed then. */
bool timer_set(struct acceptor *a, struct connection *c, uint64_t due_ns);
void timer_clear(struct acceptor *a, struct connection *c);
void timers_run(struct acceptor *a);
/* When the next is due, if there is one. */
static inline bool timers_next(const struct acceptor *a, uint64_t *due_ns) {
    const struct heap_entry *top = heap_top(&a->timers);
    if (top != NULL) *due_ns = top->high;
    return top != NULL;
}

/* --- room.c ------------------------------------------------------------------------------------------------------- */

/* Whether so many bytes more of a connection's input, or of what is to become it, may be kept; if not, it is stalled until they
 * may. Not stalled. */
bool room_for_input(struct acceptor *a, struct connection *c, const struct buffer *buffer, size_t bytes);
/* How much may be received at once, and how much of a connection's output be unsent before its input waits. */
size_t room_receive_bytes(const struct acceptor *a);
size_t room_unsent_bytes(const struct acceptor *a);
/* How much may wait for a connection whose input does not wait for that, before it is cut off. */
size_t room_pending_bytes(const struct acceptor *a, size_t most);
/* Once a turn. */
void room_look(struct acceptor *a);
static inline bool room_is_wanted(const struct acceptor *a) {
    return a->roomless.count > 0 || a->overdraft != 0 || a->blocks.taken_bytes > a->max_buffered_bytes;
}

/* --- socket.c ----------------------------------------------------------------------------------------------------- */

enum { INDEX_BITS = 20 };
_Static_assert(MAX_CONNECTIONS <= 1u << INDEX_BITS, "an index fits a number");

static inline struct connection *connection_find(const struct acceptor *a, uint32_t number) {
    uint32_t index = number & ((1u << INDEX_BITS) - 1);
    if (index >= MAX_CONNECTIONS) return NULL;
    struct connection *c = a->table[index];
    return c != NULL && c->number == number ? c : NULL;
}

/* Owns fd from then on; NULL, with errno, when it could not be (then fd is not closed). */
struct connection *socket_open(struct acceptor *a, int fd, uint32_t protocol);
/* A connection without a socket; see acceptor_local. */
struct connection *socket_open_local(struct acceptor *a);
void socket_close(struct acceptor *a, struct connection *c);
void socket_event(struct acceptor *a, struct connection *c, uint32_t events);
void socket_run(struct acceptor *a, struct connection *c);
void socket_flush(struct acceptor *a, struct connection *c);
/* However much has been sent in this turn: of one that is to be cut off if that does not help. */
void socket_flush_well(struct acceptor *a, struct connection *c);
void socket_free_closed(struct acceptor *a);
/* One that was closed and kept is freed at the end of the turn. */
void socket_let_go(struct acceptor *a, struct connection *c);
/* Its client will send no more. */
void socket_ended(struct acceptor *a, struct connection *c);
/* Its input may go on. */
void socket_wake(struct acceptor *a, struct connection *c);
/* It is looked at in the next turn, if it is not stalled any more then. */
void socket_schedule(struct acceptor *a, struct connection *c);
/* There is something to send, or to end. */
static inline void socket_dirty(struct acceptor *a, struct connection *c) {
    if (c->dirty) return;
    c->dirty = true;
    connection_list_add(&a->dirty, c->number);
}

/* Those that have become dirty since the list had so many are late, if they are more than a turn sends to: who has something to send
 * for another reason does not wait behind them. */
void socket_put_off(struct acceptor *a, size_t had);

/* Room for `bytes` of output, completed by socket_written; NULL when memory is short: the connection is closed then. */
static inline uint8_t *socket_room(struct acceptor *a, struct connection *c, size_t bytes) {
    uint8_t *room = output_room(&a->blocks, &c->out, bytes);
    if (room == NULL) engine_oom(a, c);
    return room;
}

static inline void socket_written(struct acceptor *a, struct connection *c, const uint8_t *end) {
    c->out.last.end = (size_t)(end - c->out.last.bytes);
    socket_dirty(a, c);
}

/* What stands in `shared` from `from` on is output too; where memory is short the connection is closed. */
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

/* The same for what is not the connection's own to end. */
static inline bool stalled_by(struct acceptor *a, struct connection *c, enum stall why, enum board_stall counted) {
    board_add(&a->count->loop.stalls[counted], 1);
    return stalled(c, why);
}

/* What is published is handed out in one go, and then the next: as long as not so many have been looked at in this turn. While some
 * wait for a later turn to be sent what they have, others of a turn's count too, but for a few: what waits does not grow faster than
 * it is sent. */
enum {
    HANDED_PER_TURN = 1 << 16,
    HANDED_WHILE_LATE = HANDED_PER_TURN / 32,
    HANDED_BYTES = 256 /* that cost about as much as looking at one more */
};

/* Its output is not too far behind. */
static inline bool may_go_on(struct acceptor *a, struct connection *c) {
    size_t waits = connection_unsent(c) + c->kept_bytes;
    return waits == 0 || waits <= room_unsent_bytes(a) || stalled_by(a, c, STALL_OUTPUT, WAITS_CLIENT);
}

/* A reply can be queued. */
static inline bool may_reply(struct connection *c) {
    return c->slot_count < MAX_OUTSTANDING || stalled(c, STALL_OUTSTANDING);
}

/* No reserve is under way. */
static inline bool may_change(struct connection *c) {
    return c->reserves == 0 || stalled(c, STALL_RESERVES);
}

/* Nothing is under way. */
static inline bool may_do_alone(struct connection *c) {
    return c->slot_count == 0 || stalled(c, STALL_IDLE);
}

/* A worker takes messages; if it is gone, they are not needed: it will be told when it is back. */
static inline bool may_tell(struct acceptor *a, struct connection *c, uint32_t worker) {
    if (!a->links[worker].backlogged) return true;
    connection_list_add(&a->links[worker].stalled, c->number);
    return stalled_by(a, c, STALL_WORKER, WAITS_WORKER);
}

/* Whether none of these acceptors has a backlog; else the connection stalls until that is over. */
bool mesh_may_send(struct acceptor *a, struct connection *c, uint64_t others);
/* Those to which that cannot be, as bits. */
uint64_t mesh_full(struct acceptor *a);

/* Live subscribers have been told of what was published before; else the connection stalls until they have. */
bool bridge_may_publish(struct acceptor *a, struct connection *c);

/* A worker can take a large body now; else the connection stalls until it can. */
bool may_bring_large(struct acceptor *a, struct connection *c, uint32_t worker, size_t body_bytes);

/* A worker can be asked. A reserve may wait for long, and what is asked of the worker it waits at waits behind it; but
 * nothing may overtake it at another. */
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

/* A worker can be asked to take a body of so many bytes. */
static inline bool may_bring(struct acceptor *a, struct connection *c, uint32_t worker, size_t body_bytes) {
    return may_ask(a, c, worker) && (body_bytes < LARGE_BODY_BYTES || may_bring_large(a, c, worker, body_bytes));
}

/* --- for codecs, to do it ----------------------------------------------------------------------------------------- */

/* Sends a request of a kind that may go together with others; see requests.c. */
void requests_send(struct worker_link *link, const struct message *request);

/* Sends, unless the worker is gone. */
static inline void peer_send(struct acceptor *a, uint32_t worker, const struct message *message, const void *body) {
    struct worker_link *link = &a->links[worker];
    if (link->channel == NULL) return;
    a->published_to |= bit_of(worker);
    if (request_each_has(message->kind) && message->body_bytes == 0)
        requests_send(link, message);
    else
        channel_send(link->channel, message, body, message->body_bytes);
}

/* A body that lies in what has been received on a connection, and is being parsed, need not be copied at once: all of that memory goes
 * to whoever copies it later. False: it lies elsewhere. */
bool socket_lend(struct acceptor *a, struct connection *c, const void *body, size_t body_bytes, struct lent *lent);
/* It has gone. */
void socket_lent(struct acceptor *a, struct connection *c);
/* Sends bytes; a large body of a message that is being heard is not copied. False: memory is short, and the connection is closed. */
bool socket_say(struct acceptor *a, struct connection *c, const void *bytes, size_t count);

/* A message about a connection that has no reply. */
static inline void peer_tell(struct acceptor *a, struct connection *c, uint32_t worker, uint8_t kind, uint32_t topic,
                             uint16_t flags) {
    struct message message = {.kind = kind, .flags = flags, .conn = c->number, .topic = topic};
    c->touched_workers |= bit_of(worker);
    peer_send(a, worker, &message, NULL);
}

/* Sends a request (conn, slot and body_bytes are filled in here) and opens a slot for its reply. May have been asked.
 */
void peer_ask(struct acceptor *a, struct connection *c, uint32_t worker, struct message *request, const void *body,
              uint32_t body_bytes, uint64_t value);
/* A reserve at one worker. */
void peer_reserve(struct acceptor *a, struct connection *c, uint32_t worker, uint64_t timeout_ns);

/* A reply made here, in its turn. May reply. */
void reply_text(struct acceptor *a, struct connection *c, const void *text, size_t bytes);

/* A line for Python. May be done alone. */
void reply_by_python(struct acceptor *a, struct connection *c, const uint8_t *line, size_t bytes);

/* The number of a name; a worker hears of one that is new. Without a reference it is good for what is done at once. 0 when
 * there can be no more. */
uint32_t topic_look_up(struct acceptor *a, const void *name, size_t name_bytes);
/* The same with a reference, which topic_unbind gives back. */
uint32_t topic_bind(struct acceptor *a, const void *name, size_t name_bytes);
void topic_unbind(struct acceptor *a, uint32_t topic);
/* Binds a name for good, and has it listed. False when there can be no more. */
bool topic_list(struct acceptor *a, const void *name, size_t name_bytes);
/* Tells the worker, anew perhaps. */
void topic_open(struct acceptor *a, uint32_t topic);

/* --- publishes.c -------------------------------------------------------------------------------------------------- */

/* Sends a PUBLISH, all of whose head is filled in, with those before it if it may. False: it is one that travels for itself. */
bool publishes_send(struct acceptor *a, uint32_t worker, const struct message *request, const void *body);

/* --- workers.c ---------------------------------------------------------------------------------------------------- */

/* What a worker has said, without headers that need to be opened. */
void peer_said(struct acceptor *a, uint32_t worker, const struct message *message);
/* Takes in what the workers replied; false if that was nothing. */
bool peers_hear(struct acceptor *a);
/* Notes who has a backlog, and wakes the connections that wait for those who have none any more. */
void peers_look(struct acceptor *a);
void peers_publish(struct acceptor *a);
/* The client will hear no more of what it waits for. */
void peer_cancel_reserves(struct acceptor *a, struct connection *c);
/* The slots at the head that are answered leave. */
void slots_emit(struct acceptor *a, struct connection *c);
/* Stalls no more, if the reason is gone. */
void slots_changed(struct acceptor *a, struct connection *c);
/* Requests of a connection that are counted in a->expected, and are not to be any more. */
void slots_forget(struct acceptor *a, struct connection *c);

uint64_t clock_ns(void);
/* What time it is: a->now_ns is a little behind, and exact enough for whatever is not measured. */
static inline uint64_t exact_now(const struct acceptor *a) {
    return a->live ? clock_ns() : a->now_ns;
}

/* --- turn.c ------------------------------------------------------------------------------------------------------- */

void listeners_update(struct acceptor *a);

#endif
