/* A connection: a client's socket, its bytes in and out, and its requests under way. What its protocol keeps of it stands
 * behind it in the same piece of memory.
 *
 * Each request has a slot from when it is made until its reply is in the output; slots are numbered as they come, and
 * replies leave in that order. The slot at the head is the oldest. A reply that comes for another is kept in its slot.
 *
 * An idle connection is this struct and nothing else: buffers, and room for more than a few slots, are taken from a
 * pool while they are needed.
 */
#ifndef MQ_CONNECTION_H
#define MQ_CONNECTION_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "acceptor/bounds.h"
#include "acceptor/buffer.h"
#include "acceptor/output.h"
#include "acceptor/websocket.h"
#include "base/s2_stream.h"
#include "ringbuf/message.h"

/* What a slot is for: the kind of the message that was sent, or one of these. */
enum slot_kind {
    SLOT_TEXT = 1,  /* a reply made here: `body` is all of it */
    SLOT_CODEC = 2, /* the codec's own: it hears all replies for it, and takes it away itself */
};

struct slot {
    uint8_t kind;
    uint8_t worker;
    uint8_t status; /* of the reply, once answered */
    bool answered : 1;
    bool python : 1;  /* Python asked: the reply is an upcall */
    bool bridged : 1; /* `body` is a copy of what is published, for whom that concerns: see bridge.h */
    bool unsent : 1;  /* the worker is gone: `body` is the message, for when it is back */
    uint32_t body_bytes;
    uint64_t value; /* the id published; how long to reserve, then what it delivered; ... */
    uint8_t *body;  /* NULL: none */
};

/* Why no more of a connection's input is taken. */
enum stall {
    STALL_NONE = 0,
    STALL_WORKER,      /* the worker concerned is gone or has a backlog */
    STALL_OUTSTANDING, /* too many requests are unanswered */
    STALL_RESERVES,    /* the reserves under way must be answered first */
    STALL_IDLE,        /* all requests under way must be answered first */
    STALL_PYTHON,      /* Python is busy with a command */
    STALL_OUTPUT,      /* the client does not take its replies */
    STALL_ROOM,        /* all connections together hold as much as they may */
    STALL_MESH,        /* another acceptor has a backlog, or has to confirm something first */
    STALL_TURN,        /* in this turn enough has been handed out */
};

/* Of a connection whose bytes Python turns into others on their way; see filter.c. */
struct filter {
    struct output wire;  /* to be sent as it is */
    size_t output_bytes; /* in UPCALL_OUTPUTs that were not taken */
    bool input;          /* Python owes what an UPCALL_INPUT turned out to be */
    bool more;           /* and has said that there is more where the last came from: nothing is received until then */
    bool heard_out;      /* what Python is about with it is answered also when the client has hung up, ... */
    bool end_told;       /* ... of which Python has been told */
};

/* Of a connection that is compressed; see compression.c. */
struct compression {
    struct s2_stream stream;
    struct buffer packed; /* what has come, and is not taken apart yet */
    uint8_t level;        /* enum s2_level, of what is sent */
    bool greeted;         /* our stream has begun */
    bool unparsed;        /* there is input that the codec has not seen, or not done with */
    bool more;            /* something can be done with what has come: nothing is received until then */
    bool put_off;         /* what is to be sent waits for a turn in which less has been compressed */
};

/* Of a connection whose codec speaks in frames, see framing.c, or in chunks. */
struct framing {
    struct compression *compression; /* NULL: it is a websocket, which all that follows but `wire` is of */
    struct websocket websocket;
    struct output wire;   /* whole frames, to be sent or filtered */
    uint32_t frame_bytes; /* of payload in a frame of ours, at most */
    bool by_python;       /* who has the frames of both directions: they are compressed */
    bool closing_waits;   /* our last frame goes out when all other output has */
    bool closing_said;    /* there is one, and no other may be */
    uint8_t closing_bytes;
    uint8_t closing[WEBSOCKET_CONTROL_BYTES];
};

struct codec; /* see codec.h */

enum { FEW_SLOTS = 4 };

struct connection {
    uint32_t number;
    int fd;
    uint32_t events; /* that epoll is to report */
    uint8_t protocol;
    uint8_t stall;

    bool closed : 1;      /* only until the end of the turn */
    bool kept : 1;        /* ... or until the codec, which is not done with it, lets go of it: see socket_let_go */
    bool listed : 1;      /* among those that are freed at the end of the turn */
    bool closing : 1;     /* no more input; closed when the output is sent */
    bool half_closed : 1; /* the client will send no more than what is on its way */
    bool eof : 1;         /* and that has been received */
    bool deaf : 1;        /* epoll is not to report input, which is not wanted now */
    bool detached : 1;    /* epoll is not to report anything: it could not be silenced otherwise */
    bool choked : 1;      /* the socket takes no more output now */
    bool capped : 1;      /* ... for all we know: it took all that it was offered */
    bool dirty : 1;       /* in the list of those with output to send */
    bool runnable : 1;    /* in the list of those whose input goes on */
    bool muted : 1;       /* its last word is in the output: replies that come are not said */
    bool known : 1;       /* Python has had a command of it, and is told when it is closed */
    bool timed : 1;       /* in the heap of timers */
    bool parsing : 1;     /* its codec has what is in `in`, ... */
    bool in_lent : 1;     /* ... which by now belongs to a channel: see socket_lend */
    uint8_t listener : 4; /* by which it came; see acceptor_listener */

