/* Writes, as a nats-server makes them: what waits for a connection when a write begins has to leave before the write
 * deadline. If only some of it has left by then, the connection ends, or another write begins with what is left. */
#ifndef MQ_NATS_WRITE_H
#define MQ_NATS_WRITE_H

#include "acceptor/protocols/nats/nats_state.h"

/* Where a client's or a server's codec keeps its write. */
struct nats_write {
    uint64_t *since_ns; /* when it began; 0: nothing waits */
    uint32_t *end;      /* it is over when the socket has taken so much, modulo 2^32 */
    uint32_t *flags;    /* with NATS_WRITE_TOOK and NATS_WRITE_SLOW */
};

/* Flags of both codecs. */
enum nats_write_flag {
    NATS_WRITE_TOOK = 1 << 22, /* the socket has taken something of the write */
    NATS_WRITE_SLOW = 1 << 23, /* an earlier write was not taken in time */
};

enum nats_lateness {
    NATS_WRITE_IN_TIME,
    NATS_WRITE_GOES_ON,    /* some of it left in time: another has begun */
    NATS_WRITE_STILL_SLOW, /* the same, and so it was with the one before */
    NATS_WRITE_LATE,
};

/* Something waits, and the socket takes nothing now. */
void nats_write_waits(const struct acceptor *a, const struct connection *c, struct nats_write w);
/* The socket has taken something. */
void nats_write_sent(const struct acceptor *a, const struct connection *c, struct nats_write w);
/* Whether it is late. If `retries`, it may go on. */
enum nats_lateness nats_write_check(const struct acceptor *a, const struct connection *c, struct nats_write w,
                                    uint64_t deadline_ns, bool retries);

#endif
