/* The least that a server of one thread can do: one epoll set, one fifo, no timers, no log, no checks, and no memory
 * of what is in flight. Its costs are those of the protocol and of the kernel's sockets, so a broker's figures are
 * read beside it as the limit. It serves only the load generators of this folder: a command that they do not send
 * ends it with a message. */
#ifndef MQ_PERF_BARE_H
#define MQ_PERF_BARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "protocols.h"

/* ---- the fifo: messages back to back in chunks, read at one or more cursors ---- */

#define CHUNK_BYTES ((size_t)1 << 20)
#define MAX_CHUNKS  512u /* if there are more, the oldest is dropped: nobody reads it */

struct fifo {
    char *chunks[MAX_CHUNKS]; /* chunk n is at n modulo MAX_CHUNKS */
    uint64_t first, last;     /* numbers of the oldest and the newest chunk */
    size_t end;               /* end of the messages in the last chunk */
    char *spare;
};

struct cursor {
    uint64_t chunk;
    size_t at;
};

/* Returns where a message of `bytes` is to be written. */
char *fifo_push(struct fifo *f, size_t bytes);

/* Returns the message at a cursor, and moves the cursor behind it; NULL if there is none. */
const char *fifo_next(const struct fifo *f, struct cursor *cursor, size_t *bytes);

bool fifo_at_end(const struct fifo *f, const struct cursor *cursor);

/* Frees the chunks before this one. */
void fifo_release(struct fifo *f, uint64_t chunk);

/* ---- connections ---- */

struct connection {
    int fd;
    bool is_dirty, is_blocked, is_waiting, is_closed;
    char *in;
    size_t in_begin, in_end, in_capacity;
    char *out;
    size_t out_begin, out_end, out_capacity;
    struct connection *next_dirty, *next_waiting;
    struct connection *next_consumer; /* in the list of a channel */
    struct channel *channel;
    uint64_t credit; /* how many more messages may be sent to it */
};

/* Returns room for `bytes` of an answer, which the caller writes; it is sent at the end of the turn. */
char *bare_room(struct connection *c, size_t bytes);

void bare_answer(struct connection *c, const char *data, size_t bytes);

/* ---- a protocol ---- */

struct protocol {
    const char *name;
    void (*greet)(struct connection *c);
    /* Handles the commands that have come whole, and moves in_begin behind them. */
    void (*handle)(struct connection *c);
    /* Called once a turn, when all input has been handled. */
    void (*deliver)(void);
    void (*gone)(struct connection *c);
};

/* Each protocol of protocols.h has one of these. */
#define PROTOCOL(name) extern const struct protocol bare_##name;
PROTOCOLS
#undef PROTOCOL

/* Reads the decimal number at `at`, and sets *end behind it. */
uint64_t read_number(const char *at, const char **end);

/* Writes a number and returns where it ends. */
char *write_number(char *to, uint64_t number);

#endif
