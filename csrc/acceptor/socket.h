/* One connection's bytes: receive, parse, send. */
#ifndef MQ_SOCKET_H
#define MQ_SOCKET_H

#include "acceptor/life.h"
#include "acceptor/lists.h"

void socket_event(struct acceptor *a, struct connection *c, uint32_t events);
void socket_run(struct acceptor *a, struct connection *c);
void socket_flush(struct acceptor *a, struct connection *c);
/* Sends whatever the socket takes, regardless of the turn's limits: for a connection that is closed if that does not
 * help. */
void socket_flush_well(struct acceptor *a, struct connection *c);

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

/* Lends the input buffer that is being parsed, in which a body lies, so that the body need not be copied at once: the
 * buffer then belongs to the borrower. False: the body lies elsewhere. */
bool socket_lend(struct acceptor *a, struct connection *c, const void *body, size_t body_bytes, struct lent *lent);
/* The borrower has taken the buffer. */
void socket_lent(struct acceptor *a, struct connection *c);

#endif