    const struct codec *codec;
    struct buffer in;
    struct output out;
    struct filter *filter;   /* NULL: none */
    struct framing *framing; /* NULL: it is neither a websocket nor compressed */

    struct slot *slots;
    uint32_t head_slot; /* the number of the oldest */
    uint32_t slot_count;
    uint32_t slot_mask;
    struct slot few_slots[FEW_SLOTS];

    uint64_t touched_workers; /* that know of it */

    uint32_t reserves; /* MSG_RESERVEs under way, all at one worker: */
    uint8_t reserve_worker;
    size_t kept_bytes; /* of replies whose turn has not come */

    uint32_t large_bytes; /* of a large body that a worker has been asked to take, and has not answered; 0: none */
    uint32_t large_slot;

    uint64_t left_bytes;   /* that its socket has taken, ever */
    uint32_t moved_bytes;  /* received and sent, modulo 2^32; */
    uint32_t moved_before; /* ... when it was looked at last; */
    uint32_t idle_sweeps;  /* ... and how often in a row that had been next to nothing: see room.c */
    uint32_t wanted_bytes; /* of room, when it was stalled for that */

    struct connection *next_closed;
};

_Static_assert(sizeof(struct connection) < 512, "an idle connection is small");
_Static_assert(MAX_LISTENERS <= 16, "a listener's number has 4 bits");
_Static_assert(sizeof(struct connection) % 8 == 0, "what stands behind it is aligned");
_Static_assert(MAX_OUTSTANDING * sizeof(struct slot) <= BLOCK_BYTES, "a block holds all slots");
_Static_assert((MAX_OUTSTANDING & (MAX_OUTSTANDING - 1)) == 0, "slots are found by a mask");

/* What is to be sent and has not left. */
static inline bool connection_takes_nothing(const struct connection *c) {
    return c->choked && !c->capped;
}

static inline size_t connection_unsent(const struct connection *c) {
    size_t bytes = output_bytes(&c->out);
    if (c->framing != NULL) bytes += output_bytes(&c->framing->wire) + (c->framing->closing_waits ? 1 : 0);
    return c->filter == NULL ? bytes : bytes + output_bytes(&c->filter->wire) + c->filter->output_bytes;
}

/* The codec's own. */
static inline void *connection_state(const struct connection *c) {
    return (void *)(uintptr_t)(c + 1);
}

/* With `state_bytes` of zeros behind it; NULL when memory is short. */
struct connection *connection_new(int fd, uint32_t number, uint32_t protocol, const struct codec *codec,
                                  size_t state_bytes);
/* Frees what it owns; the socket and the piece of memory are the caller's. */
void connection_release(struct connection *c, struct blocks *blocks);

static inline struct slot *connection_slot(const struct connection *c, uint32_t number) {
    return &c->slots[number & c->slot_mask];
}

/* From the few slots to as many as there may be; false when memory is short. And back. */
bool connection_spread_slots(struct connection *c, struct blocks *blocks);
void connection_gather_slots(struct connection *c, struct blocks *blocks);

/* Room for so many bytes, at least one, behind those that a slot has; NULL when memory is short. */
uint8_t *connection_body(struct connection *c, struct blocks *blocks, struct slot *slot, size_t bytes);
void connection_drop_body(struct connection *c, struct blocks *blocks, struct slot *slot);

/* A new slot at the tail, cleared but for `kind`; its number is head_slot + slot_count - 1. NULL when memory is short.
 * At most MAX_OUTSTANDING. Here, as each request has one. */
static inline struct slot *connection_push_slot(struct connection *c, struct blocks *blocks, uint8_t kind) {
    assert(c->slot_count < MAX_OUTSTANDING);
    if (c->slot_count > c->slot_mask && !connection_spread_slots(c, blocks)) return NULL;
    struct slot *slot = connection_slot(c, c->head_slot + c->slot_count++);
    *slot = (struct slot){.kind = kind};
    return slot;
}

static inline void connection_pop_slot(struct connection *c, struct blocks *blocks) {
    assert(c->slot_count > 0);
    struct slot *slot = connection_slot(c, c->head_slot);
    if (slot->body != NULL) connection_drop_body(c, blocks, slot);
    c->head_slot++;
    if (--c->slot_count == 0 && c->slots != c->few_slots) connection_gather_slots(c, blocks);
}

#endif
