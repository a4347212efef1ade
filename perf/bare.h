/* The least that a server of one thread can do: one epoll set, one fifo, no timers, no log, no checks, nothing kept of
 * what is in flight. What it costs is what the protocol and the kernel's sockets cost, so it is the limit line beside
 * which a broker's figures are read. It serves the load generators of this folder, and nobody else: a command that they
 * do not send ends it with a message. */
#ifndef MQ_PERF_BARE_H
#define MQ_PERF_BARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- the fifo: messages back to back in chunks, read at one or more cursors ---- */

#define CHUNK_BYTES ((size_t)1 << 20)
#define MAX_CHUNKS  512u /* when there are more, the oldest is forgotten: nobody reads it */

struct fifo {
    char *chunks[MAX_CHUNKS]; /* by number, modulo */
    uint64_t first, last;     /* numbers of chunks */
    size_t end;               /* of what is in the last */
    char *spare;
};

struct cursor {
    uint64_t chunk;
    size_t at;
};

/* Where `bytes` may be written. */
char *fifo_push(struct fifo *f, size_t bytes);

/* The message at a cursor, which moves behind it; NULL if there is none. */
const char *fifo_next(const struct fifo *f, struct cursor *cursor, size_t *bytes);

bool fifo_at_end(const struct fifo *f, const struct cursor *cursor);

/* Gives back the chunks before this one. */
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
    struct connection *next_consumer; /* of a channel */
    struct channel *channel;
    uint64_t credit; /* messages that may still be sent */
};

/* Room for `bytes` of an answer, which the caller writes; it leaves at the end of the turn. */
char *answer_room(struct connection *c, size_t bytes);

void answer(struct connection *c, const char *data, size_t bytes);

/* ---- a protocol ---- */

struct protocol {
    const char *name;
    void (*greet)(struct connection *c);
    /* Handles what has been received whole, and moves in_begin behind it. */
    void (*handle)(struct connection *c);
    /* Once a turn, when all that came in has been handled. */
    void (*deliver)(void);
    void (*gone)(struct connection *c);
};

extern const struct protocol bare_beanstalk, bare_nsq, bare_nats, bare_pulsar;

/* The decimal number at `at`; *end is set behind it. */
uint64_t read_number(const char *at, const char **end);

/* Writes a number and returns where it ends. */
char *write_number(char *to, uint64_t number);

#endif
