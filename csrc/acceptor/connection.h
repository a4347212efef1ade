/* A connection: a client's socket, its input and output, and its requests under way. The codec's state of it follows in
 * the same piece of memory.
 *
 * Each request has a slot until its reply is in the output. Slots are numbered in the order of the requests, and
 * replies leave in that order. The head slot is the oldest; a reply that comes for a later slot is kept in that slot.
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
    SLOT_TEXT = 1,  /* a reply made by the acceptor: `body` is all of it */
    SLOT_CODEC = 2, /* the codec's own: it gets all replies for the slot, and removes it itself */
};

struct slot {
    uint8_t kind;
    uint8_t worker;
    uint8_t status; /* of the reply, once answered */
    bool answered : 1;
    bool python : 1;  /* Python asked: the reply is an upcall */
    bool bridged : 1; /* `body` is a copy of the message for live subscribers: see bridge.h */
    bool unsent : 1;  /* the worker is gone: `body` is the message, for when it is back */
    uint32_t body_bytes;
    uint64_t value; /* by kind: the id published; how long to reserve, then the id delivered; ... */
    uint8_t *body;  /* NULL: none */
};

/* Why a connection's input is not being parsed. */
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
    STALL_TURN,        /* enough messages have been handed out in this turn */
};

/* State of a filtered connection, whose bytes pass through Python; see filter.c. */
struct filter {
    struct output wire;  /* output of the filter, to be sent as it is */
    size_t output_bytes; /* in UPCALL_OUTPUTs that Python has not taken yet */
    bool input;          /* Python has an UPCALL_INPUT to answer */
    bool more;           /* Python can make more of the last input: nothing is received until it has */
    bool heard_out;      /* commands that Python has are answered even after the client has hung up, ... */
    bool end_told;       /* ... of which Python has been told */
};

/* State of a compressed connection; see compression.c. */
struct compression {
    struct s2_stream stream;
    struct buffer packed; /* input that has not been decompressed yet */
    uint8_t level;        /* enum s2_level of the output */
    bool greeted;         /* our stream's identifier has been sent */
    bool unparsed;        /* there is decompressed input that the codec has not used up */
    bool more;            /* `packed` has something to decompress: nothing is received until that is done */
    bool put_off;         /* output waits for a turn in which less has been compressed */
};

/* State of a connection between whose socket and codec there are frames (framing.c) or compressed chunks. */
struct framing {
    struct compression *compression; /* NULL: it is a websocket, and all fields below are used; else only `wire` is */
    struct websocket websocket;
    struct output wire;   /* whole frames, to be sent or filtered */
    uint32_t frame_bytes; /* largest payload of a frame of ours */
    bool masks;           /* our frames are masked, as those of a client */
    bool by_python;       /* Python makes and parses the frames, because they are compressed */
    bool closing_waits;   /* our closing frame waits until all other output has left */
    bool closing_said;    /* there is a closing frame; there may be no second one */
    uint8_t closing_bytes;
    uint8_t closing[WEBSOCKET_CONTROL_BYTES];
};

struct codec; /* see codec.h */

enum { FEW_SLOTS = 4 };

struct connection {
    uint32_t number;
    int fd;
    uint32_t events; /* that epoll reports */
    uint8_t protocol;
    uint8_t stall;
    uint8_t reserve_worker; /* see reserves */

    bool closed : 1;      /* it is freed at the end of the turn, ... */
    bool kept : 1;        /* ... or later, when the codec is done with it: see socket_let_go */
    bool listed : 1;      /* in the list of those freed at the end of the turn */
    bool closing : 1;     /* input is ignored, and it is closed when its output has been sent */
    bool half_closed : 1; /* the client has closed its side; some input may still be on its way */
    bool eof : 1;         /* all input has been received */
    bool deaf : 1;        /* epoll does not report input, because none is wanted now */
    bool detached : 1;    /* out of the epoll set: it could not be silenced otherwise */
    bool choked : 1;      /* the socket takes no more output now */
    bool dirty : 1;       /* in the list of connections with output to send */
    bool runnable : 1;    /* in the list of connections whose input goes on */
    bool unreadable : 1;  /* it ends by an error in what it receives, of the socket or in frames */
    bool unwritable : 1;  /* ... or because the socket refuses output */
    bool parting : 1;     /* our side is closed when all output has left ... */
    bool parted : 1;      /* ... and has been: what is written now is dropped */
    bool muted : 1;       /* its last output has been written: later replies are dropped */
    bool known : 1;       /* Python has had a command of it, and is told when it closes */
    bool timed : 1;       /* in the heap of timers */
    bool borrows : 1;     /* in the list of connections whose output may refer to messages in rings */
    bool parsing : 1;     /* its codec is parsing `in` ... */
    bool in_lent : 1;     /* ... which has been lent to a channel meanwhile: see socket_lend */
    bool silent : 1;      /* it has not sent a command yet, and is in that list: see silent.h */
    uint8_t listener : 4; /* the one that accepted it; see acceptor_listener */

    const struct codec *codec;
    struct buffer in;
    struct output out;
    struct filter *filter;   /* NULL: none */
    struct framing *framing; /* NULL: neither a websocket nor compressed */

    struct slot *slots;
    uint32_t head_slot; /* the number of the oldest */
    uint32_t slot_count;
    uint32_t slot_mask;
    uint32_t reserves; /* MSG_RESERVEs under way, all at reserve_worker */
    struct slot few_slots[FEW_SLOTS];

    uint64_t touched_workers; /* workers that know of the connection */

    size_t kept_bytes; /* bytes of replies whose turn has not come */

    uint32_t large_bytes; /* size of a large body that a worker has not acknowledged yet; 0: none */
    uint32_t large_slot;

    uint64_t left_bytes;   /* all that its socket has ever taken */
    uint32_t moved_bytes;  /* received and sent, modulo 2^32, ... */
    uint32_t moved_before; /* ... as of the last sweep */
    uint32_t idle_sweeps;  /* sweeps in a row in which next to nothing had moved: see room.c */
    uint32_t wanted_bytes; /* how much room it needs, when stalled with STALL_ROOM */

    struct connection *next_closed;
};

_Static_assert(sizeof(struct connection) < 512, "an idle connection is small");
_Static_assert(MAX_LISTENERS <= 16, "a listener's number has 4 bits");
_Static_assert(sizeof(struct connection) % 8 == 0, "what stands behind it is aligned");
_Static_assert(MAX_OUTSTANDING * sizeof(struct slot) <= BLOCK_BYTES, "a block holds all slots");
_Static_assert((MAX_OUTSTANDING & (MAX_OUTSTANDING - 1)) == 0, "slots are found by a mask");

/* Bytes of output that have not left. */
static inline size_t connection_unsent(const struct connection *c) {
    size_t bytes = output_bytes(&c->out);
    if (c->framing != NULL) bytes += output_bytes(&c->framing->wire) + (c->framing->closing_waits ? 1 : 0);
    return c->filter == NULL ? bytes : bytes + output_bytes(&c->filter->wire) + c->filter->output_bytes;
}

/* The codec's state. */
static inline void *connection_state(const struct connection *c) {
    return (void *)(uintptr_t)(c + 1);
}

/* Makes a connection followed by `state_bytes` zeros; NULL when memory is short. */
struct connection *connection_new(int fd, uint32_t number, uint32_t protocol, const struct codec *codec,
                                  size_t state_bytes);
/* Frees what the connection owns; the caller closes its socket and frees the connection itself. */
void connection_release(struct connection *c, struct blocks *blocks);

static inline struct slot *connection_slot(const struct connection *c, uint32_t number) {
    return &c->slots[number & c->slot_mask];
}

/* Moves the slots from the few in the struct to room for as many as there may be (false when memory is short), and
 * back. */
bool connection_spread_slots(struct connection *c, struct blocks *blocks);
void connection_gather_slots(struct connection *c, struct blocks *blocks);

/* Makes room for `bytes` more, at least one, behind a slot's body; NULL when memory is short. */
uint8_t *connection_body(struct connection *c, struct blocks *blocks, struct slot *slot, size_t bytes);
void connection_drop_body(struct connection *c, struct blocks *blocks, struct slot *slot);

/* Adds a slot at the tail, all zeros but for `kind`; its number is head_slot + slot_count - 1. NULL when memory is
 * short. There may be MAX_OUTSTANDING at most. Inlined, because each request needs one. */
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
